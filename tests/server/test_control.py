"""Deadlines, admission and `/admin` over HTTP, on the real engine over a device that only tells the time."""

import asyncio
import json

import httpx
import pytest

from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.server import ServerConfig, create_app
from tests.support.engines import Gate, simulated_engine
from tests.support.tenants import bearer, write_tenants

BODY = {"prompt": [5, 6, 7], "max_tokens": 20, "ignore_eos": True, "temperature": 0}


class Bench:
    """A server without a port, an engine behind a gate, and a client on the same machine."""

    def __init__(self, config, limits, settings):
        gates = []
        settings = {"num_blocks": 128, **settings}
        self.engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0], **settings)
        self.gate = gates[0]
        limits = AdmissionLimits(**{"max_queued_requests": 0, **limits})
        self.llm = AsyncLLM(engine=self.engine, guarding=Guarding(limits=limits))
        transport = httpx.ASGITransport(create_app(self.llm, config))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def ask(self, headers=(), **body):
        return asyncio.create_task(self.client.post("/v1/completions", json=BODY | body, headers=dict(headers)))

    async def admin(self, method, path, status=200, **options):
        answer = await self.client.request(method, f"/admin/{path}", **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def launched(self):
        assert await asyncio.to_thread(self.gate.launched.acquire, timeout=30)


@pytest.fixture
async def bench():
    """Make one bench; keywords of `AdmissionLimits` and of the engine."""
    made = []

    async def make(limits=None, config=None, **settings):
        made.append(Bench(config or ServerConfig(), limits or {}, settings))
        made[-1].llm.start()
        return made[-1]

    yield make
    for each in made:
        each.gate.open_for_good()
        await each.llm.close()
        each.engine.core.check()
        assert each.engine.core.scheduler.kv.num_free == each.engine.limits.num_blocks


async def test_a_deadline_ends_the_answer_with_what_it_has(bench):
    """100 ms of the engine's time at 10 ms a step: some tokens, finish reason `deadline`, and their usage."""
    it = await bench()
    asking = it.ask(max_tokens=400, deadline_ms=10_000)
    await it.launched()
    it.gate.let_through(5)
    for _ in range(5):
        await it.launched()
    it.engine.clock.advance(10.0)
    it.gate.open_for_good()
    answer = (await asking).json()
    assert answer["choices"][0]["finish_reason"] == "deadline"
    assert 5 <= answer["usage"]["completion_tokens"] <= 6


async def test_a_hung_step_does_not_hold_the_answer_beyond_its_deadline(bench, monkeypatch):
    """The engine is silent; the HTTP layer ends the stream itself, with the tokens that it has seen."""
    it = await bench()
    loop = asyncio.get_running_loop()
    time = loop.time
    asking = it.ask(max_tokens=400, stream=True, stream_options={"include_usage": True}, deadline_ms=600_000)
    for _ in range(4):
        await it.launched()
        it.gate.let_through()
    await it.launched()
    for _ in range(20):  # what was said so far is on its way to the client
        await asyncio.sleep(0)
    monkeypatch.setattr(loop, "time", lambda: time() + 601.0)
    events = [json.loads(line[6:]) for line in (await asking).text.splitlines() if line.startswith("data: {")]
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert reasons[-1] == "deadline"
    assert events[-1]["usage"]["completion_tokens"] >= 1


async def test_a_deadline_before_the_first_token_is_a_503(bench):
    """Nothing was said, so the status says it all; the header counts as the field does, and the earlier one holds."""
    it = await bench()
    for headers, body in (({}, {"deadline_ms": 100}), ({"x-request-timeout-ms": "100"}, {"deadline_ms": 90_000})):
        answer = await it.ask(headers, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "deadline")
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("value", [0, -5, 1e12, "soon"])
@pytest.mark.parametrize("field", ["deadline_ms", "ttft_deadline_ms"])
async def test_a_senseless_deadline_is_a_400(bench, field, value):
    """Not positive, beyond a day, no number: refused, the field named."""
    it = await bench()
    answer = await it.ask(**{field: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon", "", "1_000"])
async def test_a_senseless_header_is_a_400(bench, value):
    """The header is checked as the fields are."""
    it = await bench()
    answer = await it.ask({"x-request-timeout-ms": value})
    assert answer.status_code == 400
    assert "timeout" in answer.json()["error"]["message"].lower()


async def test_a_full_queue_is_a_503_and_counted(bench):
    """One runs, one waits, the third is refused with `Retry-After`; the metric says why."""
    it = await bench({"max_queued_requests": 1}, max_num_seqs=1)
    first = it.ask()
    await it.launched()
    it.gate.let_through()
    await it.launched()  # admissions are known at the end of their step
    second = it.ask()
    third = await it.ask()
    assert (third.status_code, third.json()["error"]["code"]) == (503, "queue_full")
    assert int(third.headers["retry-after"]) >= 1
    it.gate.open_for_good()
    assert [(await each).status_code for each in (first, second)] == [200, 200]
    page = (await it.client.get("/metrics")).text
    assert 'headway:admission_rejections_total{reason="queue_full"} 1.0' in page
    assert 'headway:admission_rejections_total{reason="tokens"} 0.0' in page
    assert "headway:guardrail_level 0.0" in page


async def test_settings_change_while_serving(bench):
    """PATCH answers with all settings; a mistake is a 400 and changes nothing."""
    it = await bench()
    asking = it.ask()
    await it.launched()
    changing = asyncio.create_task(
        it.admin("PATCH", "config", json={"policy": "headway", "max_num_seqs": 7, "max_queued_requests": 9})
    )
    await asyncio.sleep(0.05)
    it.gate.open_for_good()
    changed = await changing
    assert (changed["policy"], changed["max_num_seqs"], changed["max_queued_requests"]) == ("headway", 7, 9)
    assert await it.admin("GET", "config") == changed
    wrong = await it.admin("PATCH", "config", 400, json={"max_num_seqs": 0, "max_queued_requests": 3})
    assert "max_num_seqs" in wrong["error"]["message"]
    assert await it.admin("GET", "config") == changed
    assert (await asking).json()["usage"]["completion_tokens"] == 20


async def test_drain_and_resume(bench):
    """While draining new requests are refused and what runs goes on; `/ready` says so."""
    it = await bench()
    running = it.ask()
    await it.launched()
    assert (await it.admin("POST", "drain"))["num_open"] == 1
    refused = await it.ask()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert (await it.client.get("/ready")).status_code == 503
    it.gate.open_for_good()
    assert (await running).status_code == 200
    await it.admin("POST", "resume")
    assert (await it.ask()).status_code == 200
    assert (await it.client.get("/ready")).status_code == 200


async def test_a_request_is_explained_and_aborted_under_its_clients_name(bench):
    """`X-Request-Id` is enough for the operator; what nobody knows is a 404."""
    it = await bench()
    asking = it.ask({"x-request-id": "mine/1"}, max_tokens=300)
    await it.launched()
    (story,) = (await it.admin("GET", "requests/mine/1"))["requests"]
    assert story["state"] in ("waiting", "running")
    assert len((await it.admin("POST", "requests/mine/1/abort"))["aborted"]) == 1
    it.gate.open_for_good()
    assert (await asking).json()["choices"][0]["finish_reason"] == "abort"
    (story,) = (await it.admin("GET", "requests/mine/1"))["requests"]
    assert (story["state"], story["finish_reason"]) == ("finished", "abort")
    assert (await it.admin("GET", "steps"))["steps"]
    await it.admin("GET", "requests/nobody", 404)
    await it.admin("POST", "requests/mine/1/abort", 404)


async def test_the_cache_is_reset(bench):
    """The number of blocks that were forgotten is told."""
    it = await bench()
    it.gate.open_for_good()
    await it.ask(prompt=[5] * 40)
    assert (await it.admin("POST", "cache/reset"))["num_blocks"] > 0
    assert (await it.admin("POST", "cache/reset"))["num_blocks"] == 0


ADMIN = [
    ("GET", "config"),
    ("PATCH", "config"),
    ("POST", "drain"),
    ("POST", "resume"),
    ("POST", "cache/reset"),
    ("GET", "requests/x"),
    ("POST", "requests/x/abort"),
    ("GET", "steps"),
]


async def test_management_needs_an_admin_wherever_a_key_exists(bench):
    """With keys: 401 without one, 403 with an ordinary one. Without any key: on loopback alone."""
    it = await bench(config=ServerConfig(api_keys=("k",), admin_keys=("a",)))
    for method, path in ADMIN:
        await it.admin(method, path, 401)
        await it.admin(method, path, 403, headers={"authorization": "Bearer k"})
    await it.admin("GET", "config", headers={"authorization": "Bearer a"})
    it = await bench()
    elsewhere = httpx.ASGITransport(it.client._transport.app, client=("10.0.0.9", 1))
    async with httpx.AsyncClient(transport=elsewhere, base_url="http://localhost") as far:
        for method, path in ADMIN:
            assert (await far.request(method, f"/admin/{path}")).status_code == 403


async def test_one_tenant_is_drained(bench, tmp_path):
    """The other goes on; a tenant that does not exist is a 400."""
    path = write_tenants(tmp_path / "tenants.toml", {"acme": "", "tiny": "", "boss": "admin = true"})
    it = await bench(config=ServerConfig(tenants=path, usage_store=""))
    it.gate.open_for_good()
    await it.admin("POST", "drain", json={"tenant": "acme"}, headers=bearer("boss"))
    refused = await it.ask(bearer("acme"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert (await it.ask(bearer("tiny"))).status_code == 200
    await it.admin("POST", "drain", 400, json={"tenant": "nobody"}, headers=bearer("boss"))


async def test_a_hung_step_fails_the_liveness_probe(bench):
    """`/health` is 503 while a step lasts longer than its bound; 200 when it came back."""
    it = await bench({"step_timeout_s": 5.0})
    asking = it.ask()
    await it.launched()
    assert (await it.client.get("/health")).status_code == 200
    it.engine.clock.advance(6.0)
    assert (await it.client.get("/health")).status_code == 503
    assert (await it.ask()).status_code == 503
    await it.admin("PATCH", "config", 503, json={"max_num_seqs": 3})
    it.gate.open_for_good()
    await asking
    assert (await it.client.get("/health")).status_code == 200
