from headway.bench.ledger import EngineWatch
from headway.core import (
    Admitted,
    FinishReason,
    Preempted,
    PreemptMethod,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
    Waste,
)


def step(number, grants, **fields):
    return StepRecord(number, float(number), grants=grants, end_s=number + 1.0, **fields)


def test_tokens_computed_again_after_a_preemption_are_counted():
    """10 tokens, dropped; the cache still holds 4: 6 of the next 8 are computed again."""
    watch = EngineWatch(8)
    watch.on_events([Admitted("a", "a", 0, is_first=True, at_s=0.0), step(0, {"a": 8})])
    watch.on_events([step(1, {"a": 1}), TokenEmitted("a", "a", 0, 0, 5, 2.0)])
    watch.on_events([step(2, {"a": 1})])
    watch.on_events([Preempted("a", "a", PreemptMethod.RECOMPUTE, 3.0)])
    watch.on_events([Admitted("a", "a", 4, is_first=False, at_s=4.0), step(4, {"a": 8})])
    totals = watch.totals()
    assert (totals["computed_tokens"], totals["recomputed_tokens"], totals["num_preemptions"]) == (18, 6, 1)


def test_a_swap_computes_nothing_again():
    """What comes back from the host tier goes on where it was."""
    watch = EngineWatch(8)
    watch.on_events([Admitted("a", "a", 0, is_first=True, at_s=0.0), step(0, {"a": 8})])
    watch.on_events([Preempted("a", "a", PreemptMethod.SWAP, 1.0)])
    watch.on_events([step(2, {"a": 1})])
    totals = watch.totals()
    assert (totals["recomputed_tokens"], totals["num_swaps"]) == (0, 1)


def test_cached_prompt_tokens_are_neither_computed_nor_computed_again():
    """A first admission that finds 6 tokens computes the others."""
    watch = EngineWatch(8)
    watch.on_events([Admitted("a", "a", 6, is_first=True, at_s=0.0), step(0, {"a": 2})])
    totals = watch.totals()
    assert (totals["computed_tokens"], totals["recomputed_tokens"], totals["prefix_cache_hits"]) == (2, 0, 6)


def test_padding_and_rows_of_ended_sequences_are_waste():
    """Static batching pays for both."""
    watch = EngineWatch(8)
    watch.on_events([step(0, {"a": 2, "b": 5}, waste=Waste(rows={"c": 1, "d": 1}, padding={"a": 3}))])
    assert watch.totals()["wasted_tokens"] == 5


def test_a_sequence_whose_id_comes_again_starts_anew():
    """An ended sequence is forgotten, even when its last grant is told after its end."""
    watch = EngineWatch(8)
    for _ in range(2):
        watch.on_events(
            [
                Admitted("a", "a", 0, is_first=True, at_s=0.0),
                SequenceFinished("a", "a", 0, FinishReason.LENGTH, 1.0),
                step(0, {"a": 8}),
            ]
        )
    assert watch.totals()["recomputed_tokens"] == 0


def test_followed_requests_have_their_times_and_others_leave_nothing():
    """Token times wait for their stream; a request nobody follows costs no memory."""
    watch = EngineWatch(8)
    life = watch.open("a")
    watch.on_events([Admitted("a", "a", 0, is_first=True, at_s=0.5), TokenEmitted("a", "a", 0, 0, 5, 1.0)])
    watch.on_events([TokenEmitted("a", "a", 0, 1, 5, 2.0), TokenEmitted("b", "b", 0, 0, 5, 2.0)])
    assert (life.scheduled_s, life.take_times(2)) == (0.5, [1.0, 2.0])
    watch.close("a")
    watch.on_events([TokenEmitted("a", "a", 0, 2, 5, 3.0)])
    assert not watch._lives


def test_steps_become_samples():
    """Prefill and decode tokens, queue sizes and the use of the pool."""
    watch = EngineWatch(10)
    watch.on_events([step(3, {"a": 1, "b": 1, "c": 30}, free_blocks=4, preempted=["d"])])
    sample = watch.steps[0]
    assert (sample.start_s, sample.duration_s, sample.num_prefill, sample.num_decode) == (3.0, 1.0, 30, 2)
    assert (sample.num_preempted, sample.kv_use) == (1, 0.6)
