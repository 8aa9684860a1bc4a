"""Totals that the log line divides by each other are counted at the same moment."""

from collections import Counter

from headway.core import SamplingParams
from headway.engine.door import Extras
from headway.engine.tally import Tally
from tests.support.engines import simulated_engine


def test_a_prompt_counts_when_it_is_admitted_as_its_hits_do():
    """Who waits, or leaves while it waits, is no prompt yet; each one let in counts once, so hits are a share of it."""
    engine = simulated_engine(num_blocks=9, max_model_len=36, max_num_seqs=1)
    core, tally = engine.core, Tally()
    core.listen(tally.on_events)

    def shares():
        stats = tally.stats(core, Counter())
        return stats.num_prompt_tokens, stats.num_cached_tokens

    for name in "abc":
        sampling = SamplingParams(max_tokens=4, temperature=0.0)
        core.submit(engine.door.request(name, list(range(3, 15)), sampling, 0.0, Extras()))
    core.step()
    core.abort("c")
    assert shares() == (12, 0)
    while core.has_work:
        core.step()
    num_prompt, num_cached = shares()
    assert num_prompt == 24
    assert 0 < num_cached < 12


def test_a_prompt_that_comes_back_from_a_preemption_is_not_counted_again():
    """Memory for one of four: whoever loses its place is computed again, and is no new prompt."""
    engine = simulated_engine(num_blocks=9, max_model_len=36, policy="vllm")
    core, tally = engine.core, Tally()
    core.listen(tally.on_events)
    for name in "abcd":
        sampling = SamplingParams(max_tokens=20, temperature=0.0, n=1 + (name == "a"))
        core.submit(engine.door.request(name, [ord(name) - 90 + at for at in range(8)], sampling, 0.0, Extras()))
    while core.has_work:
        core.step()
    stats = tally.stats(core, Counter())
    assert stats.num_preemptions > 0
    assert stats.num_prompt_tokens == 32
