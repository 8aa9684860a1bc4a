"""The engine against itself in virtual time: the machinery, on an executor whose step times are known exactly."""

import json
import signal
from dataclasses import replace

import pytest

from headway.bench.mixed import MixedLoad
from headway.cli.fidelity_text import engine_text
from headway.cli.main import main
from headway.errors import BadSetting
from headway.fidelity import PLAUSIBLE, EngineTrial, check_engine
from headway.fidelity.live import LiveRun
from headway.fidelity.pace import REACH_S, Pace, halves, slowness
from headway.sim import Calibration, Fitted, Plan, Pool, calibrated_plant, simulate, write_calibration
from headway.sim.calibration import Observation, StepListener
from headway.sim.load import Load
from headway.sim.replay import Replay
from tests.support.tiny_model import write_tiny_gguf

FAST = MixedLoad(num_requests=8, prompt_median=12, prompt_p90=30, output_median=4, output_p90=9, context=128)
NO_BOUNDS = {"latency_bound": 1e9, "throughput_bound": 1e9}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    from headway.engine import EngineConfig, build_engine

    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    built = build_engine(EngineConfig(model=str(path), executor="reference", seed=0, num_blocks=256))
    yield built
    built.core.executor.close()


def calibration(step_s):
    return Calibration(
        model=Fitted(rows=((1, step_s),)),
        num_steps=1,
        median_error=0.0,
        p95_error=0.0,
        engine={"num_blocks": 256, "block_size": 16, "max_model_len": 128},
    )


@pytest.fixture
def steady(monkeypatch):
    """Makes live runs those of a machine whose every step takes `step_s`, whatever else this one does meanwhile."""

    def at(step_s):
        def run(engine, workload, on_progress):
            listener, config = StepListener(), engine.config
            plant = calibrated_plant(calibration(step_s), prefix_cache=config.prefix_cache)
            plan = Plan(policy=config.policy, defaults=config.policy_defaults())
            pool = Pool(plant=plant, plan=plan, observers=[lambda _: listener.on_events])
            record = simulate(workload.items(), pool)
            again = Replay(num_steps=len(listener.found), num_requests=len(record.requests), differences=[])
            return LiveRun(record, again, listener.found, start_s=0.0)

        monkeypatch.setattr("headway.fidelity.engine.run_live", run)

    return at


@pytest.mark.parametrize(
    "policies", [("vllm", "headway"), pytest.param(("sarathi_serve", "orca"), marks=pytest.mark.slow)], ids=" ".join
)
def test_every_live_decision_is_made_again(engine, policies):
    """With the recorded step times each plan of a live run comes out the same, whatever the policy."""
    trial = EngineTrial(requests=FAST, policies=policies, repeats=1)
    check = check_engine(engine, calibration(2e-3), trial, on_progress=lambda *_: None)
    assert [one.num_differences for one in check.checks] == [0, 0]
    assert all(one.num_steps > 5 for one in check.checks)
    for one in check.checks:
        assert [(row.metric, row.figure) for row in one.rows] == [
            ("TTFT", "P50"),
            ("TTFT", "P95"),
            ("ITL", "P50"),
            ("ITL", "P95"),
            ("throughput", "tokens/s"),
        ]


def test_step_times_that_are_wrong_are_found(engine, steady):
    """A simulation whose host takes a tenth of a second between steps is beyond every bound on latency."""
    steady(2e-3)
    trial = EngineTrial(requests=FAST, policies=("vllm",), repeats=1, load=0.85)
    wrong = replace(calibration(2e-3), model=Fitted(rows=((1, 2e-3),), host_s=0.1))
    check = check_engine(engine, wrong, trial, on_progress=lambda *_: None)
    assert not check.is_within
    assert all(row.error > 1.0 for row in check.checks[0].rows if row.metric == "ITL")


SPAN_S = 2 * REACH_S
"""Steps at one speed last so long: no moment reaches beyond both its ends."""


def steps_of(machine, model, span):
    """Steps of one, six and 70 tokens, as a machine takes that reads and computes at its own pace for `SPAN_S`."""
    loads = [
        Load(num_tokens=1, num_decodes=1, num_drawn=1, decode_context=500),
        Load(num_tokens=6, num_decodes=6, num_drawn=6, decode_context=900),
        Load(num_tokens=70, num_decodes=6, num_drawn=6, decode_context=900, prefills=[(64, 0)]),
    ]
    own = model.at_pace(*machine)
    return [
        Observation(load, own.executor_s(load), start_s=100.0 + SPAN_S * span + 0.04 * k)
        for k, load in enumerate(loads * 15)
    ]


def test_the_speed_of_reading_and_of_computing_is_found_again_at_every_moment():
    """What a machine took that computed at half its speed for a while; before and after, nothing has changed."""
    model = Fitted(rows=((1, 7e-3), (4, 7.5e-3), (8, 9e-3), (64, 55e-3)), lane_s=1e-4, context_s=1e-6, host_s=5e-4)
    steps = [*steps_of((1.0, 1.0), model, 0), *steps_of((1.1, 1.9), model, 1), *steps_of((1.0, 1.0), model, 3)]
    pace = Pace(model, steps, start_s=100.0)
    for moment_s, machine in ((0.5, (1.0, 1.0)), (1.5 * SPAN_S, (1.1, 1.9)), (20 * SPAN_S, (1.0, 1.0))):
        for step in steps_of(machine, model, 0):
            assert pace.at(moment_s).executor_s(step.load) == pytest.approx(step.seconds, rel=0.05)
    assert slowness(model, steps) == pytest.approx(1.27, abs=0.05)


def test_the_speed_passes_over_from_one_to_the_next():
    """Between two speeds lie those between them: there is no grid on whose other side all is different."""
    model = Fitted(rows=((1, 7e-3), (64, 55e-3)))
    pace = Pace(model, [*steps_of((1.0, 1.0), model, 0), *steps_of((2.0, 2.0), model, 1)], start_s=100.0)
    load = Load(num_tokens=64)
    ratios = [
        pace.at(SPAN_S + late_s).executor_s(load) / model.executor_s(load) for late_s in (-1.0, -0.5, 0, 0.5, 1.0)
    ]
    assert ratios == sorted(ratios)
    assert ratios[0] == pytest.approx(1.0)
    assert ratios[2] == pytest.approx(1.5, abs=0.15)
    assert ratios[4] == pytest.approx(2.0)


def test_a_long_step_weighs_as_much_as_the_short_ones_that_take_as_long():
    """Both of its seconds were slow, so half of all were, though of eleven steps but one was."""
    model = Fitted(rows=((1, 1e-2),), attend_s=1e-6)
    short = [Observation(Load(num_tokens=1, num_decodes=1), 1e-2) for _ in range(10)]
    long = Observation(Load(num_tokens=1, prefills=[(424, 0)]), 0.2)
    assert model.executor_s(long.load) == pytest.approx(0.1, rel=0.01)
    both = Pace(model, [*short, long], start_s=0.0).at(0.0)
    taken_s = sum(step.seconds for step in (*short, long))
    assert sum(both.executor_s(step.load) for step in (*short, long)) == pytest.approx(taken_s, rel=0.02)


def test_a_moment_without_steps_is_like_the_nearest_whatever_was_asked_before():
    """Of two as near the earlier counts, and one that was filled in is no neighbour of the next."""
    model = Fitted(rows=((1, 7e-3), (64, 55e-3)))
    load = Load(num_tokens=64)
    steps = [Observation(load, 0.11, start_s=112.0), Observation(load, 0.055, start_s=100.0)]

    def asked(*moments):
        pace = Pace(model, steps, start_s=100.0)
        return {moment: round(pace.at(moment).executor_s(load) / model.executor_s(load)) for moment in moments}

    assert asked(0, 3, 5, 6, 7, 9, 12, 20) == asked(20, 12, 9, 7, 6, 5, 3, 0) == asked(6, 7, 5, 9, 3, 20, 0, 12)
    assert asked(5, 6, 7, 20) == {5: 1, 6: 1, 7: 2, 20: 2}


def test_at_most_half_of_the_steps_are_told_and_half_of_those_with_prompts():
    """Whatever the order in which they come: chance leaves no second without its long steps."""
    short, long = Load(num_tokens=1, num_decodes=1), Load(num_tokens=64, prefills=[(64, 0)])
    steps = [Observation(load, 1e-2, start_s=float(k)) for k, load in enumerate([short, long] * 6 + [long] * 3)]
    told, kept = halves(steps)
    assert sorted([*told, *kept], key=lambda step: step.start_s) == steps
    assert [sum(step.load is load for step in told) for load in (short, long)] == [3, 4]
    assert len(told) <= len(kept)


def test_steps_that_a_model_has_for_nothing_say_nothing_of_the_speed():
    """A calibration may put all of a step into its sequences; a step without one then divides nothing by zero."""
    model = Fitted(rows=((1, 0.0),), lane_s=1e-3)
    steps = [Observation(Load(num_tokens=4), 1e-3), Observation(Load(num_tokens=1, num_decodes=1), 2e-3)]
    [(_, computing)] = Pace(model, steps, start_s=0.0).factors
    assert computing == pytest.approx(2.0)


def test_a_model_that_is_wrong_all_along_passes_as_speed_and_is_told(engine, steady):
    """Its rows may keep their bounds, as its error is taken for the machine's; the check says that it cannot tell."""
    steady(2e-3)
    trial = EngineTrial(requests=FAST, policies=("vllm",), repeats=1, load=0.85, **NO_BOUNDS)
    check = check_engine(engine, calibration(0.1), trial, on_progress=lambda *_: None)
    [one] = check.checks
    assert check.is_within
    assert one.slowness == pytest.approx(0.02)
    assert one.reading < PLAUSIBLE[0]
    assert not one.is_plausible
    assert "cannot tell which" in engine_text(check)
    assert all(row.error > 1.0 for row in one.unpaced if row.metric == "ITL")


def test_a_run_without_steps_has_the_pace_of_the_calibration():
    """Nothing is known of the machine, so nothing is changed; steps before the run count as none."""
    model = Fitted(rows=((1, 2e-3),))
    assert Pace(model, steps_of((3.0, 3.0), model, 0), start_s=1000.0).at(1.0) is model


@pytest.fixture
def press():
    """Ctrl-C, once: as a signal, which an event loop hears. What a callback raised would end the loop, not the run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored where tests run
    pressed = []

    def once():
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    yield once
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_check_keeps_the_runs_that_ended(engine, press):
    """Ctrl-C in the second policy: the first one's figures stay, and the check is not within its bounds."""
    trial = EngineTrial(requests=FAST, policies=("vllm", "headway"), repeats=1, **NO_BOUNDS)

    def interrupt(name, _):
        if name == "headway 1":
            press()

    check = check_engine(engine, calibration(2e-3), trial, on_progress=interrupt)
    assert [(one.policy, one.num_runs) for one in check.checks] == [("vllm", 1)]
    assert not check.is_complete
    assert not check.is_within


def test_an_interrupted_check_without_a_run_says_nothing(engine, press):
    """There is nothing to keep."""
    trial = EngineTrial(requests=FAST, policies=("vllm",), repeats=1)
    with pytest.raises(KeyboardInterrupt):
        check_engine(engine, calibration(2e-3), trial, on_progress=lambda *_: press())


def test_a_load_at_which_queues_are_chance_is_refused():
    """Near saturation no simulator is right."""
    with pytest.raises(BadSetting, match=r"between 0.05 and 0.85"):
        EngineTrial(requests=FAST, load=0.95)


def test_the_command_prints_its_table_or_json(tmp_path, capsys):
    """Status 0 within the bounds asked for, 1 beyond them."""
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    sizes = ("--prompt-median", "12", "--prompt-p90", "30", "--output-median", "4", "--output-p90", "9")
    flags = ("--executor", "reference", "--num-blocks", "256", "--max-model-len", "128", "--policies", "vllm")
    kept = tmp_path / "calibration.json"
    about = {"model": "tiny", "kernels": "numpy", "weights": "float32", "threads": None}
    write_calibration(replace(calibration(2e-3), about=about), kept)
    run = ["fidelity", "engine", "--model", str(path), *sizes, *flags, "--calibration", str(kept)]
    run += ["--num-requests", "6", "--repeats", "1"]
    assert main([*run, "--latency-bound", "1e9", "--throughput-bound", "1e9", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policies"][0]["replay"]["num_differences"] == 0
    assert main([*run, "--latency-bound", "0", "--throughput-bound", "0"]) == 1
    assert "beyond a bound" in capsys.readouterr().out


def test_a_calibration_of_another_engine_is_refused(tmp_path, capsys):
    """What is off is named with both values."""
    path, kept = tmp_path / "tiny.gguf", tmp_path / "calibration.json"
    write_tiny_gguf(path)
    write_calibration(calibration(2e-3), kept)
    flags = ("--executor", "reference", "--num-blocks", "64", "--max-model-len", "128")
    assert main(["fidelity", "engine", "--model", str(path), "--calibration", str(kept), *flags]) == 2
    assert f"{kept} does not say what model it is of, this engine has tiny" in capsys.readouterr().err
