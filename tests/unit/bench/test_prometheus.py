"""What a server tells at /metrics, as a report uses it."""

from headway.bench import Runner, RunPlan
from headway.bench.prometheus import read_counters
from headway.obs.token_ledger import Entry, TokenLedger
from headway.obs.work import WorkFigures
from tests.support.scripted import PlainCalls, ScriptedTarget, item, steady
from tests.support.virtual_loop import run_virtual

PAGE = """
# TYPE headway:token_ledger_total counter
headway:token_ledger_total{entry="useful",model_name="m",tenant="a"} 40.0
headway:token_ledger_total{entry="aborted",model_name="m",tenant="a"} 3.0
headway:token_ledger_total{entry="useful",model_name="m",tenant="b"} 2.0
headway:token_ledger_open{model_name="m",tenant="a"} 7.0
headway:tokens_computed_total{model_name="m"} 52.0
vllm:num_preemptions_total{model_name="m"} 4.0
vllm:num_requests_running{model_name="m"} 1.0
vllm:prompt_tokens_total{model_name="m"} NaN
"""


def test_counters_are_summed_and_the_ledger_is_told_by_entry():
    """Tenants are added up, entries stand apart; gauges, and what is no number, are passed over."""
    assert read_counters(PAGE) == {
        "token_ledger_useful": 42,
        "token_ledger_aborted": 3,
        "tokens_computed": 52,
        "num_preemptions": 4,
    }


def test_the_names_are_those_that_we_serve():
    """A server of ours has both families; the entries in a page are those of the books."""
    told = {family.name for family in WorkFigures(lambda: None, TokenLedger(16))._tokens()}
    assert {"headway:token_ledger", "headway:tokens_computed"} <= told
    assert {"useful", "aborted"} <= set(Entry)


def test_a_counter_that_appears_during_the_run_counts_from_nothing():
    """A ledger's entries have no line before the first token of a tenant; a run's share is all that came since."""
    pages = iter([{"tokens_computed": 10.0}, {"tokens_computed": 14.0, "token_ledger_useful": 4.0}])

    class Telling(ScriptedTarget):
        async def counters(self):
            return next(pages)

    async def measured(clock):
        target = Telling(clock, lambda *_: steady(1, first_s=0.1, gap_s=0))
        return await Runner(target, PlainCalls(), clock, RunPlan(items=lambda: [item(0, num_output=1)])).run()

    assert run_virtual(measured).server == {"tokens_computed": 4.0, "token_ledger_useful": 4.0}
