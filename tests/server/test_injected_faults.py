"""What goes wrong inside hurts those it belongs to, and nobody else: the next request is served."""

import asyncio
import time
from pathlib import Path

import pytest

import headway
from headway.clock import WallClock
from headway.engine import AdmissionLimits, AsyncLLM, Guarding
from headway.obs import Recorder
from tests.support.engines import Faulty, Gate, Paced, simulated_engine

BODY = {"prompt": [5, 6, 7], "max_tokens": 12, "ignore_eos": True}


async def ends(http, num):
    """Finish reasons, or statuses of errors, of so many requests at once."""
    answers = await asyncio.gather(*(http.post("/v1/completions", json=BODY) for _ in range(num)))
    return [
        answer.json()["choices"][0]["finish_reason"] if answer.status_code == 200 else answer.status_code
        for answer in answers
    ]


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), ValueError("nonsense"), MemoryError()])
async def test_whatever_an_executor_raises_only_its_batch_fails(serve, caplog, error):
    """Also what it should not raise. Each request ends once; the log has the cause."""
    errors = iter([error])
    engine = simulated_engine(wrap=lambda inner: Faulty(inner, lambda batch: next(errors, None)))
    async with AsyncLLM(engine=engine) as llm, serve(llm) as http:
        assert set(await ends(http, 3)) <= {500, "length"}
        assert await ends(http, 3) == ["length"] * 3
        assert llm.is_alive
    assert engine.core.scheduler.kv.num_free == 64
    assert f"failed: {type(error).__name__}" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tokenizer_that_fails_ends_one_request(serve, caplog, stream):
    """Its neighbours get their whole answers, and nothing of it stays behind."""
    engine = simulated_engine()
    token_bytes, failures = engine.tokenizer.token_bytes, iter([KeyError("no such piece")])

    def failing(token_id):
        if (error := next(failures, None)) is not None:
            raise error
        return token_bytes(token_id)

    engine.tokenizer.token_bytes = failing
    async with AsyncLLM(engine=engine) as llm, serve(llm) as http:
        answers = await asyncio.gather(
            *(http.post("/v1/completions", json=BODY | {"stream": stream}) for _ in range(4))
        )
        assert sum("the engine failed" in answer.text for answer in answers) == 1
        assert sum('"finish_reason":"length"' in answer.text for answer in answers) == 3
        assert await ends(http, 1) == ["length"]
        engine.core.scheduler.check()
    assert engine.core.scheduler.kv.num_free == 64
    assert not engine.text._tracks
    assert "cannot be told as text" in caplog.text


async def test_a_tokenizer_that_fails_on_a_prompt(client, engine, caplog):
    """500 for this call, in OpenAI's shape; the log has it in full, the answer nothing of our inside."""
    encode, engine.encode = engine.encode, lambda text: 1 / 0
    answer = await client.post("/v1/completions", json={"prompt": "Hi"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "division" not in answer.text
    engine.encode = encode
    assert (await client.post("/v1/completions", json={"prompt": "Hi"})).status_code == 200
    assert "division" in caplog.text


class FullDisk:
    """A file that takes nothing."""

    def __init__(self, file):
        self._file = file

    def write(self, _):
        raise OSError(28, "No space left on device")

    def __getattr__(self, name):
        return getattr(self._file, name)


async def test_a_full_disk_ends_the_recording_and_nothing_else(serve, caplog, tmp_path):
    """Answers go on, and one line says that the recording stopped, however many lines are lost."""
    recorder = Recorder(tmp_path / "requests.jsonl")
    file = recorder._writer._file
    file._file = FullDisk(file._file)
    async with AsyncLLM(engine=simulated_engine()) as llm, serve(llm) as http:
        llm.add_listener(recorder.on_events)
        assert await ends(http, 6) == ["length"] * 6
        assert await ends(http, 6) == ["length"] * 6
    recorder.close()
    assert recorder.num_lost == 12
    stopped = [record.getMessage() for record in caplog.records if "recording stopped" in record.getMessage()]
    assert len(stopped) == 1
    assert "No space left on device" in stopped[0]


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_the_system_clock_may_jump(serve, monkeypatch, jump_s):
    """A day, either way, in the middle of requests with deadlines: nobody ends early, and no duration is strange."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(Paced(inner, 0.003))) or gates[0])
    engine.clock = engine.core.clock = WallClock()
    limits = AdmissionLimits(queue_timeout_ms=30_000, ttft_limit_ms=30_000, step_timeout_s=30.0)
    async with AsyncLLM(engine=engine, guarding=Guarding(limits=limits)) as llm, serve(llm) as http:
        running = asyncio.create_task(ends_with_deadlines(http))
        for _ in range(3):
            assert await asyncio.to_thread(gates[0].launched.acquire, timeout=30)
            gates[0].let_through()
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        gates[0].open_for_good()
        assert await running == ["length"] * 4
        assert await ends(http, 1) == ["length"]
        assert llm.is_alive
        page = (await http.get("/metrics")).text
    sums = [float(line.split()[-1]) for line in page.splitlines() if "_seconds_sum" in line]
    assert sums
    assert all(0 <= value < 600 for value in sums)


async def ends_with_deadlines(http):
    body = BODY | {"max_tokens": 40, "deadline_ms": 60_000, "ttft_deadline_ms": 30_000}
    answers = await asyncio.gather(*(http.post("/v1/completions", json=body) for _ in range(4)))
    return [answer.json()["choices"][0]["finish_reason"] for answer in answers]


def test_the_wall_clock_is_read_for_dates_alone():
    """Whatever waits or measures asks a clock that cannot be set. The list grows only for what shows a date."""
    source = Path(headway.__file__).parent
    readers = {
        str(path.relative_to(source))
        for folder in ("core", "engine", "executor", "kv", "obs", "sched", "server", "tenancy")
        for path in (source / folder).rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in ("time.time", "datetime.now", "date.today"))
    }
    assert readers == {
        "obs/spans.py",  # spans have moments that others can place
        "server/reply.py",  # `created`
        "server/served.py",
        "tenancy/editing.py",  # the day on which a key was made
        "tenancy/house.py",  # keys expire on a day
        "tenancy/usage.py",  # usage is booked by day
    }
