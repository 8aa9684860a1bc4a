"""A recorded run of vLLM: its requests, what it was asked to do, and its memory over time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from headway.core import json_value, unreadable
from headway.errors import BadSetting
from headway.sim.tables import read_rows
from headway.workload import WorkItem

_COLUMNS = ("request", "prompt_tokens", "output_tokens", "workload_arrival_s", "first_token_s", "last_token_s")


@dataclass(frozen=True, slots=True)
class MeasuredRequest:
    """One request; times in seconds after the first arrival."""

    id: str
    num_prompt: int
    num_output: int
    arrival_s: float
    first_s: float
    last_s: float

    @property
    def ttft_s(self) -> float:
        """First token − arrival."""
        return self.first_s - self.arrival_s

    @property
    def latency_s(self) -> float:
        """Last token − arrival."""
        return self.last_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """(Last − first) ÷ (n − 1); None below two tokens."""
        return (self.last_s - self.first_s) / (self.num_output - 1) if self.num_output > 1 else None

    def item(self) -> WorkItem:
        """The same request for the simulator; its length was fixed in advance."""
        return WorkItem(
            id=self.id,
            at_s=self.arrival_s,
            num_prompt=self.num_prompt,
            num_output=self.num_output,
            max_output=self.num_output,
        )


@dataclass(frozen=True, slots=True)
class Tick:
    """One sample of the server's own metrics: queues, and the share of its KV blocks in use."""

    at_s: float
    num_running: int
    num_waiting: int
    kv_use: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What PREFIX_requests.csv, PREFIX_timeseries.csv (may be absent) and PREFIX_meta.json (`meta_file`) hold.

    `num_expected` is how many requests the meta file names, None where it names no number.
    """

    requests: tuple[MeasuredRequest, ...]
    num_expected: int | None
    ticks: tuple[Tick, ...]
    meta_file: Path
    model: str
    engine: Mapping[str, object]
    kv_cache: Mapping[str, object]
    version: str
    device: str

    def setting(self, name: str, default: int) -> int:
        """A whole number of the engine's settings. Raises `BadSetting` when it is something else."""
        found = _whole(self.engine, name, self.meta_file)
        return default if found is None else found

    def switch(self, name: str, *, of: Mapping[str, object] | None = None, default: bool = True) -> bool:
        """What is on or off in the engine's settings, or in the table `of`; `default` where nothing is said."""
        value = (self.engine if of is None else of).get(name)
        if not isinstance(value, bool | None):
            raise BadSetting(f"{self.meta_file}: {name} is {value!r}; it must be true, false or null")
        return default if value is None else value

    def memory(self, name: str, default: int) -> int:
        """A whole number of what the engine reported about its KV cache."""
        found = _whole(self.kv_cache, name, self.meta_file)
        return default if found is None else found


def read_run(prefix: str) -> MeasuredRun:
    """Read a run. Raises `BadSetting` naming file, row and column, or the field of the meta file."""
    requests = _requests(Path(f"{prefix}_requests.csv"))
    meta_file = Path(f"{prefix}_meta.json")
    meta = _meta(meta_file)
    engine = _table(meta, "engine_kwargs", meta_file)
    return MeasuredRun(
        requests=tuple(sorted(requests, key=lambda request: request.arrival_s)),
        num_expected=_whole(meta, "num_requests", meta_file),
        ticks=_ticks(Path(f"{prefix}_timeseries.csv")),
        meta_file=meta_file,
        model=str(meta.get("model") or engine.get("model") or ""),
        engine=engine,
        kv_cache=_table(meta, "kv_cache", meta_file),
        version=str(meta.get("vllm_version", "")),
        device=str(_table(meta, "hardware", meta_file).get("device_name", "")),
    )


def _requests(path: Path) -> list[MeasuredRequest]:
    rows = list(read_rows(path, _COLUMNS, words=("request",), whole=("prompt_tokens", "output_tokens")))
    if not rows:
        raise BadSetting(f"{path} has no rows")
    origin = min(float(row[3]) for row in rows)
    requests = []
    for number, (name, prompt, output, came, first, last) in enumerate(rows, start=2):
        for column, count in (("prompt_tokens", prompt), ("output_tokens", output)):
            if not int(count):
                raise BadSetting(f"{path}, row {number}: {column} is 0; a request has at least one token of each")
        if float(last) < float(first):
            raise BadSetting(f"{path}, row {number}: last_token_s is {last}, before first_token_s, which is {first}")
        requests.append(
            MeasuredRequest(name, int(prompt), int(output), float(came) - origin, float(first), float(last))
        )
    return requests


def device_of_profile(prefix: str) -> str:
    """The device that a profile was made on: from PREFIX_meta.yaml, else from the name `…_DEVICE_MODEL`."""
    if found := _said_of_profile(prefix, "hardware"):
        return found
    parts = Path(prefix).name.split("_")
    return parts[1] if len(parts) > 1 else parts[0]


def model_of_profile(prefix: str) -> str | None:
    """The model whose kernels a profile timed, None where PREFIX_meta.yaml does not say."""
    return _said_of_profile(prefix, "model")


def _said_of_profile(prefix: str, field: str) -> str | None:
    path = Path(f"{prefix}_meta.yaml")
    found = re.search(rf"^{field}: *(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE) if path.is_file() else None
    return found[1] if found else None


def _ticks(path: Path) -> tuple[Tick, ...]:
    if not path.is_file():
        return ()
    rows = read_rows(path, ("t", "running", "waiting", "kv_cache_pct"), whole=("running", "waiting"))
    return tuple(Tick(float(at), int(running), int(waiting), float(use) / 100) for at, running, waiting, use in rows)


def _meta(path: Path) -> Mapping[str, object]:
    try:
        content = json_value(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    if not isinstance(content, dict):
        raise BadSetting(f"{path} must be a JSON object, not {type(content).__name__}")
    return content


def _table(meta: Mapping[str, object], name: str, file: Path) -> Mapping[str, object]:
    content = meta.get(name)
    if content is not None and not isinstance(content, dict):
        raise BadSetting(f"{file}: {name} is {content!r}; it must be a JSON object")
    return cast("Mapping[str, object]", content or {})


def _whole(table: Mapping[str, object], name: str, file: Path) -> int | None:
    value = table.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadSetting(f"{file}: {name} is {value!r}; it must be a whole number of at least 1")
    return value
