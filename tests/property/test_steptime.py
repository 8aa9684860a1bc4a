"""What the model of step times says stays a number, whatever steps took."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headway.sched.parts.steptime import StepLoad, StepTimeModel

LOADS = st.builds(
    lambda num_tokens, start, num_seqs: StepLoad(num_tokens, num_tokens * (start + 1), min(num_seqs, num_tokens)),
    num_tokens=st.sampled_from((1, 2, 16, 2048)),
    start=st.sampled_from((0, 100, 100_000)),
    num_seqs=st.integers(1, 256),
)
SECONDS = st.one_of(st.sampled_from((-1.0, 0.0, 1e-9, 1e-3, 1.0, 3600.0, 1e6)), st.floats(1e-6, 10.0))


@given(steps=st.lists(st.tuples(LOADS, SECONDS, st.integers(1, 20)), max_size=20))
def test_no_steps_make_a_price_negative_or_endless(steps):
    """Clocks that jump or stand still, hours in a step, nothing but prompts or but decodes, at any moment."""
    model = StepTimeModel()
    for load, seconds, times in steps:
        for _ in range(times):
            model.observe(load, seconds)
        told = [*model.coefficients, model.predict(load), model.efficient_s(0.9), model.prefill_s(64, 1000)]
        assert all(math.isfinite(value) and value >= 0.0 for value in (*told, model.context_price))
        assert model.tokens_within(0.1, load) >= 0


@given(loads=st.lists(LOADS, min_size=1, max_size=20))
def test_steps_that_took_no_time_teach_nothing(loads):
    """As where a clock ticks more slowly than steps last."""
    model = StepTimeModel()
    for load in loads:
        model.observe(load, 0.0)
    assert not model.is_ready
    assert model.predict(loads[0]) == 0.0
