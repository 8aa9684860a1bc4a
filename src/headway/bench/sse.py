"""Server-sent events of OpenAI-compatible servers: bytes in, what they say out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headway.bench.target import Broken

DONE = "[DONE]"


class EventParser:
    """Cuts a stream of bytes into the data of its events, wherever the network cut it before."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of every event that is complete with this chunk."""
        lines = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line.strip() and self._data:
                yield self._take()

    def finish(self) -> Iterator[str]:
        """What is left at the end of the body: some servers forget the last empty line."""
        yield from self.feed(b"\n\n")

    def _take(self) -> str:
        data, self._data = self._data, []
        return b"\n".join(data).decode("utf-8", "replace")


@dataclass(slots=True)
class Said:
    """What one event says. `num_tokens` is None unless it lists its tokens."""

    text: str = ""
    num_tokens: int | None = None
    finish_reason: str = ""
    usage: Mapping[str, Any] | None = None


def read_event(data: str) -> Said:
    """An event of a completion or a chat. Raises `Broken` for an error, and for what is no such event."""
    try:
        event = json.loads(data)
    except (json.JSONDecodeError, RecursionError):
        raise Broken(f"the server sent what is no JSON: {data[:80]!r}") from None
    if not isinstance(event, dict):
        raise Broken(f"the server sent what is no event: {data[:80]!r}")
    if event.get("error"):
        raise Broken(f"the server broke off: {message_of(event)}", status=_code(event["error"]))
    said = Said(usage=event.get("usage") or None)
    for choice in event.get("choices") or ():
        said.text += _text(choice)
        if (num_tokens := _num_tokens(choice)) is not None:
            said.num_tokens = (said.num_tokens or 0) + num_tokens
        said.finish_reason = choice.get("finish_reason") or said.finish_reason
    return said


def message_of(content: object) -> str:
    """The words of an error in OpenAI's shape, or in whatever shape it comes."""
    error = content.get("error", content) if isinstance(content, dict) else content
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _code(error: object) -> int | None:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None


_SPOKEN = ("content", "reasoning_content", "reasoning", "refusal")


def _text(choice: Mapping[str, Any]) -> str:
    """All that the model said in this event; a role alone is no text."""
    if choice.get("text"):
        return str(choice["text"])
    delta = choice.get("delta") or {}
    said = "".join(delta[name] for name in _SPOKEN if isinstance(delta.get(name), str))
    for tool in delta.get("tool_calls") or ():
        function = tool.get("function") or {}
        said += (function.get("name") or "") + (function.get("arguments") or "")
    return said


def _num_tokens(choice: Mapping[str, Any]) -> int | None:
    """How many tokens the event lists: ids, or log probabilities of each."""
    logprobs = choice.get("logprobs")
    listed = choice.get("token_ids")
    if listed is None and isinstance(logprobs, dict):
        listed = logprobs.get("content") or logprobs.get("tokens")
    return len(listed) if isinstance(listed, list) else None
