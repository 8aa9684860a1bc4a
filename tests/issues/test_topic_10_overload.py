"""Overload and limits: refusals come when they must, and only then, and everything that was taken is given back."""

import asyncio
import logging
import threading
import time

import httpx
import pytest

from headway.core import Request, SamplingParams
from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.engine.admission import Admission
from headway.engine.guardrails import Guardrails, GuardSettings
from headway.errors import Overloaded
from headway.server import ServerConfig, create_app
from headway.server.serve import Leave
from tests.support.engines import Gate, simulated_engine
from tests.support.fake_engine import FakeEngine
from tests.support.tenants import bearer, write_tenants

BODY = {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}


def client_of(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def an_admission(**limits):
    limits = AdmissionLimits(**{"max_queued_requests": 0, **limits})
    return Admission(limits, 100_000, Guardrails(GuardSettings(), 100))


def num_refused(admission, requests):
    num = 0
    for request in requests:
        try:
            admission.admit(request, 0.0)
        except Overloaded:
            num += 1
    return num


def ask(name, num_prompt=10, n=1):
    return Request(id=name, prompt_ids=(1,) * num_prompt, max_output=4, params=SamplingParams(n=n))


def test_four_choices_take_four_places():
    """10.1: a bound of eight is full after two requests of four choices; one more, of any size, is refused."""
    admission = an_admission(max_queued_requests=8)
    assert num_refused(admission, [ask("a", n=4), ask("b", n=4)]) == 0
    assert num_refused(admission, [ask("c")]) == 1


def test_long_prompts_meet_the_bound_of_tokens_first():
    """10.1, 10.16: of twenty huge prompts those beyond the bound are refused; five hundred tiny ones pass at once."""
    limits = {"max_queued_requests": 1000, "max_queued_tokens": 20_000}
    assert num_refused(an_admission(**limits), [ask(f"tiny{at}") for at in range(500)]) == 0
    assert num_refused(an_admission(**limits), [ask(f"huge{at}", 2000) for at in range(20)]) == 10


async def test_exactly_those_beyond_running_and_waiting_are_refused():
    """10.2: two run and five may wait; of fifteen that come then ten are refused, and nothing is hidden elsewhere."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0], max_num_seqs=2)
    guarding = Guarding(limits=AdmissionLimits(max_queued_requests=5))
    async with AsyncLLM(engine=engine, guarding=guarding) as llm, client_of(create_app(llm, ServerConfig())) as http:

        async def post(**more):
            return (await http.post("/v1/completions", json=BODY | more)).status_code

        running = [asyncio.create_task(post(max_tokens=200)) for _ in range(2)]
        assert await asyncio.to_thread(gates[0].launched.acquire, timeout=30)
        while llm.control.admission.backlog.queued().num_requests or llm.stats().num_running < 2:
            gates[0].let_through()
            assert await asyncio.to_thread(gates[0].launched.acquire, timeout=30)
        burst = {asyncio.create_task(post()) for _ in range(15)}
        refused = set()
        while len(refused) < 10:
            done, burst = await asyncio.wait(burst, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
        assert len(burst) == 5
        gates[0].open_for_good()
        codes = await asyncio.gather(*running, *burst)
    assert {task.result() for task in refused} == {503}
    assert codes == [200] * 7


@pytest.mark.parametrize("stream", [False, True])
async def test_after_retry_after_a_request_passes_and_before_it_none(tmp_path, stream):
    """10.4: by the clock of the tenant's bucket, for requests and for tokens, streamed or not."""
    now = [0.0]
    for limit in ("requests_per_minute = 6\nrequest_burst = 1", "tokens_per_minute = 60\ntoken_burst = 60"):
        path = write_tenants(tmp_path / "tenants.toml", {"a": limit})
        app = create_app(FakeEngine(), ServerConfig(tenants=path))
        async with client_of(app) as http:
            gate = _house_of(app).gate
            gate._now = lambda: now[0]
            body = {"prompt": "Hi", "max_tokens": 50, "stream": stream}

            async def status(http=http, body=body):
                answer = await http.post("/v1/completions", json=body, headers=bearer("a"))
                return answer.status_code, answer.headers.get("retry-after")

            while (found := await status())[0] == 200:
                pass
            code, wait = found
            assert code == 429
            now[0] += int(wait) - 1.1
            assert (await status())[0] == 429
            now[0] += 1.1
            assert (await status())[0] == 200
            now[0] += 1000.0


async def test_a_slow_log_holds_no_place(tmp_path, caplog):
    """10.6: one at a time, one after another, beside a log that takes its time: none is refused."""

    class Slow(logging.Handler):
        def emit(self, record):
            time.sleep(0.001)

    path = write_tenants(tmp_path / "tenants.toml", {"a": "max_concurrent = 1"})
    logger, handler = logging.getLogger("headway"), Slow()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "headway"):
            async with AsyncLLM(engine=simulated_engine()) as llm:
                app = create_app(llm, ServerConfig(tenants=path, access_log=True))
                async with client_of(app) as http:
                    codes = [
                        (await http.post("/v1/completions", json=BODY, headers=bearer("a"))).status_code
                        for _ in range(60)
                    ]
    finally:
        logger.removeHandler(handler)
    assert codes == [200] * 60


async def test_for_a_while_only_readiness_says_that_the_server_leaves(drain):
    """10.10: after the signal `/ready` is 503 at once; requests are taken until the delay is over, then refused."""
    engine, config = FakeEngine(), ServerConfig(drain_delay_s=drain.delay_s)
    app = create_app(engine, config)
    leave = Leave(engine, config, app)
    async with client_of(app) as http:
        assert (await http.get("/ready")).status_code == 200
        leave.want()
        leaving = asyncio.create_task(leave.carry_out())
        assert (await http.get("/ready")).status_code == 503
        assert (await http.post("/v1/completions", json={"prompt": "Hi"})).status_code == 200
        drain.is_over.set()
        await leaving
        assert (await http.get("/ready")).status_code == 503
        assert (await http.post("/v1/completions", json={"prompt": "Hi"})).status_code == 503
    assert engine.calls == ["begin_drain", "drained", "close"]


async def test_a_place_that_is_gone_again_puts_nobody_out():
    """10.14: there is one decision; who was let in and finds its place taken waits on, in the order of arrival."""
    gates = []
    engine = simulated_engine(
        wrap=lambda inner: gates.append(Gate(inner)) or gates[0], max_num_seqs=8, policy="headway"
    )
    async with AsyncLLM(engine=engine) as llm:
        params = SamplingParams(max_tokens=6, ignore_eos=True)
        first = llm.submit([5, 6], SamplingParams(max_tokens=1), request_id="first")
        await asyncio.to_thread(gates[0].launched.acquire)  # its step waits at the gate: what comes now, comes together
        streams = [llm.submit([5, 6, at + 7], params, request_id=f"r{at}") for at in range(6)]
        send, is_sent = llm.control._send, asyncio.Event()
        llm.control._send = lambda command: (send(command), is_sent.set())
        change = asyncio.ensure_future(llm.control.change({"max_num_seqs": 1}, "a test"))
        await is_sent.wait()  # a task of a task makes it: it is not on its way before that
        ended = []

        async def read(stream):
            reasons = [delta.finish_reason async for delta in stream]
            ended.append((stream.request_id, str(reasons[-1])))

        gates[0].open_for_good()
        await asyncio.gather(change, *map(read, [first, *streams]))
    assert ended[1:] == [(f"r{at}", "length") for at in range(6)]


def _house_of(app):
    """The tenants of an application, wherever its middleware has them."""
    return next(each.kwargs["house"] for each in app.user_middleware if "house" in each.kwargs)


async def test_a_long_text_is_tokenized_beside_the_loop_and_one_without_hope_never():
    """10.13: while the tokenizer works on 100,000 characters others are answered; 10 MB are refused by their length."""
    engine, begun, may_end = FakeEngine(max_model_len=2000), threading.Event(), threading.Event()

    def encode(text):
        begun.set()
        assert may_end.wait(30), "nobody was answered meanwhile"
        return [5] * 10

    async with client_of(create_app(engine, ServerConfig())) as http:
        engine.encode = encode
        long = asyncio.create_task(http.post("/v1/completions", json={"prompt": "long " * 4000}))
        while not begun.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.001)
        assert (await http.get("/health")).status_code == 200
        assert (await http.post("/v1/completions", json={"prompt": [5, 6]})).status_code == 200
        hopeless = await http.post("/v1/completions", json={"prompt": "x" * 10_000_000})
        assert not long.done()
        may_end.set()
        assert (await long).status_code == 200
    assert (hopeless.status_code, hopeless.json()["error"]["code"]) == (400, "context_length_exceeded")
