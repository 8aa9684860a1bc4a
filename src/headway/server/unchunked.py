"""Answers of no known length for clients of HTTP/1.0, which cannot read chunks: they end with the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class Unchunked(RequestResponseCycle):
    """uvicorn's answer to one request, which would be chunked whatever the client speaks (RFC 9112, section 6.1).

    uvicorn counts what it writes against the announced length; where none is, each piece is announced as it comes.
    """

    _has_length = True

    async def send(self, message: ASGISendEvent) -> None:
        """Pass on a message of the application. The connection is closed after the last, as for all of HTTP/1.0."""
        if message["type"] == "http.response.start":
            self._has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if not self._has_length:
                self.chunked_encoding = False
        elif message["type"] == "http.response.body" and not self._has_length:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
