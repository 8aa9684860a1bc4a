"""Spans of requests: the right trace, the right moments, and words that others understand."""

import http.server
import logging
import sys
import threading

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from headway.core import (
    Admitted,
    Arrived,
    Cause,
    Finished,
    FinishReason,
    Preempted,
    PreemptMethod,
    Rejected,
    Request,
    Resumed,
    SamplingParams,
    TokenEmitted,
)
from headway.engine import AsyncLLM
from headway.obs.spans import RequestSpans, Seldom, otlp_spans
from headway.server import ServerConfig, create_app
from tests.support.engines import simulated_engine

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def make(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return lambda now=lambda: 100.0: RequestSpans(provider.get_tracer("test"), "tiny", now)


def request(**fields):
    given = {"id": "chat-x-1", "prompt_ids": (1, 2, 3), "max_output": 9, "arrival_s": 10.0, "traceparent": PARENT}
    return Request(**given | fields)


def ran(spans, asked, *events):
    spans.on_events([Arrived(asked, 10.1), *events])
    spans.close()


def seconds(span):
    """From and to, on the engine's clock where that said 100 when the span was made."""
    return (span.end_time - span.start_time) / 1e9


def test_a_request_is_a_span_with_its_phases(make, exporter):
    """Queue, prefill and decode lie end to end inside it; a preemption lies across; it continues its caller's trace."""
    name = "chat-x-1"
    ran(
        make(),
        request(params=SamplingParams(temperature=0.5), tenant="acme"),
        Admitted(name, name, 2, is_first=True, at_s=12.0),
        TokenEmitted(name, name, 0, 0, 7, 13.0),
        Preempted(name, name, PreemptMethod.SWAP, 14.0),
        Resumed(name, name, 15.5),
        TokenEmitted(name, name, 0, 1, 7, 16.0),
        Finished(request(), FinishReason.STOP, 2, 2, 17.0),
    )
    found = {span.name: span for span in exporter.get_finished_spans()}
    whole = found.pop("chat tiny")
    assert {name: seconds(span) for name, span in found.items()} == {
        "queue": pytest.approx(2.0),
        "prefill": pytest.approx(1.0),
        "decode": pytest.approx(4.0),
        "preempted": pytest.approx(1.5),
    }
    assert seconds(whole) == pytest.approx(7.0)
    assert found["queue"].start_time == whole.start_time
    assert found["decode"].end_time == whole.end_time
    assert found["preempted"].attributes["headway.preemption.method"] == "swap"
    assert {span.parent.span_id for span in found.values()} == {whole.context.span_id}
    assert f"{whole.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{whole.parent.span_id:016x}" == PARENT.split("-")[2]
    attributes = dict(whole.attributes)
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "tiny"
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (3, 2)
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.latency.time_to_first_token"] == pytest.approx(3.0)
    assert attributes["headway.tenant"] == "acme"


def test_a_request_that_came_to_nothing(make, exporter):
    """Refused while it waited: a queue and an error, and nothing that did not happen."""
    ran(make(), request(), Rejected(request(), "too late", 11.0, Cause.DEADLINE))
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert found.keys() == {"queue", "chat tiny"}
    assert found["chat tiny"].status.status_code is StatusCode.ERROR
    assert found["chat tiny"].attributes["error.type"] == "deadline"


def test_a_step_that_failed_is_an_error(make, exporter):
    """A request whose step broke in its prefill has no decode."""
    name = "chat-x-1"
    ran(
        make(),
        request(),
        Admitted(name, name, 0, is_first=True, at_s=11.0),
        Finished(request(), FinishReason.ERROR, 0, 0, 12.0),
    )
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert found.keys() == {"queue", "prefill", "chat tiny"}
    assert found["chat tiny"].status.status_code is StatusCode.ERROR


def test_without_a_caller_a_trace_begins(make, exporter):
    """No header, or one that is broken: a trace of its own."""
    ran(make(), request(traceparent=""), Finished(request(), FinishReason.ABORT, 0, 0, 12.0))
    [whole] = [span for span in exporter.get_finished_spans() if span.parent is None]
    assert whole.name == "chat tiny"


def test_the_wall_clock_may_jump(make, exporter, monkeypatch):
    """Set back by an hour in the middle of a request: its spans keep their lengths, none ends before it began."""
    spans = make()
    spans.on_events([Arrived(request(), 10.0), Admitted("chat-x-1", "chat-x-1", 0, is_first=True, at_s=12.0)])
    monkeypatch.setattr("headway.obs.spans.time.time_ns", lambda: 5 * 10**9)
    spans.on_events([Finished(request(), FinishReason.ABORT, 0, 0, 13.0)])
    spans.close()
    lengths = {span.name: seconds(span) for span in exporter.get_finished_spans()}
    assert lengths == {"queue": pytest.approx(2), "prefill": pytest.approx(1), "chat tiny": pytest.approx(3)}


@pytest.mark.parametrize(
    ("header", "is_kept"),
    [(PARENT, True), (PARENT[:-1], False), ("00-" + "0" * 32 + PARENT[35:], False), ("ff" + PARENT[2:], False)],
)
async def test_the_header_of_a_call_reaches_its_span(make, exporter, serve_llm, header, is_kept):
    """Over HTTP and through the real engine; a malformed `traceparent` begins a new trace."""
    async with AsyncLLM(engine=simulated_engine()) as llm:
        spans = make(llm.engine.clock.now)
        llm.add_listener(spans.on_events)
        async with serve_llm(llm) as http:
            answer = await http.post(
                "/v1/completions", json={"prompt": [5, 6], "max_tokens": 3}, headers={"traceparent": header}
            )
        assert answer.status_code == 200
    spans.close()
    whole = next(span for span in exporter.get_finished_spans() if span.name == "text_completion tiny")
    assert (f"{whole.context.trace_id:032x}" == PARENT.split("-")[1]) is is_kept
    assert len(exporter.get_finished_spans()) == 4


@pytest.fixture
def serve_llm():
    def make(llm):
        app = create_app(llm, ServerConfig())
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")

    return make


@pytest.mark.server
def test_spans_reach_a_collector():
    """What is left is sent when the server ends, as OTLP over HTTP; the library's logger is left as it was."""
    bodies = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever).start()
        spans = otlp_spans(f"http://127.0.0.1:{server.server_port}/v1/traces", "tiny", lambda: 100.0)
        lines = logging.getLogger(OTLPSpanExporter.__module__)
        assert [type(kept) for kept in lines.filters] == [Seldom]
        ran(spans, request(), Finished(request(), FinishReason.ABORT, 0, 0, 12.0))
        server.shutdown()
    assert lines.filters == []
    assert [path for path, _ in bodies] == ["/v1/traces"]
    assert b"gen_ai.usage.input_tokens" in bodies[0][1]


def test_a_missing_extra_is_one_line(monkeypatch, capsys):
    """Known before a model is loaded, with the way out."""
    from headway.cli.main import main

    monkeypatch.setitem(sys.modules, "headway.obs.spans", None)
    assert main(["serve", "no-such.gguf", "--port", "0", "--otlp-traces-endpoint", "http://127.0.0.1:9"]) == 2
    assert "pip install 'headway[otel]'" in capsys.readouterr().err


def test_a_collector_that_does_not_answer_holds_up_no_end(caplog):
    """The process ends in its time, and says what was lost."""
    never = threading.Event()
    RequestSpans(TracerProvider().get_tracer("test"), "tiny", lambda: 0.0, shut_down=never.wait).close(0.05)
    assert "has not taken them in 0.05 s" in caplog.text
    never.set()


def test_a_collector_that_is_away_is_told_of_once_a_minute():
    """Each try writes a line of its own; what was left out is counted."""
    now_s = 0.0
    seldom = Seldom(lambda: now_s)
    told = []
    for second in range(0, 130, 2):
        now_s = float(second)
        line = logging.LogRecord("otel", logging.WARNING, "f", 1, "%s is away" + "!" * 999, ("it",), None)
        if seldom.filter(line):
            told.append(line.getMessage())
    assert [len(text) < 400 for text in told] == [True] * 3
    assert told[0].startswith("traces: it is away")
    assert told[1].endswith("(29 lines about it were left out since the last)")
