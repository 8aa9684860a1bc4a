"""A request's public name: the client's `X-Request-Id` or a fresh one. Never a key of ours, so repeats do no harm."""

from __future__ import annotations

import re
import uuid

from starlette.types import Scope

MAX_CHARS = 128
HEADER = b"x-request-id"
TRACE_HEADER = b"traceparent"
_KEY = "headway.request_id"
_TRACE = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ODD = re.compile(r"[^A-Za-z0-9._:/+=@-]")


def clean(text: str) -> str:
    """What may stand in a header and a log line: at most 128 plain characters, possibly none."""
    return _ODD.sub("", text[:MAX_CHARS])


def name_request(scope: Scope) -> None:
    """Name the request after its header. Without a usable one the name stays open until `request_id` is asked."""
    given = next((value for name, value in scope["headers"] if name == HEADER), b"")
    scope[_KEY] = clean(given.decode("latin-1"))


def adopt(scope: Scope, text: object) -> None:
    """Take a name from the body where the header had none; what is no text is a mistake that is told elsewhere."""
    if isinstance(text, str) and text and not scope.get(_KEY):
        scope[_KEY] = clean(text)


def request_id(scope: Scope) -> str:
    """The request's name; drawn at the first call if the client gave none."""
    name: str = scope.get(_KEY) or uuid.uuid4().hex
    scope[_KEY] = name
    return name


def traceparent_of(scope: Scope) -> str:
    """The W3C trace that the client says the request belongs to; empty where it says none, or in a broken form."""
    value: bytes = next((value for name, value in scope["headers"] if name == TRACE_HEADER), b"")
    return value.decode() if _TRACE.fullmatch(value) else ""


def unique(kind: str, name: str) -> str:
    """An id that no other request has, readable beside the public name."""
    return f"{kind}-{name}-{uuid.uuid4().hex[:12]}"
