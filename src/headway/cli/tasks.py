"""What `headway generate` is to do, from the command line or a JSONL file; checked before anything loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.core import SamplingParams, json_value, unreadable
from headway.errors import BadSetting, InvalidRequest

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One prompt (a text, token ids) or conversation. `where` says whence it comes, for complaints."""

    id: str
    where: str
    prompt: str | tuple[int, ...] | None = None
    messages: tuple[Json, ...] = ()
    params: SamplingParams


def tasks_from_prompts(prompts: Sequence[str], params: SamplingParams) -> list[Task]:
    """A task for each `--prompt`, numbered from 0."""
    return [
        Task(id=str(at), where=f"prompt {at + 1}", prompt=prompt, params=params) for at, prompt in enumerate(prompts)
    ]


def read_tasks(path: Path, params: SamplingParams) -> list[Task]:
    """A task for each line that is not blank; fields of a line go before `params`.

    A line is an object with `prompt` or `messages`, maybe `id`, and sampling fields. Raises `BadSetting` naming file
    and line for the first one that is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise BadSetting(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    tasks: list[Task] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            tasks.append(_task(line, f"{path}, line {number}", str(len(tasks)), params))
    if not tasks:
        raise BadSetting(f"{path} has no prompts; write one JSON object a line")
    return tasks


def _task(line: str, where: str, task_id: str, params: SamplingParams) -> Task:
    entry = json_value(line, where)
    if not isinstance(entry, dict):
        raise BadSetting(f"{where}: a line must be a JSON object with prompt or messages")
    sampling = {name: value for name, value in entry.items() if name not in ("id", "prompt", "messages")}
    if unknown := sorted(sampling.keys() - _FIELDS.keys()):
        raise BadSetting(f"{where}: unknown field {unknown[0]!r}; known: id, prompt, messages, {', '.join(_FIELDS)}")
    try:
        changes: dict[str, Any] = {name: _FIELDS[name](name, value) for name, value in sampling.items()}
        return Task(
            id=str(entry.get("id", task_id)), where=where, params=replace(params, **changes), **_question(entry)
        )
    except InvalidRequest as error:
        raise BadSetting(f"{where}: {error}") from None


def _question(entry: Json) -> dict[str, Any]:
    prompt, messages = entry.get("prompt"), entry.get("messages")
    if (prompt is None) == (messages is None):
        raise InvalidRequest("give either prompt or messages")
    if messages is None:
        is_ids = isinstance(prompt, list) and all(type(token_id) is int for token_id in prompt)
        if not (isinstance(prompt, str) or is_ids):
            raise InvalidRequest("prompt must be a text or a list of token ids")
        return {"prompt": tuple(prompt) if isinstance(prompt, list) else prompt}
    if not (isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages)):
        raise InvalidRequest("messages must be a list of objects with role and content")
    return {"messages": tuple(messages)}


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{name} is {value!r}; it must be a number")
    return float(value)


def _as_it_is(_: str, value: object) -> object:
    return value


def _yes_or_no(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is {value!r}; it must be true or false")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"{name} is {value!r}; it must be a text or a list of texts")
    return tuple(texts)


def _ids(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token_id) is int for token_id in value):
        raise InvalidRequest(f"{name} is {value!r}; it must be a list of token ids")
    return tuple(value)


_FIELDS: Mapping[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(("n", "top_k", "seed", "max_tokens", "min_tokens"), _as_it_is),  # SamplingParams asks for wholes
    **dict.fromkeys(("temperature", "top_p", "min_p"), _number),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), _number),
    **dict.fromkeys(("stop", "bad_words"), _texts),
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids"), _ids),
    **dict.fromkeys(("ignore_eos", "include_stop_str_in_output"), _yes_or_no),
}
