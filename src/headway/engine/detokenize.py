"""Tokens to text, piece by piece: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable


class Detokenizer:
    """Text of a growing list of tokens, without special ones.

    The pieces joined are exactly `bytes.decode("utf-8", "replace")` of all bytes, wherever the tokens are cut. No more
    is held back than the beginning of one character: at most 3 bytes.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], is_special: Callable[[int], bool]) -> None:
        self._token_bytes = token_bytes
        self._is_special = is_special
        self._pending = b""

    def push(self, token_id: int) -> str:
        """The text that this token completes."""
        if self._is_special(token_id):
            return ""
        raw = self._pending + self._token_bytes(token_id)
        text, num_read = utf_8_decode(raw, "replace", False)
        self._pending = raw[num_read:]
        return text

    def flush(self) -> str:
        """U+FFFD for a character that was begun and never completed, else nothing."""
        text = self._pending.decode("utf-8", "replace")
        self._pending = b""
        return text


class _Prefix:
    """A beginning of one or more stop strings: a state of Aho and Corasick's automaton (1975).

    States are made when a text first reaches them, so that stop strings cost nothing until then, however long.
    `shorter` is the longest proper end of this prefix that begins a stop string, None for the empty prefix.
    `completed` is the longest stop string that this prefix ends with, if any.
    """

    __slots__ = ("_children", "_unvisited", "completed", "depth", "shorter")

    def __init__(self, depth: int, stops: list[str], shorter: _Prefix | None) -> None:
        self.depth = depth
        self.shorter = shorter
        self.completed: str | None = shorter.completed if shorter is not None else None
        self._children: dict[str, _Prefix] = {}
        self._unvisited: dict[str, list[str]] = {}
        for stop in stops:
            if len(stop) == depth:
                self.completed = stop
            else:
                self._unvisited.setdefault(stop[depth], []).append(stop)

    def follow(self, char: str) -> _Prefix:
        """The longest beginning of a stop string that the text ends with after `char`; amortised constant time."""
        prefix = self
        while (child := prefix._children.get(char) or prefix._visit(char)) is None:
            if prefix.shorter is None:
                return prefix
            prefix = prefix.shorter
        return child

    def _visit(self, char: str) -> _Prefix | None:
        if (stops := self._unvisited.pop(char, None)) is None:
            return None
        shorter = self if self.shorter is None else self.shorter.follow(char)
        child = self._children[char] = _Prefix(self.depth + 1, stops, shorter)
        return child

    @property
    def is_whole(self) -> bool:
        """Whether no longer stop string begins so."""
        return not self._children and not self._unvisited


class StopMatcher:
    """Finds the stop string that is completed first and never lets a part of it out.

    Of stop strings that end on the same character the longest counts, so the answer depends on the text alone: not
    on how it is cut into pieces, nor on the order of `stops`. Held back is only what may still become a stop string:
    the longest end of the text that begins one. The stop strings must not be empty.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        assert all(stops), "an empty stop string matches everywhere"
        self._firsts = frozenset(stop[0] for stop in stops)
        self._prefix = _Prefix(0, list(stops), None)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that is now safe to show, and the stop string if one was found. Nothing may follow a find."""
        prefix = self._prefix
        if not prefix.depth and self._firsts.isdisjoint(text):
            return text, None
        for index, char in enumerate(text):
            prefix = prefix.follow(char)
            if (stop := prefix.completed) is not None:
                safe = self._cut(self._held + text[: index + 1], stop)
                self._held = ""
                return safe, stop
        return self._release(text, prefix), None

    def pass_by(self, text: str) -> str:
        """Like `push` where a stop string does not count yet: it goes through as any other text."""
        prefix = self._prefix
        for char in text:
            prefix = prefix.follow(char)
        while prefix.shorter is not None and prefix.is_whole:
            prefix = prefix.shorter
        return self._release(text, prefix)

    def flush(self) -> str:
        """The text still held back: at the end it is no stop string."""
        safe, self._held = self._held, ""
        return safe

    def _release(self, text: str, prefix: _Prefix) -> str:
        self._prefix = prefix
        text = self._held + text
        shown = len(text) - self._num_to_hold(prefix)
        self._held = text[shown:]
        return text[:shown]

    def _num_to_hold(self, prefix: _Prefix) -> int:
        return prefix.depth

    def _cut(self, text: str, stop: str) -> str:
        return text[: len(text) - len(stop)]


class InclusiveStopMatcher(StopMatcher):
    """A `StopMatcher` that shows the stop string as the last of the text, and so has nothing to hold back."""

    def _num_to_hold(self, prefix: _Prefix) -> int:  # noqa: ARG002  the other matcher needs it
        return 0

    def _cut(self, text: str, stop: str) -> str:  # noqa: ARG002  the other matcher needs it
        return text
