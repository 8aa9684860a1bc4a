"""A request's body: bounded, then strict JSON. Nothing here knows what the document means."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import Request

from headway.core import Cause
from headway.errors import InvalidRequest, Overloaded
from headway.server.faults import BodyTooLarge, TooSlow, WrongMediaType
from headway.server.patience import within_header

BODY_S = 120.0
"""How long a client may take to send a body."""

_HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    """The body as a JSON object. Raises `InvalidRequest` for anything else, `Overloaded` where the server leaves first.

    It must have come within `BODY_S`: half a request is not kept for ever. At most `limit` bytes are kept in memory; a
    body that declares more is refused before a byte of it is read. NaN, infinities, numbers beyond a double, invalid
    UTF-8 and lone surrogates are no JSON.
    """
    _check_headers(request, limit)
    body = bytearray()
    try:
        async with within_header(request.scope), _in_time():
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise _too_large(limit)
    except asyncio.CancelledError:  # the web server's last word to who still sends when it leaves
        raise Overloaded(
            "this server is shutting down and the body has not come; try again or elsewhere",
            retry_after_s=5.0,
            cause=Cause.DRAINING,
        ) from None
    try:
        document = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {_why(error, body)}") from None
    if not isinstance(document, dict):
        raise InvalidRequest("the body must be a JSON object")
    return document


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(BODY_S):
            yield
    except TimeoutError:
        raise TooSlow(f"the body has not come within {BODY_S:g} s") from None


def _why(error: msgspec.DecodeError, body: bytearray) -> str:
    # The parser calls both truncated, which sends their authors looking in the wrong place.
    if not body.strip():
        return "it is empty"
    if half := _HALF_PAIR.search(body):
        return f"it has half of a surrogate pair, {half[0].decode()}, at byte {half.start()}"
    return str(error)


def _check_headers(request: Request, limit: int) -> None:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise WrongMediaType(f"Content-Type is {media_type!r}; send application/json")
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise WrongMediaType(f"Content-Encoding is {encoding!r}; send the body uncompressed")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than this server's limit of {limit} bytes")
