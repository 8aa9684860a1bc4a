"""Exceptions as HTTP answers in OpenAI's shape. The only place that knows which status belongs to which mistake."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from headway.errors import (
    ExecutorFault,
    Forbidden,
    HeadwayError,
    InvalidRequest,
    Overloaded,
    PolicyFault,
    PromptTooLong,
    TooMany,
    UnknownModel,
)
from headway.server.request_id import request_id

logger = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 1000
BAD_REQUEST = "invalid_request_error"


class Unauthorized(InvalidRequest):
    """The caller showed no key, or a wrong one."""


class BodyTooLarge(InvalidRequest):
    """The body exceeds the server's limit; it was not read to its end."""


class HeadTooLarge(InvalidRequest):
    """The request's line and headers exceed the server's limit."""


class TooSlow(InvalidRequest):
    """The client took too long to send its request."""


class WrongMediaType(InvalidRequest):
    """The body is not declared as plain JSON."""


class TextTooLong(InvalidRequest):
    """A text that cannot fit into the context however it is tokenized."""


class Unsupported(InvalidRequest):
    """A field that is known, but not supported here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One error answer: status, headers and the members of OpenAI's error object."""

    status: int
    message: str
    kind: str = BAD_REQUEST
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def encode(self, name: str) -> bytes:
        """The JSON document, valid UTF-8 whatever the message quotes; `name` is the request's, as in `X-Request-Id`."""
        message = self.message if len(self.message) <= MAX_MESSAGE_CHARS else self.message[:MAX_MESSAGE_CHARS] + "…"
        error: dict[str, Any] = {
            "message": message.encode("utf-8", "replace").decode(),
            "type": self.kind,
            "param": self.param,
            "code": self.code,
            "request_id": name,
        }
        return msgspec.json.encode({"error": error | self.numbers})

    def response(self, scope: Scope) -> Response:
        """The whole answer to the request of that scope."""
        return Response(self.encode(request_id(scope)), self.status, self.headers, "application/json")


def fault_of(error: Exception) -> Fault:
    """The answer to an exception. What we did not foresee is a 500 that tells nothing of our inside."""
    match error:
        case InvalidRequest():
            return _bad_request(error)
        case TooMany():
            return too_many(error)
        case Overloaded():
            return refusal(str(error), error.retry_after_s, code=error.cause)
        case ExecutorFault() | PolicyFault():
            return Fault(status=500, message=str(error), kind="server_error", code="engine_fault")
        case HTTPException() | RequestValidationError():
            return _http(error) if isinstance(error, HTTPException) else _bad_parameter(error)
        case _:
            return Fault(status=500, message="internal server error; the log has the cause", kind="server_error")


async def answer(request: Request, error: Exception) -> Response:
    """Answer a request that ended in an exception, as FastAPI's handlers do."""
    fault = fault_of(error)
    report(error, fault, request_id(request.scope))
    return fault.response(request.scope)


def report(error: Exception, fault: Fault, name: str) -> None:
    """Log what is our own fault in the request of that name; the cause in full where nobody foresaw it."""
    if fault.status == 500:
        cause = None if isinstance(error, HeadwayError) else error
        logger.error("request %s: %s: %s", name, type(error).__name__, error, exc_info=cause)


def refusal(message: str, retry_after_s: float, *, code: str) -> Fault:
    """503 with `Retry-After` in whole seconds, at least 1."""
    headers = _retry_after(retry_after_s)
    return Fault(status=503, message=message, kind="service_unavailable", code=code, headers=headers)


def too_many(error: TooMany) -> Fault:
    """429 for a caller's own limit, with the `Retry-After` of that limit."""
    kind, headers = "rate_limit_error", _retry_after(error.retry_after_s)
    return Fault(status=429, message=str(error), kind=kind, code=f"rate_limit_{error.limit}", headers=headers)


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def _bad_request(error: InvalidRequest) -> Fault:
    status, code, headers = next(answer for kind, answer in _MISTAKES.items() if isinstance(error, kind))
    numbers = {"n_prompt_tokens": error.num_prompt, "n_ctx": error.limit} if isinstance(error, PromptTooLong) else {}
    return Fault(
        status=status, message=str(error), param=error.param, code=code, headers=dict(headers), numbers=numbers
    )


# Status, code and headers of each kind of mistake; the first that fits counts.
_MISTAKES: dict[type[InvalidRequest], tuple[int, str | None, dict[str, str]]] = {
    PromptTooLong: (400, "context_length_exceeded", {}),
    TextTooLong: (400, "context_length_exceeded", {}),
    UnknownModel: (404, "model_not_found", {}),
    Forbidden: (403, "forbidden", {}),
    Unauthorized: (401, "invalid_api_key", {"WWW-Authenticate": "Bearer"}),
    # The rest of the body is not wanted: with the connection open it would have to be read.
    BodyTooLarge: (413, "request_too_large", {"Connection": "close"}),
    HeadTooLarge: (431, "request_header_too_large", {"Connection": "close"}),
    TooSlow: (408, "request_timeout", {"Connection": "close"}),
    WrongMediaType: (415, "unsupported_media_type", {}),
    Unsupported: (400, "unsupported_parameter", {}),
    InvalidRequest: (400, None, {}),
}


def _http(error: HTTPException) -> Fault:
    codes = {404: "not_found", 405: "method_not_allowed"}
    kind = BAD_REQUEST if error.status_code < 500 else "server_error"
    headers = dict(error.headers or {})
    return Fault(
        status=error.status_code,
        message=_told(error),
        kind=kind,
        code=codes.get(error.status_code),
        headers=headers,
    )


def _bad_parameter(error: RequestValidationError) -> Fault:
    """A parameter of the URL that is not of its type."""
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return Fault(status=400, message=f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}", param=name)


def _told(error: HTTPException) -> str:
    """What the error says; where it is the router's, which says no more than the status, what there is instead."""
    match error.status_code, error.detail:
        case 404, "Not Found":
            return "there is nothing at this path; /v1/chat/completions, /v1/completions and others are listed at /docs"
        case 405, _:
            return f"this path does not take this method, only {(error.headers or {}).get('Allow', 'others')}"
        case _:
            return str(error.detail)
