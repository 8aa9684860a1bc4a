"""An OpenAI-compatible server as a target. Only standard fields are sent unless the caller adds others."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from headway.bench.lanes import Lanes
from headway.bench.prometheus import read_counters
from headway.bench.sse import DONE, EventParser, Said, message_of, read_event
from headway.bench.target import Broken, Call, Chunk, Closing, Opened, Piece, Refused, Unauthorized, Unreachable
from headway.clock import Clock
from headway.errors import BadSetting
from headway.report import StepSample

CONNECT_TIMEOUT_S = 10.0
DRAIN_TIMEOUT_S = 5.0
REFUSALS = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where a server is and how it is asked. `model` empty: the first that it lists.

    `fixed_length` adds vLLM's `ignore_eos` and `min_tokens`, so that answers are as long as asked for;
    `priorities` adds `priority`. `fields` are sent as they are with every request. `reports_usage` asks for the
    standard usage event at the end of the stream.
    """

    url: str
    model: str = ""
    endpoint: str = "completions"
    api_key: str = ""
    temperature: float = 0.0
    fixed_length: bool = False
    priorities: bool = False
    reports_usage: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    request_timeout_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a URL or an end point that cannot be one."""
        if self.endpoint not in _PATHS:
            raise BadSetting(f"endpoint is {self.endpoint!r}; it must be one of {', '.join(_PATHS)}")
        try:
            parsed = httpx.URL(self.url)
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise BadSetting(f"url {self.url!r} cannot be used: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise BadSetting(f"url is {self.url!r}; it must be like http://127.0.0.1:8000")


_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class HttpTarget:
    """Streams from one server, over as many connections as there are requests at a time, each kept for the next."""

    def __init__(
        self, settings: HttpSettings, clock: Clock, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._settings, self._clock = settings, clock
        self._model = settings.model
        self.base_url = settings.url.rstrip("/").removesuffix("/v1")
        headers = {"accept-encoding": "identity", **settings.headers}
        if settings.api_key:
            headers["authorization"] = f"Bearer {settings.api_key}"
        self._http = httpx.AsyncClient(
            base_url=self.base_url,
            headers=headers,
            timeout=httpx.Timeout(settings.request_timeout_s, connect=CONNECT_TIMEOUT_S, pool=None),
            transport=transport or Lanes(),
        )

    async def check(self) -> None:
        """Ask for the list of models. Raises `Unreachable`, `Unauthorized`, or `Broken` where no model is known."""
        with _one_message(self.base_url):
            answer = await self._http.get("/v1/models")
        if answer.status_code in (401, 403):
            raise Unauthorized(_refusal(answer), status=answer.status_code)
        if self._model:
            return
        try:
            self._model = str(answer.raise_for_status().json()["data"][0]["id"])
        except (httpx.HTTPStatusError, ValueError, LookupError, TypeError):
            raise Broken(
                f"{self.base_url} does not list its models (status {answer.status_code}); name one with --model",
                status=answer.status_code,
            ) from None

    async def stream(self, call: Call, /) -> AsyncGenerator[Piece, None]:
        """Send one request and read its answer to the end of the body, whatever was said before."""
        connected: list[float] = []

        async def trace(name: str, info: Mapping[str, object]) -> None:  # noqa: ARG001 - httpcore's signature
            if name.endswith(("connect_tcp.complete", "start_tls.complete", "connect_unix_socket.complete")):
                connected.append(self._clock.now())

        headers = {"authorization": f"Bearer {call.key}"} if call.key else {}
        path, body = _PATHS[self._settings.endpoint], self._body(call)
        with _one_message(self.base_url):
            async with self._http.stream(
                "POST", path, json=body, headers=headers, extensions={"trace": trace}
            ) as answer:
                await self._require_success(answer)
                yield Opened(self._clock.now(), max(connected, default=None), answer.status_code)
                async with aclosing(self._pieces(answer)) as pieces:
                    async for piece in pieces:
                        yield piece

    def describe(self) -> dict[str, object]:
        """Address, model and end point."""
        return {"kind": "http", "url": self.base_url, "model": self._model, "endpoint": self._settings.endpoint}

    async def counters(self) -> dict[str, float]:
        """Counters of `/metrics`, in Headway's or vLLM's spelling, where there is such a page."""
        try:
            answer = await self._http.get("/metrics", timeout=CONNECT_TIMEOUT_S)
        except httpx.HTTPError:
            return {}
        return read_counters(answer.text) if answer.is_success else {}

    def steps(self, start_s: float, /) -> list[StepSample]:  # noqa: ARG002  # the protocol's; a server tells none
        """None: no server tells its steps."""
        return []

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def _body(self, call: Call) -> dict[str, Any]:
        settings = self._settings
        body: dict[str, Any] = {"model": self._model, "max_tokens": call.num_output, "stream": True}
        body["temperature"] = settings.temperature
        if settings.endpoint == "chat":
            assert isinstance(call.prompt, str), "a chat is made of texts"
            body["messages"] = [{"role": "user", "content": call.prompt}]
        else:
            body["prompt"] = call.prompt if isinstance(call.prompt, str) else list(call.prompt)
        if settings.reports_usage:
            body["stream_options"] = {"include_usage": True}
        if settings.fixed_length:
            body |= {"ignore_eos": True, "min_tokens": call.num_output}
        if settings.priorities:
            body["priority"] = call.priority
        return body | dict(settings.fields)

    async def _require_success(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if answer.is_success:
            if not answer.headers.get("content-type", "text/event-stream").startswith("text/event-stream"):
                raise Broken("the server answered at once instead of streaming", status=status)
            return
        await answer.aread()
        if status in REFUSALS:
            wait_s = retry_after(answer.headers.get("retry-after", ""))
            raise Refused(_refusal(answer), status=status, retry_after_s=wait_s)
        kind = Unauthorized if status in (401, 403) else Broken
        raise kind(_refusal(answer), status=status)

    async def _pieces(self, answer: httpx.Response) -> AsyncGenerator[Piece, None]:
        """The chunks of an answer, then its end. Raises `Broken` for one that is not whole."""
        closing = Closing(at_s=0.0)
        is_done = False
        async with aclosing(self._events(answer)) as events:
            async for at_s, data in events:
                if data == DONE:
                    is_done = True
                    continue
                said = read_event(data)
                _take_notes(closing, said)
                if said.text or said.num_tokens:
                    yield Chunk(at_s, said.text, said.num_tokens)
        if not is_done and not closing.finish_reason:
            raise Broken("the server closed the stream before the answer was whole", status=answer.status_code)
        closing.at_s = self._clock.now()
        yield closing

    async def _events(self, answer: httpx.Response) -> AsyncGenerator[tuple[float, str], None]:
        """(time, data) of every event. After the terminator the body gets a few seconds to end."""
        parser = EventParser()
        chunks = answer.aiter_raw()
        limit_s: float | None = None
        try:
            while True:
                async with asyncio.timeout(limit_s):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    break
                at_s = self._clock.now()
                for data in parser.feed(chunk):
                    limit_s = DRAIN_TIMEOUT_S if data == DONE else limit_s
                    yield at_s, data
        except TimeoutError:
            return
        for data in parser.finish():
            yield self._clock.now(), data


def retry_after(text: str) -> float | None:
    """Seconds of a Retry-After header: a number, or a date. None for what is neither."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


@contextmanager
def _one_message(url: str) -> Iterator[None]:
    """Trouble of the transport as one of ours, in words for a user."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        detail = str(error) or f"no connection within {CONNECT_TIMEOUT_S:g} s"
        raise Unreachable(f"no server answers at {url} ({detail})") from None
    except httpx.TimeoutException:
        raise Broken("the server was silent for longer than the request's time-out") from None
    except httpx.TransportError as error:
        raise Broken(f"the connection broke: {str(error) or type(error).__name__}") from None


def _take_notes(closing: Closing, said: Said) -> None:
    closing.finish_reason = said.finish_reason or closing.finish_reason
    if said.usage is not None:
        closing.num_prompt = _whole(said.usage.get("prompt_tokens"))
        closing.num_output = _whole(said.usage.get("completion_tokens"))
        details = said.usage.get("prompt_tokens_details")
        closing.num_cached = _whole(details.get("cached_tokens")) if isinstance(details, dict) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _refusal(answer: httpx.Response) -> str:
    try:
        message = message_of(answer.json())
    except ValueError:
        message = answer.text[:200] or answer.reason_phrase
    hint = "; give the server's key with --api-key or HEADWAY_API_KEY" if answer.status_code == 401 else ""
    return f"the server answered with status {answer.status_code}: {message}{hint}"
