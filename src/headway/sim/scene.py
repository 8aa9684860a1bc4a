"""Scenes: small workloads written by hand, for tapes. The format is DESIGN §5's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.core import unreadable
from headway.errors import BadSetting
from headway.workload.loading import parse_text

MAX_TOKENS = 1 << 20
MAX_NUMBER = 1e9
"""Largest number that is no count; a unit of time still moves a clock that shows so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRequest:
    """One request of a scene. Times are units. `max_output` is what admission believes, at least `output`."""

    id: str
    arrival: float
    prompt: int
    output: int
    max_output: int
    tenant: str = ""
    weight: float = 1.0
    priority: int = 0
    deadline: float | None = None
    ttft: float | None = None
    predicted: int | None = None
    n: int = 1
    prefix_group: str = ""
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A block pool and the requests that meet it, in the file's order."""

    block_size: int
    num_blocks: int
    requests: tuple[SceneRequest, ...]
    host_blocks: int | None = None

    @property
    def has_prefixes(self) -> bool:
        """Whether any requests share their first tokens."""
        return any(request.prefix_group for request in self.requests)


def load_scene(path: Path) -> Scene:
    """Read a scene file. Raises `BadSetting` saying what is wrong and where."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, "scene") from error
    return parse_scene(parse_text(text, "json", str(path)))


def parse_scene(content: object) -> Scene:
    """A scene from its JSON content. Raises `BadSetting` naming the field, the value and what is allowed."""
    scene = _mapping(content, "a scene")
    _known(scene, {"block_size", "num_blocks", "host_blocks", "requests"}, "scene")
    entries = scene.get("requests")
    if not isinstance(entries, list) or not entries:
        raise BadSetting("scene: requests must be a list with at least one request")
    requests = tuple(_request(entry, position) for position, entry in enumerate(entries))
    _check_ids(requests)
    return Scene(
        block_size=_whole(scene, "block_size", "scene", low=1),
        num_blocks=_whole(scene, "num_blocks", "scene", low=1),
        host_blocks=_whole(scene, "host_blocks", "scene", low=0) if scene.get("host_blocks") is not None else None,
        requests=requests,
    )


_FIELDS = {
    *("id", "arrival", "prompt", "output", "max_output", "tenant", "weight", "priority", "deadline", "ttft"),
    *("predicted", "n", "prefix"),
}


def _request(content: object, position: int) -> SceneRequest:
    where = f"request {position}"
    entry = _mapping(content, where)
    _known(entry, _FIELDS, where)
    name = _text(entry, "id", where)
    if not name:
        raise BadSetting(f"{where}: id must be a text of at least one character, not {name!r}")
    where = f"request {name!r}"
    prompt, output = _whole(entry, "prompt", where, low=1), _whole(entry, "output", where, low=1)
    prefix = _mapping(entry.get("prefix", {}), f"{where}: prefix")
    _known(prefix, {"group", "tokens"}, f"{where}: prefix")
    group = _text(prefix, "group", f"{where}: prefix")
    if prefix and not group:
        raise BadSetting(f"{where}: prefix names no group; say whose first tokens these are, or leave prefix out")
    return SceneRequest(
        id=name,
        arrival=_number(entry, "arrival", where, low=0.0) or 0.0,
        prompt=prompt,
        output=output,
        max_output=_whole(entry, "max_output", where, low=output, default=output),
        tenant=_text(entry, "tenant", where),
        weight=_number(entry, "weight", where, low=1e-6) or 1.0,
        priority=_whole(entry, "priority", where, low=-(2**31), default=0),
        deadline=_number(entry, "deadline", where, low=0.0),
        ttft=_number(entry, "ttft", where, low=0.0),
        predicted=_whole(entry, "predicted", where, low=0) if entry.get("predicted") is not None else None,
        n=_whole(entry, "n", where, low=1, high=128, default=1),
        prefix_group=group,
        prefix_tokens=_whole(prefix, "tokens", f"{where}: prefix", low=0, high=prompt) if prefix else 0,
    )


def _check_ids(requests: tuple[SceneRequest, ...]) -> None:
    """Every sequence has a name of its own: a request's id, and id/1, id/2, ... for its further choices."""
    names: set[str] = set()
    for request in requests:
        if request.id in names:
            raise BadSetting(f"scene: request id {request.id!r} is used more than once")
        names.add(request.id)
    for request in requests:
        for choice in range(1, request.n):
            if (name := f"{request.id}/{choice}") in names:
                raise BadSetting(
                    f"scene: request id {name!r} is the name of a choice of {request.id!r}, whose n is {request.n}; "
                    "rename one"
                )


def _text(entry: Mapping[str, object], key: str, where: str) -> str:
    """A text that a terminal shows as it is: no line breaks, no escapes, no half of a surrogate pair."""
    value = entry.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isprintable():
        raise BadSetting(f"{where}: {key} is {value!r}; it must be a text of printable characters")
    return value


def _mapping(content: object, what: str) -> Mapping[str, object]:
    if not isinstance(content, dict):
        raise BadSetting(f"{what} must be a JSON object, not {type(content).__name__}")
    return content


def _known(entry: Mapping[str, object], known: set[str], where: str) -> None:
    if unknown := set(entry) - known:
        raise BadSetting(f"{where}: unknown field {min(unknown)!r}; known: {', '.join(sorted(known))}")


def _whole(
    entry: Mapping[str, object], key: str, where: str, *, low: int, high: int = MAX_TOKENS, default: int | None = None
) -> int:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        shown = repr(value) if key in entry else "missing"
        raise BadSetting(f"{where}: {key} is {shown}; it must be a whole number between {low} and {high}")
    return value


def _number(entry: Mapping[str, object], key: str, where: str, *, low: float) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= MAX_NUMBER:
        raise BadSetting(f"{where}: {key} is {value!r}; it must be a number between {low:g} and {MAX_NUMBER:g}")
    return float(value)
