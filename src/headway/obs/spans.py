"""OpenTelemetry spans of requests: what a client waited for, in the trace that its call belongs to.

The only module that knows OpenTelemetry, which is an extra: it is imported only where traces are asked for.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headway.core import (
    Admitted,
    Arrived,
    Event,
    Finished,
    FinishReason,
    Preempted,
    Rejected,
    Request,
    Resumed,
    TokenEmitted,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Life:
    """When what happened to a request, seconds on the engine's clock. `absences` are (from, to, method)."""

    request: Request
    admitted_s: float | None = None
    first_s: float | None = None
    away: dict[str, tuple[float, str]] = field(default_factory=dict)
    absences: list[tuple[float, float, str]] = field(default_factory=list)
    end: Finished | Rejected | None = None


class RequestSpans:
    """Makes a span of each request that ended, with children `queue`, `prefill`, `decode` and `preempted`.

    A listener for the core's events. Spans are made in a thread of their own: the engine only notes moments. `now` is
    the engine's clock. `shut_down` is called at the end, to send what is left.
    """

    def __init__(
        self, tracer: Tracer, model: str, now: Callable[[], float], *, shut_down: Callable[[], object] | None = None
    ) -> None:
        self._tracer, self._model, self._now, self._shut_down = tracer, model, now, shut_down
        self._lives: dict[str, _Life] = {}
        self._ended: queue.SimpleQueue[_Life | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="headway-spans", daemon=True)
        self._thread.start()

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow what happens; called in the engine's thread."""
        for event in events:
            match event:
                case TokenEmitted(request_id=name, at_s=at_s):
                    if (life := self._lives.get(name)) is not None and life.first_s is None:
                        life.first_s = at_s
                case Arrived(request, _):
                    self._lives[request.id] = _Life(request)
                case Admitted(request_id=name) | Preempted(request_id=name) | Resumed(request_id=name):
                    if (life := self._lives.get(name)) is not None:
                        _move(life, event)
                case Finished(request=request) | Rejected(request=request):
                    if (life := self._lives.pop(request.id, None)) is not None:
                        life.end = event
                        self._ended.put(life)
                case _:
                    pass

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is left, for at most `timeout_s` seconds: a collector that does not answer holds nobody up."""
        ends_s = time.monotonic() + timeout_s
        self._ended.put(None)
        self._thread.join(timeout_s)
        if self._shut_down is None:
            return
        sender = threading.Thread(target=self._shut_down, name="headway-last-spans", daemon=True)
        sender.start()
        sender.join(max(0.0, ends_s - time.monotonic()))
        if sender.is_alive():
            log.warning("traces of the last requests are lost: the collector has not taken them in %g s", timeout_s)

    def _work(self) -> None:
        while (life := self._ended.get()) is not None:
            try:
                self._tell(life)
            except Exception:
                log.exception("request %s: its spans are lost", life.request.id)

    def _tell(self, life: _Life) -> None:
        request, end = life.request, life.end
        assert end is not None, "only requests that ended are told"
        # The wall clock may be set at any time: what counts is what it says now.
        zero_ns = time.time_ns() - round(self._now() * 1e9)

        def at_ns(moment_s: float) -> int:
            return zero_ns + round(moment_s * 1e9)

        caller = TraceContextTextMapPropagator().extract({"traceparent": request.traceparent})
        kind = _operation(request)
        whole = self._tracer.start_span(
            f"{kind} {self._model}",
            caller,
            SpanKind.SERVER,
            _attributes(life, end) | {"gen_ai.operation.name": kind, "gen_ai.request.model": self._model},
            start_time=at_ns(request.arrival_s),
        )
        inside = set_span_in_context(whole)
        for name, from_s, to_s, attributes in _phases(life, end.at_s):
            span = self._tracer.start_span(name, inside, attributes=attributes, start_time=at_ns(from_s))
            span.end(at_ns(to_s))
        if isinstance(end, Rejected):
            whole.set_status(Status(StatusCode.ERROR, end.reason))
        elif end.reason is FinishReason.ERROR:
            whole.set_status(Status(StatusCode.ERROR, "a step of this request failed"))
        whole.end(at_ns(end.at_s))


class Seldom(logging.Filter):
    """Lets one line a minute through, and with it how many it kept back: each try to reach a collector writes one."""

    PERIOD_S = 60.0

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now, self._next_s, self._num_kept = now, -math.inf, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        now_s = self._now()
        if now_s < self._next_s:
            self._num_kept += 1
            return False
        kept = f" ({self._num_kept} lines about it were left out since the last)" if self._num_kept else ""
        record.msg, record.args = f"traces: {record.getMessage()[:300]}{kept}", ()
        self._next_s, self._num_kept = now_s + self.PERIOD_S, 0
        return True


def otlp_spans(endpoint: str, model: str, now: Callable[[], float]) -> RequestSpans:
    """Spans that go to an OTLP collector over HTTP, in batches. Until they are closed, its lines are few."""
    lines, seldom = logging.getLogger(OTLPSpanExporter.__module__), Seldom()
    lines.addFilter(seldom)
    provider = TracerProvider(
        resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "headway")}),
        shutdown_on_exit=False,  # it would wait half a minute for who does not answer
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))

    def shut_down() -> None:
        try:
            provider.shutdown()
        finally:
            lines.removeFilter(seldom)

    return RequestSpans(provider.get_tracer("headway"), model, now, shut_down=shut_down)


def _move(life: _Life, event: Admitted | Preempted | Resumed) -> None:
    """Onto the device, or off it."""
    if isinstance(event, Preempted):
        life.away[event.seq_id] = event.at_s, event.method.value
        return
    if life.admitted_s is None:
        life.admitted_s = event.at_s
    if (gone := life.away.pop(event.seq_id, None)) is not None:
        life.absences.append((gone[0], event.at_s, gone[1]))


def _phases(life: _Life, end_s: float) -> list[tuple[str, float, float, dict[str, Any]]]:
    """Children of a request's span: name, from, to, attributes."""
    begun_s, first_s = life.admitted_s, life.first_s
    phases: list[tuple[str, float, float, dict[str, Any]]] = [
        ("queue", life.request.arrival_s, end_s if begun_s is None else begun_s, {})
    ]
    if begun_s is not None:
        phases.append(("prefill", begun_s, end_s if first_s is None else first_s, {}))
    if first_s is not None:
        phases.append(("decode", first_s, end_s, {}))
    absences = [*life.absences, *((from_s, end_s, method) for from_s, method in life.away.values())]
    return phases + [
        ("preempted", from_s, to_s, {"headway.preemption.method": method}) for from_s, to_s, method in absences
    ]


def _attributes(life: _Life, end: Finished | Rejected) -> dict[str, Any]:
    """OpenTelemetry's words for generative models, and ours where it has none. Neither prompt nor answer."""
    request = life.request
    found: dict[str, Any] = {
        "gen_ai.provider.name": "headway",
        "gen_ai.response.id": request.id,
        "gen_ai.request.max_tokens": request.max_output,
        "gen_ai.request.temperature": request.params.temperature,
        "gen_ai.request.top_p": request.params.top_p,
        "gen_ai.request.choice.count": request.params.n,
        "gen_ai.usage.input_tokens": request.num_prompt,
        "headway.tenant": request.tenant,
        "headway.tier": request.tier.name.lower(),
    }
    if isinstance(end, Rejected):
        return found | {"error.type": str(end.cause)}
    found |= {
        "gen_ai.usage.output_tokens": end.num_output,
        "gen_ai.usage.cache_read.input_tokens": end.num_cached,
        "gen_ai.response.finish_reasons": [str(end.reason)],
    }
    if life.first_s is not None:
        found["gen_ai.latency.time_to_first_token"] = life.first_s - request.arrival_s
    return found | ({"error.type": "step_failed"} if end.reason is FinishReason.ERROR else {})


def _operation(request: Request) -> str:
    """What was asked for; the server begins a request's id with the kind of its call."""
    return "chat" if request.id.startswith("chat-") else "text_completion"
