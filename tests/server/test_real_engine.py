"""The server on the real engine: scheduler, loop and texts, over a device that only tells the time or a tiny model."""

import asyncio
import json

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.engine import AsyncLLM
from headway.errors import ExecutorFault
from headway.server import ServerConfig, create_app
from tests.support import sse
from tests.support.engines import Faulty, Gate, simulated_engine
from tests.support.live_server import live
from tests.support.tiny_model import write_tiny_gguf


def over(llm, **settings):
    """A client of an application around `llm`, without a port."""
    app = create_app(llm, ServerConfig(**settings))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server", timeout=60)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A server around the reference executor on a tiny random model."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    with live(AsyncLLM(str(path), num_blocks=200)) as server:
        yield server


def post(server, path="/v1/completions", **body):
    answer = httpx.post(server.url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return sse.events(answer.text) if body.get("stream") else answer.json()


GREEDY = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24, "ignore_eos": True}


@pytest.mark.server
def test_streamed_text_is_the_whole_text(tiny):
    """PUBLIC_ISSUES 6.1, 6.11, 6.15: random bytes from a random model: chunks are whole characters and add up."""
    for fields in ({}, {"n": 3, "temperature": 1, "seed": 7}, {"prompt": ["a", "b c", "d"]}, {"echo": True}):
        whole = post(tiny, **GREEDY | fields)
        texts, finished = sse.joined(post(tiny, **GREEDY | fields, stream=True))
        assert texts == {choice["index"]: choice["text"] for choice in whole["choices"]}
        assert set(finished.values()) == {"length"}
        assert whole["usage"]["completion_tokens"] == 24 * len(whole["choices"])


@pytest.mark.server
def test_logprobs_of_a_real_model(tiny):
    """PUBLIC_ISSUES 6.7, 6.18: one entry per token; bytes give the text; greedy takes the likeliest."""
    answer = post(
        tiny,
        "/v1/chat/completions",
        messages=[{"role": "user", "content": "Hi"}],
        logprobs=True,
        top_logprobs=2,
        max_tokens=12,
        temperature=0,
    )
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    assert all(entry["logprob"] == entry["top_logprobs"][0]["logprob"] for entry in content)
    assert answer["choices"][0]["message"]["content"]


@pytest.mark.server
def test_scoring_a_prompt(tiny):
    """PUBLIC_ISSUES 9.8, 4.1: echo, logprobs and max_tokens 0 score a prompt, the same whether it is cached or not."""
    body = {"prompt": "the hello " * 20, "echo": True, "max_tokens": 0, "logprobs": 1}
    first, second = (post(tiny, **body)["choices"][0] for _ in range(2))
    assert first["text"] == body["prompt"]
    assert first["logprobs"]["token_logprobs"][0] is None
    assert all(value <= 0 for value in first["logprobs"]["token_logprobs"][1:])
    assert len(first["logprobs"]["tokens"]) == post(tiny, **body)["usage"]["prompt_tokens"]
    assert first["logprobs"]["token_logprobs"] == pytest.approx(second["logprobs"]["token_logprobs"], abs=1e-4)


@pytest.mark.server
def test_nothing_of_a_stop_string_leaks(tiny):
    """PUBLIC_ISSUES 6.4, 6.6: for stops cut anywhere out of the greedy text, stream and whole end just before it."""
    text = post(tiny, **GREEDY)["choices"][0]["text"]
    for start in range(1, len(text) - 3, 5):
        stop = text[start : start + 3]
        expected = text[: text.index(stop)]
        choice = post(tiny, **GREEDY, stop=[stop, "\x00never"])["choices"][0]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (expected, "stop", stop)
        assert sse.joined(post(tiny, **GREEDY, stop=stop, stream=True)) == ({0: expected}, {0: "stop"})


@pytest.mark.server
def test_cached_tokens_are_reported(tiny):
    """The second time a long prompt comes, most of it is found, and usage says how much."""
    body = GREEDY | {"prompt": "a quick brown fox " * 10}
    post(tiny, **body)
    usage = post(tiny, **body)["usage"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
    assert post(tiny, **body, cache_salt="other")["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.server
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": [99999]}, "prompt"),
        ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"prompt": ""}, "prompt"),
        ({"min_tokens": 600, "max_tokens": 700}, None),
        ({"max_tokens": 2**31 - 1}, "max_tokens"),
    ],
)
def test_what_the_engine_refuses_is_a_400(tiny, fields, param):
    """PUBLIC_ISSUES 9.2, 9.3, 9.7: checks behind the API name the client's field; the next request is served."""
    answer = httpx.post(tiny.url + "/v1/completions", json=GREEDY | fields)
    assert answer.status_code == 400, answer.text
    assert param is None or answer.json()["error"]["param"] == param
    post(tiny, **GREEDY | {"max_tokens": 1})


@pytest.mark.server
def test_blocks_come_back_when_clients_leave():
    """PUBLIC_ISSUES 1.1, 1.6: a connection that closes in mid-stream frees every block of all its choices."""
    gates = []
    llm = AsyncLLM(engine=simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0]))
    with live(llm) as server:
        body = json.dumps({"prompt": [5] * 20, "n": 4, "max_tokens": 100, "stream": True}).encode()
        with server.open_socket() as sock:
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            gates[0].let_through(4)
            while b"data: " not in sock.recv(10_000):
                pass
        gates[0].open_for_good()
        server.until(lambda: llm.stats().num_running + llm.stats().num_waiting == 0)
        assert llm.stats().num_free_blocks == 64
        assert httpx.get(f"{server.url}/load").json()["server_load"] == 0


async def test_probes_do_not_wait_for_a_step():
    """PUBLIC_ISSUES 8.11: while a step is under way, metrics, load and probes are answered."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0])
    async with AsyncLLM(engine=engine) as llm, over(llm) as client:
        body = {"prompt": [5, 6, 7], "max_tokens": 2}
        asking = asyncio.create_task(client.post("/v1/completions", json=body))
        await asyncio.to_thread(gates[0].launched.acquire)
        for path in ("/metrics", "/load", "/health", "/ready", "/v1/models"):
            assert (await client.get(path)).status_code == 200, path
        assert not asking.done()
        gates[0].open_for_good()
        assert (await asking).status_code == 200


async def test_a_failing_step_is_one_error_each():
    """PUBLIC_ISSUES 6.14: the same failure is a 500 when whole and an error event when streamed; the server lives."""
    plan = iter([None, None, None, ExecutorFault("device lost"), None, None, None, ExecutorFault("device lost")])
    engine = simulated_engine(wrap=lambda inner: Faulty(inner, lambda batch: next(plan, None)))
    async with AsyncLLM(engine=engine) as llm, over(llm) as client:
        body = {"prompt": [5, 6, 7], "max_tokens": 50}
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "engine_fault"
        streamed = await client.post("/v1/completions", json=body | {"stream": True})
        *chunks, last = sse.events(streamed.text)
        assert last["error"]["code"] == "engine_fault"
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
        assert (await client.post("/v1/completions", json=body)).status_code == 200


async def test_metrics_add_up_under_preemption():
    """PUBLIC_ISSUES 8.1, 8.4: one TTFT and one ending per request, no invented hits, whatever was preempted."""
    async with AsyncLLM(engine=simulated_engine(num_blocks=16, max_model_len=60)) as llm, over(llm) as client:
        bodies = [{"prompt": [5 + at % 50, *range(6, 24)], "max_tokens": 30, "n": 1 + at % 2} for at in range(20)]
        bodies = [body | {"prompt": [at + 3, *body["prompt"][1:]]} for at, body in enumerate(bodies)]
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))
        assert {answer.status_code for answer in answers} == {200}
        page = (await client.get("/metrics")).text
    samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples.setdefault(sample.name.removeprefix("headway:"), []).append(sample.value)
    assert samples["num_preemptions_total"][0] > 0
    assert samples["time_to_first_token_seconds_count"] == [20]
    assert samples["e2e_request_latency_seconds_count"] == [20]
    assert sum(samples["request_success_total"]) == 20
    assert samples["generation_tokens_total"] == [30 * 30]
    assert samples["prompt_tokens_total"] == [20 * 19]
    assert samples["prefix_cache_queries_total"] == [20 * 19]
    parts = ("request_queue_time", "request_prefill_time", "request_decode_time")
    total = sum(samples[f"{part}_seconds_sum"][0] for part in parts)
    assert total == pytest.approx(samples["e2e_request_latency_seconds_sum"][0])


async def test_draining_refuses_and_finishes():
    """What runs goes on to its end; what comes is a 503."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0])
    async with AsyncLLM(engine=engine) as llm, over(llm) as client:
        running = asyncio.create_task(client.post("/v1/completions", json={"prompt": [5], "max_tokens": 3}))
        await asyncio.to_thread(gates[0].launched.acquire, timeout=30)
        llm.begin_drain()
        assert (await client.get("/ready")).status_code == 503
        assert (await client.post("/v1/completions", json={"prompt": [5]})).status_code == 503
        gates[0].open_for_good()
        assert (await running).status_code == 200
        assert await llm.drained(10)
