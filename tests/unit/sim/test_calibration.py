"""Calibration: what is measured, what is fitted, and that the fit finds a truth that is known."""

import random
from dataclasses import replace

import pytest

from headway.core import Admitted, StepRecord, TokenEmitted
from headway.errors import BadSetting
from headway.sim import Fitted, Load, load_of
from headway.sim.calibration import Effort, Observation, calibrate, fit_steps
from headway.sim.calibration.design import batch_of, design
from headway.sim.calibration.live import StepListener
from headway.sim.calibration.nnls import solve
from tests.support.engines import simulated_engine

TRUTH = Fitted(
    rows=((1, 7e-3), (4, 8e-3), (16, 19e-3), (64, 60e-3), (256, 0.24), (1024, 0.96)),
    lane_s=2e-4,
    drawn_s=4e-4,
    context_s=1.5e-6,
    attend_s=1.2e-6,
    host_s=8e-4,
    host_lane_s=5e-5,
)


def made_up(num, seed=1):
    """Steps of the truth with 5 % of noise, and one in thirty three times as slow."""
    rng = random.Random(seed)
    for _ in range(num):
        prefills = [(rng.randint(2, 256), rng.randint(0, 500)) for _ in range(rng.choice((0, 1, 1, 2)))]
        decodes = rng.choice((0, 1, 2, 4, 8, 16, 32)) if prefills else rng.choice((1, 2, 4, 8, 16, 32))
        rows = decodes + sum(chunk for chunk, _ in prefills)
        drawn = decodes + rng.randint(0, len(prefills))
        load = Load(rows, drawn, decodes, decodes * rng.randint(10, 800), prefills)
        noise, of_host = (rng.lognormvariate(0, 0.05) * (3.0 if rng.random() < 1 / 30 else 1.0) for _ in range(2))
        host_s = (TRUTH.predict(load) - TRUTH.executor_s(load)) * of_host if rng.random() < 0.5 else None
        yield Observation(load, TRUTH.executor_s(load) * noise, host_s)


def test_the_fit_finds_a_known_truth():
    """Predictions are within 3 % of it, hiccups or not; the errors told are those of the noise."""
    fit = fit_steps(list(made_up(600)))
    for decodes, context, prefills in ((1, 50, []), (8, 4000, []), (32, 9000, [(64, 100)]), (0, 0, [(512, 0)])):
        load = Load(decodes + sum(chunk for chunk, _ in prefills), decodes, decodes, context, prefills)
        assert fit.model.predict(load) == pytest.approx(TRUTH.predict(load), rel=0.03)
    middle = fit.live_errors[len(fit.live_errors) // 2]
    assert 0.02 < middle < 0.05


def test_the_engines_own_time_is_found_under_noise_that_is_larger():
    """Host time is some 2 % of a step, and the executor's noise 30 %: fitted apart, one does not blur the other."""
    noisy = random.Random(2)
    steps = [replace(one, seconds=one.seconds * noisy.lognormvariate(0, 0.3)) for one in made_up(600)]
    model = fit_steps(steps).model
    for lanes in (1, 8, 32):
        assert model.host_s + lanes * model.host_lane_s == pytest.approx(
            TRUTH.host_s + lanes * TRUTH.host_lane_s, rel=0.03
        )


def test_no_coefficient_is_negative():
    """Also where plain least squares would make one so; and a term that nothing shows is none."""
    assert solve([[2.0, 1.0], [1.0, 2.0]], [3.0, -1.0]) == pytest.approx([1.5, 0.0])
    assert solve([[2.0, 1.0], [1.0, 2.0]], [4.0, 5.0]) == pytest.approx([1.0, 2.0])
    assert solve([[1.0, 0.0], [0.0, 0.0]], [2.0, 0.0]) == pytest.approx([2.0, 0.0])


def test_too_few_steps_are_refused():
    """A fit through fewer points than it has freedom is none."""
    with pytest.raises(BadSetting, match="allow more time"):
        fit_steps(list(made_up(20)))


def test_probes_fit_the_pool_the_context_and_the_step():
    """Each sequence has blocks of its own, all of them in the pool."""
    probes = design(num_blocks=600, block_size=16, context=700, most_tokens=300)
    assert {probe.num_decodes for probe in probes} >= {0, 1, 16, 64}
    for probe in probes:
        batch = batch_of(probe, 16)
        blocks = [block for lane in batch.lanes for block in lane.block_table]
        assert len(blocks) == len(set(blocks)) <= 600
        assert max(blocks) < 600
        assert load_of(batch).num_tokens == probe.num_tokens <= 300
        assert all(lane.start + len(lane.token_ids) <= 700 for lane in batch.lanes)


def test_only_steps_that_follow_each_other_count():
    """Cycles from token to token; whoever had to wait for work starts anew. Starts come from grants and hits."""
    listener = StepListener()

    def step(number, start_s, end_s, grants, tokens=0):
        drawn = [TokenEmitted("a", "a", 0, 0, 1, end_s - 0.001, None)] * tokens
        return [*drawn, StepRecord(number, start_s, grants, end_s=end_s, executor_s=0.09)]

    listener.on_events([Admitted("a", "a", 16, True, 0.0), *step(0, 0.0, 0.1, {"a": 30})])
    listener.on_events(step(1, 0.101, 0.2, {"a": 4, "b": 1}, tokens=2))
    listener.on_events(step(2, 5.0, 5.1, {"a": 1}, tokens=1))
    [one] = listener.found
    assert one == Observation(Load(5, 2, 1, 1, [(4, 46)]), 0.09, pytest.approx(0.009), 0.101, pytest.approx(0.001))


def test_the_share_of_the_engines_own_time_that_passes_between_steps_is_its_median():
    """One long pause does not move it; without live steps there is none."""
    steps = [replace(one, between_s=0.4 * (one.host_s or 0.0)) for one in made_up(200)]
    steps[:5] = [replace(one, host_s=0.04, between_s=0.04) for one in steps[:5]]
    assert fit_steps(steps).model.between_share == pytest.approx(0.4)
    assert fit_steps([replace(one, host_s=None) for one in steps]).model.between_share == 0.0


def test_a_small_engine_is_refused():
    """A pool that holds hardly any batch says so, with the way out."""
    with pytest.raises(BadSetting, match="give the engine more memory"):
        calibrate(
            simulated_engine(num_blocks=4, context=8),
            effort=Effort(probe_s=0.1, live_s=0.1),
            machine={},
            on_progress=lambda *_: None,
        )
