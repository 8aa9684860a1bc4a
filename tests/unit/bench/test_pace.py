"""A clock that keeps step with the machine's speed."""

import pytest

from headway.bench.pace import GLANCE_TOKENS, MOST_SHARE, NUM_TRIES, PERIOD_S, PacedClock, Pacemaker, on_even_time
from headway.clock import VirtualClock
from headway.core import Batch, Lane, SamplingParams, StepResult
from headway.engine import AsyncLLM, EngineConfig, build_engine, with_policy
from headway.errors import BadSetting, ExecutorFault
from headway.executor.base import Capacity
from headway.executor.finished import Finished
from tests.support.tiny_model import write_tiny_gguf


class Machine:
    """An executor whose steps take a millisecond a token at full speed; every third one has a hiccup."""

    def __init__(self):
        self.time = VirtualClock(5.0)
        self.speed = 1.0
        self.num_steps = 0
        self.blocks = set()

    def capacity(self):
        return Capacity(num_blocks=8, block_size=4)

    def launch(self, batch):
        (lane,) = batch.lanes
        self.num_steps += 1
        self.blocks |= set(lane.block_table)
        hiccup_s = 0.1 if self.num_steps % NUM_TRIES == 0 and len(lane.token_ids) == GLANCE_TOKENS else 0.0
        self.time.advance(len(lane.token_ids) * 1e-3 / self.speed + hiccup_s)
        return Finished(StepResult())


def seconds(maker, num_tokens):
    """What a step takes by the paced clock."""
    begin_s = maker.clock.now()
    maker.launch(Batch(step=1, lanes=[Lane("a", [0] * num_tokens, 0, [1])]))
    return maker.clock.now() - begin_s


def test_a_step_takes_what_it_took_whatever_the_machine_does_meanwhile():
    """At half and at twice the speed, after some seconds; the looks themselves take no time and no other's blocks."""
    machine = Machine()
    maker = Pacemaker(machine, machine.time, block_ids=range(4, 8))
    maker.keep()
    assert maker.usual_s == pytest.approx(GLANCE_TOKENS * 1e-3)
    machine.blocks.clear()
    assert seconds(maker, 2000) == pytest.approx(2.0)
    for speed in (0.5, 2.0, 1.0):
        machine.speed = speed
        for _ in range(200):
            seconds(maker, 500)
        assert seconds(maker, 500) == pytest.approx(0.5, rel=0.05)
        assert maker.clock.pace == pytest.approx(speed, rel=0.05)
    assert machine.blocks == {1, 4, 5, 6, 7}


def test_a_look_is_taken_once_in_a_period():
    """However many steps there are."""
    machine = Machine()
    maker = Pacemaker(machine, machine.time, block_ids=range(4, 8))
    maker.keep()
    before = machine.num_steps
    for _ in range(100):
        seconds(maker, 100)
    num_looks = (machine.num_steps - before - 100) / NUM_TRIES
    assert num_looks == pytest.approx(10.0 / PERIOD_S, abs=2)


def test_looks_at_a_slow_machine_are_rare():
    """Where one takes seconds, they still take a fifth of the time at most."""
    machine = Machine()
    machine.speed = 0.01
    maker = Pacemaker(machine, machine.time, block_ids=range(4, 8))
    maker.keep()
    begin_s, before, num_own = machine.time.now(), machine.num_steps, 200
    for _ in range(num_own):
        seconds(maker, 10)
    num_looked = machine.num_steps - before - num_own
    look_s = machine.time.now() - begin_s - num_own * 10 * 1e-3 / machine.speed
    assert num_looked >= 10 * NUM_TRIES
    assert look_s / (machine.time.now() - begin_s) == pytest.approx(MOST_SHARE, rel=0.1)


def test_the_speed_is_held_against_that_of_another_day():
    """A contest that goes on where it was interrupted goes on at that speed."""
    machine = Machine()
    maker = Pacemaker(machine, machine.time, block_ids=range(4, 8))
    maker.keep(0.032)
    assert maker.usual_s == 0.032
    assert seconds(maker, 100) == pytest.approx(0.2)


def test_a_slow_moment_at_the_beginning_is_not_what_is_usual():
    """What was measured in seconds of that moment is told in seconds of what the machine did after it."""
    machine = Machine()
    machine.speed = 0.5
    maker = Pacemaker(machine, machine.time, block_ids=range(4, 8))
    maker.keep()
    machine.speed = 1.0
    for _ in range(100):
        seconds(maker, 500)
    assert seconds(maker, 500) == pytest.approx(1.0, rel=0.05)
    assert maker.settle() == pytest.approx(2.0)
    assert seconds(maker, 500) == pytest.approx(0.5, rel=0.05)


def test_the_clock_never_goes_back_and_counts_how_long_it_ran():
    """Faster, slower, standing still."""
    time = VirtualClock(100.0)
    clock = PacedClock(time)
    seen = [clock.now()]
    for pace, passed_s in ((2.0, 3.0), (0.0, 10.0), (0.5, 4.0), (1.0, 0.0)):
        clock.go_on_at(pace)
        time.advance(passed_s)
        seen.append(clock.now())
    assert seen == [0.0, 6.0, 6.0, 8.0, 8.0]
    assert clock.ran_s == 7.0


def test_a_look_that_fails_does_not_stop_the_clock():
    """The step fails, as an executor's do; whoever waits for a moment on the clock waits no longer for that."""
    machine = Machine()
    maker = Pacemaker(machine, machine.time, block_ids=range(4, 8))
    maker.keep()
    machine.time.advance(2 * PERIOD_S)
    machine.launch = lambda batch: Finished(ExecutorFault("broken"))
    with pytest.raises(ExecutorFault, match="broken"):
        maker.launch(Batch(step=1, lanes=[Lane("a", [0], 0, [1])]))
    assert maker.clock.pace > 0.0


@pytest.mark.parametrize("executor", ["reference", pytest.param("native", marks=pytest.mark.native)])
async def test_looks_before_every_step_leave_answers_as_they_are(tmp_path, monkeypatch, executor):
    """Of requests that share steps, with prompts in pieces, a prefix that both have, and memory that runs short."""
    write_tiny_gguf(tmp_path / "tiny.gguf")
    config = EngineConfig(
        model=str(tmp_path / "tiny.gguf"), executor=executor, num_blocks=16, block_size=4, max_num_batched_tokens=8
    )
    monkeypatch.setattr("headway.bench.pace.PERIOD_S", 0.0)
    monkeypatch.setattr("headway.bench.pace.MOST_SHARE", 1.0)

    async def answers(engine):
        async with AsyncLLM(engine=with_policy(engine, config)) as llm:
            params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
            asked = [llm.submit([5, 6, 7, 8, 9, 10, 11, 12, 20 + k], params) for k in range(4)]
            return [[token async for delta in stream for token in delta.token_ids] for stream in asked]

    plain = await answers(build_engine(config))
    engine, maker = on_even_time(build_engine(config))
    maker.keep()
    assert await answers(engine) == plain
    assert len(maker._seen_s) > 12


def test_the_looks_have_blocks_of_their_own(tmp_path):
    """Taken from the pool that policies see; a pool of no more than that is refused."""
    write_tiny_gguf(tmp_path / "tiny.gguf")

    def build(num_blocks):
        return build_engine(
            EngineConfig(model=str(tmp_path / "tiny.gguf"), executor="reference", num_blocks=num_blocks, block_size=4)
        )

    engine, maker = on_even_time(build(10))
    assert engine.limits.num_blocks == 6
    assert engine.limits.max_model_len == 24
    maker.keep()
    assert maker.usual_s > 0.0
    with pytest.raises(BadSetting, match="4 of them are needed to follow"):
        on_even_time(build(4))
