"""A small client of an OpenAI-compatible server: streams text, explains trouble in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from headway.cli.values import one_key
from headway.errors import BadSetting, HeadwayError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 5.0
Body = Mapping[str, Any]

_HINTS = {401: "; give the server's key with --api-key or HEADWAY_API_KEY"}
_ADMIN_HINTS = dict.fromkeys((401, 403), "; give an admin's key with --api-key or HEADWAY_ADMIN_API_KEY")
"""What to do about a status, where a user can do something."""


class NoAnswer(HeadwayError):
    """The server cannot be reached, refuses, or breaks off."""


class Client:
    """One server. Use it as a context manager.

    Raises `NoAnswer` for all trouble with the server, `BadSetting` for a text that cannot be sent.

    An answer may take as long as the server wants; only connecting has a time limit.
    """

    def __init__(self, url: str, api_key: str | None = None, *, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        self.url = url.rstrip("/").removesuffix("/v1")
        key = one_key(api_key)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
                transport=transport,
            )
            parsed = httpx.URL(self.url)
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise BadSetting(f"--url or --api-key cannot be used: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise BadSetting(f"--url is {url!r}; it must be like http://127.0.0.1:8000")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def first_model(self) -> str:
        """The name of the first model that the server lists."""
        with self._trouble():
            answer = self._http.get("/v1/models")
            _check(answer)
            try:
                return str(answer.json()["data"][0]["id"])
            except (ValueError, LookupError, TypeError):
                raise NoAnswer(f"{self.url} answers, but not like an OpenAI-compatible server") from None

    def manage(self, method: str, path: str, body: Body | None = None) -> dict[str, Any]:
        """The answer to a request under `/admin`."""
        with self._trouble():
            answer = (
                self._http.request(method, f"/admin/{path}", json=body)
                if body
                else self._http.request(method, f"/admin/{path}")
            )
            _check(answer, _ADMIN_HINTS)
            try:
                document: dict[str, Any] = answer.json()
            except ValueError:
                raise NoAnswer(f"{self.url} answers, but not like a Headway server") from None
            return document

    def chat(self, messages: list[dict[str, str]], body: Body) -> Iterator[str]:
        """The answer to a conversation, piece by piece."""
        for choice in self._stream("/v1/chat/completions", {"messages": messages, **body}):
            yield choice.get("delta", {}).get("content") or ""

    def complete(self, prompt: str, body: Body) -> Iterator[str]:
        """What follows `prompt`, piece by piece."""
        for choice in self._stream("/v1/completions", {"prompt": prompt, **body}):
            yield choice.get("text") or ""

    def _stream(self, path: str, body: Body) -> Iterator[dict[str, Any]]:
        with self._trouble(), self._http.stream("POST", path, json={**body, "stream": True}) as answer:
            if answer.is_error:
                answer.read()
            _check(answer)
            for event in _events(answer):
                if "error" in event:
                    raise NoAnswer(f"the server broke off: {_message(event)}")
                yield from event.get("choices", ())

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except UnicodeEncodeError:  # what the terminal or a pipe gave as bytes, and Python carries as surrogates
            raise BadSetting("the text is not UTF-8; convert it first") from None
        except httpx.ConnectError as error:
            hint = "is it running? `headway serve` starts one, --url says where to look"
            raise NoAnswer(f"no server at {self.url} ({error}); {hint}") from None
        except httpx.ConnectTimeout:
            raise NoAnswer(f"no answer from {self.url} within {CONNECT_TIMEOUT_S:g} s") from None
        except httpx.TransportError as error:
            raise NoAnswer(f"the connection to {self.url} broke: {str(error) or type(error).__name__}") from None


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event, up to the terminator, without which the answer is not whole."""
    for line in answer.iter_lines():
        name, _, value = line.partition(":")
        if name != "data":
            continue
        if value.strip() == "[DONE]":
            return
        try:
            event = json.loads(value)
        except json.JSONDecodeError:
            raise NoAnswer(f"the server sent what is no JSON: {value.strip()[:80]!r}") from None
        if isinstance(event, dict):
            yield event
    raise NoAnswer("the server ended the answer before it was whole")


def _check(answer: httpx.Response, hints: Mapping[int, str] = _HINTS) -> None:
    if answer.is_success:
        return
    try:
        message = _message(answer.json())
    except ValueError:
        message = answer.reason_phrase or answer.text[:200]
    raise NoAnswer(f"the server refused with status {answer.status_code}: {message}{hints.get(answer.status_code, '')}")


def _message(content: object) -> str:
    error = content.get("error", content) if isinstance(content, dict) else content
    return str(error.get("message", error) if isinstance(error, dict) else error)
