"""What operators asked for most: priorities, shares, a queue before refusals, and restarts that nobody notices."""

import asyncio

import httpx
import pytest

from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.report import summarize
from headway.server import ServerConfig, create_app
from headway.server.serve import Leave
from headway.sim import CostModel, Plan, Pool, simulate
from headway.sim.plant import Plant
from headway.workload import WorkItem
from tests.support.engines import Gate, simulated_engine
from tests.support.fake_engine import FakeEngine

BODY = {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}


class Machine(CostModel):
    """10 ms for each step and 0.2 ms for each token."""

    def predict(self, load):
        return 0.01 + 0.0002 * load.num_tokens


def served(items, *, duration_s, weights=None, places=32):
    """Tokens that each tenant got within the time, prompts counted at their first token."""
    pool = Pool(
        plant=Plant(cost=Machine(), num_blocks=2000),
        plan=Plan(policy="headway", defaults={"max_num_batched_tokens": 512, "max_num_seqs": places}),
    )
    run = simulate(items, pool, weights=weights)
    tokens = {}
    for record in run.requests:
        if record.first_s is not None and record.last_s <= duration_s:
            tokens[record.tenant] = tokens.get(record.tenant, 0) + record.num_prompt + 2 * record.num_output
    return tokens, run


def backlog(tenant, num, **fields):
    given = {"num_prompt": 200, "num_output": 40, "max_output": 40, "at_s": 0.0}
    return [WorkItem(id=f"{tenant}-{at}", tenant=tenant, seed=at, **given | fields) for at in range(num)]


def test_shares_follow_weights_and_a_lone_tenant_gets_all():
    """15.3: weights of 1 and 3, both saturated: three times the tokens within 10 %; alone, as much as both together."""
    both = [*backlog("one", 90), *backlog("three", 90)]
    tokens, _ = served(both, duration_s=5.0, weights={"one": 1.0, "three": 3.0})
    assert tokens["three"] / tokens["one"] == pytest.approx(3.0, rel=0.1)
    alone, _ = served(backlog("one", 180), duration_s=5.0, weights={"one": 1.0})
    assert alone["one"] == pytest.approx(sum(tokens.values()), rel=0.05)


def test_a_high_priority_hardly_waits_and_a_low_one_still_moves():
    """15.2: sparse urgent requests among saturating ones, while there are places: P95 within two steps of idle."""
    urgent = [
        WorkItem(id=f"u{at}", num_prompt=64, num_output=8, max_output=8, at_s=0.5 + 0.5 * at, priority=-5, seed=at)
        for at in range(30)
    ]
    _, idle = served(urgent, duration_s=20.0, places=256)
    _, busy = served([*backlog("", 200, priority=5), *urgent], duration_s=20.0, places=256)
    p95 = [summarize([r.ttft_s for r in run.requests if r.id.startswith("u")], (95,)).at(95) for run in (idle, busy)]
    slow = [record for record in busy.requests if not record.id.startswith("u") and record.last_s <= 15.0]
    assert p95[1] <= p95[0] + 2 * (0.01 + 0.0002 * 512)
    assert len(slow) > 50


async def test_one_runs_five_wait_in_order_and_the_seventh_is_refused():
    """15.11: a queue before refusals."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0], max_num_seqs=1)
    guarding = Guarding(limits=AdmissionLimits(max_queued_requests=5))
    ended = []
    async with AsyncLLM(engine=engine, guarding=guarding) as llm:
        app = create_app(llm, ServerConfig())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:

            async def ask(name):
                answer = await http.post("/v1/completions", json=BODY, headers={"X-Request-Id": name})
                ended.append((name, answer.status_code))

            tasks = [asyncio.create_task(ask("0"))]
            assert await asyncio.to_thread(gates[0].launched.acquire, timeout=30)
            gates[0].let_through()
            assert await asyncio.to_thread(gates[0].launched.acquire, timeout=30)  # who runs is known at a step's end
            assert llm.stats().num_running == 1
            assert llm.control.admission.backlog.queued().num_requests == 0
            for at in range(1, 7):
                tasks.append(asyncio.create_task(ask(str(at))))
                await asyncio.sleep(0.002)
            await asyncio.wait({tasks[6]})
            gates[0].open_for_good()
            await asyncio.gather(*tasks)
    assert ended[0] == ("6", 503)
    assert ended[1:] == [(str(at), 200) for at in range(6)]


async def test_a_rolling_restart_fails_nobody(drain):
    """15.8: a client that looks at `/ready` and moves on in time never gets an error, whichever of two is restarted."""
    config = ServerConfig(drain_delay_s=drain.delay_s)
    engines = [FakeEngine(), FakeEngine()]
    apps = [create_app(engine, config) for engine in engines]
    https = [httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") for app in apps]
    codes, looks, is_over = [], [asyncio.Queue() for _ in range(4)], asyncio.Event()

    async def client(number):
        while not is_over.is_set():
            place = number % 2
            if (await https[place].get("/ready")).status_code != 200:
                place = 1 - place
            codes.append((await https[place].post("/v1/completions", json={"prompt": "Hi"})).status_code)
            looks[number].put_nowait(place)

    async def all_looked_anew():
        """A client's first answer from now on may be to a request that it decided on before."""
        for number in range(4):
            looks[number] = asyncio.Queue()
        for each in list(looks):
            for _ in range(3):
                await each.get()

    clients = [asyncio.create_task(client(number)) for number in range(4)]
    await all_looked_anew()
    leave = Leave(engines[0], config, apps[0])
    leave.want()
    leaving = asyncio.create_task(leave.carry_out())
    await all_looked_anew()
    drain.is_over.set()
    await leaving
    apps[0] = create_app(FakeEngine(), config)
    https[0] = httpx.AsyncClient(transport=httpx.ASGITransport(apps[0]), base_url="http://localhost")
    await all_looked_anew()
    is_over.set()
    await asyncio.gather(*clients)
    assert set(codes) == {200}
