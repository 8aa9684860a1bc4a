import asyncio

from headway.engine.outputs import EngineStats
from headway.obs import TrafficLog


class Script:
    """Snapshots and times in turn."""

    def __init__(self, *stats):
        self.stats, self.at_s = list(stats), -10.0

    def load(self):
        return self.stats.pop(0)

    def now(self):
        self.at_s += 10.0
        return self.at_s


def test_rates_are_differences_over_time():
    """Totals of two snapshots, ten seconds apart, become tokens per second; hits are a share of new prompt tokens."""
    before = EngineStats(num_prompt_tokens=100, num_output_tokens=50, num_cached_tokens=10)
    after = EngineStats(
        num_prompt_tokens=300,
        num_output_tokens=150,
        num_cached_tokens=110,
        num_running=2,
        num_waiting=1,
        num_blocks=10,
        num_free_blocks=5,
    )
    script = Script(before, after)
    line = TrafficLog(script.load, script.now).line()
    assert line == "running 2, waiting 1, prompt 20.0 tok/s, output 10.0 tok/s, KV 50.0%, hits 50.0%"


def test_silence_without_traffic():
    """Nothing running and no new tokens: no line. Waiting requests alone are traffic: they may be stuck."""
    idle = EngineStats(num_prompt_tokens=5, num_output_tokens=5)
    script = Script(idle, idle, EngineStats(num_prompt_tokens=5, num_output_tokens=5, num_waiting=1))
    log = TrafficLog(script.load, script.now)
    assert log.line() == ""
    assert log.line().startswith("running 0, waiting 1")


async def test_lines_are_logged_while_it_runs(caplog):
    """The task writes to `headway.traffic`; an interval of 0 ends it at once."""
    caplog.set_level("INFO", "headway.traffic")
    busy = EngineStats(num_running=1)
    task = asyncio.create_task(TrafficLog(lambda: busy).run(0.001))
    while not caplog.records:  # noqa: ASYNC110 - a log has no event to wait for
        await asyncio.sleep(0.001)
    task.cancel()
    assert caplog.records[0].message.startswith("running 1")
    await TrafficLog(lambda: busy).run(0)
