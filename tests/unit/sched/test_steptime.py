"""What `headway` believes about step times on a machine that changes its speed."""

import random

import pytest

from headway.sched.parts.controller import BudgetController
from headway.sched.parts.steptime import StepLoad, StepTimeModel

FIXED_S, TOKEN_S, CONTEXT_S = 0.005, 0.001, 1e-6


def costs(load, pace=1.0):
    """Seconds of a step of this machine; sequences cost nothing of their own."""
    return pace * (FIXED_S + TOKEN_S * load.num_tokens + CONTEXT_S * load.num_context)


def crowd(num):
    """So many sequences that decode behind 150 tokens each."""
    return StepLoad(num_tokens=num, num_context=150 * num, num_seqs=num)


def run(controller, chance, num_steps, num_seqs, pace):
    """Steps of decodes, every third with the prefill that the controller allows; returns those budgets.

    `num_seqs` and `pace` say for the share of the steps that is over how many decode and how slow the machine is.
    """
    budgets = []
    for step in range(num_steps):
        decodes = crowd(num_seqs(step / num_steps))
        load, num = decodes, 0
        budget = controller.budget(decodes, 0.975)
        if step % 3 == 0:
            budgets.append(num := budget)
            load = StepLoad(decodes.num_tokens + num, decodes.num_context + num * num // 2, decodes.num_seqs + 1)
        controller.observe(load, costs(load, pace(step / num_steps)) * chance.uniform(0.97, 1.03), decodes)
    return budgets


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_phase_with_a_growing_load_is_not_taken_for_dear_sequences(seed):
    """Steps keep about their length: with a fixed cost of nothing they would shrink to the least, and stay there."""
    controller, chance = BudgetController(None, 2048), random.Random(seed)
    run(controller, chance, 120, lambda _: chance.randint(1, 4), lambda _: 1.0)
    budgets = run(controller, chance, 240, lambda share: 4 + int(8 * share), lambda share: 1.0 + 0.6 * share)
    # 5 ms are 2.5 % of 200, of which 12 decodes leave 180; at 1.6 times that per token 105 fit, and the least is 16.
    assert min(budgets) > 60


def test_a_slow_phase_makes_steps_smaller_and_not_longer():
    """What a step may take is a matter of what the machine usually does."""
    controller, chance = BudgetController(None, 2048), random.Random(0)
    run(controller, chance, 300, lambda _: chance.randint(1, 4), lambda _: 1.0)
    before_s = controller.model.efficient_s(0.975)
    run(controller, chance, 60, lambda _: 3, lambda _: 1.5)
    assert controller.model.predict(crowd(3)) == pytest.approx(costs(crowd(3), 1.5), rel=0.1)
    assert controller.model.efficient_s(0.975) < 1.2 * before_s


@pytest.mark.parametrize(("first", "later"), [(3.0, 1.0), (1.0, 2.0)])
def test_what_lasts_is_learnt(first, later):
    """A cold start, or a machine that is slower for good: after minutes of steps it is the usual."""
    model, chance = StepTimeModel(), random.Random(1)
    for step in range(8000):
        load = crowd(chance.randint(1, 12))
        load.num_tokens += 100 * (step % 2)
        model.observe(load, costs(load, first if step < 40 else later))
    assert model.efficient_s(0.9) == pytest.approx(10 * FIXED_S * later, rel=0.2)
    assert model.predict(crowd(8)) == pytest.approx(costs(crowd(8), later), rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_machine_that_gets_twice_as_fast_for_good_makes_nothing_swing(seed):
    """The usual pace and the coefficients do not chase each other: steps keep near the length that is right."""
    controller, chance = BudgetController(None, 2048), random.Random(seed)
    shares, passed_s, step = [], 0.0, 0
    while passed_s < 600.0:
        decodes = load = crowd(chance.randint(1, 12))
        budget = controller.budget(decodes, 0.975)
        if step % 3 == 0:
            start = chance.choice((0, 200, 800))
            num = int(min(2048, budget / (1.0 + controller.context_price * start)))
            context = decodes.num_context + num * start + num * num // 2
            load = StepLoad(decodes.num_tokens + num, context, decodes.num_seqs + 1)
        pace = 8.0 if passed_s < 100.0 else 4.0
        seconds = costs(load, pace) * chance.uniform(0.8, 1.2)
        controller.observe(load, seconds, decodes)
        passed_s, step = passed_s + seconds, step + 1
        if passed_s > 300.0:
            shares.append(controller.model.efficient_s(0.975) / (40 * FIXED_S * pace))
    assert min(shares) > 0.6
    assert max(shares) < 1.6


@pytest.mark.parametrize(("step", "times"), [(0, 1e5), (1, 1e3), (9, 100.0), (15, 1e5), (15, 0.1)])
def test_one_of_the_first_steps_that_took_long_is_not_believed(step, times):
    """Weights come from the disk, a machine sleeps: the other first steps say what such a step takes."""
    model, chance = StepTimeModel(), random.Random(step)
    for at in range(40):
        load = crowd(chance.randint(1, 12))
        load.num_tokens += (at % 3 == 0) * chance.randint(16, 300)
        model.observe(load, costs(load) * (times if at == step else 1.0))
    for load in (crowd(2), crowd(9), StepLoad(200, 20_000, 1)):
        assert model.predict(load) == pytest.approx(costs(load), rel=0.3)
    assert model.efficient_s(0.9) == pytest.approx(10 * FIXED_S, rel=0.5)


@pytest.mark.parametrize("times", [1e-5, 1e5])
def test_some_steps_that_broke_or_hung_are_soon_forgotten(times):
    """Long prompts whose batch broke took hardly any time, others wait for a disk: seconds later times are right again.

    So is, within minutes, what is usual: it is a mean over these.
    """
    model, chance = StepTimeModel(), random.Random(0)
    for at in range(900):
        load = crowd(chance.randint(1, 12))
        load.num_tokens += (at % 3 == 0) * chance.randint(16, 300)
        if 300 <= at < 303:
            load = StepLoad(2048, 2_000_000, 4)
        model.observe(load, costs(load) * (times if 300 <= at < 303 else 1.0))
    for load in (crowd(2), crowd(9), StepLoad(200, 20_000, 1)):
        assert model.predict(load) == pytest.approx(costs(load), rel=0.3)
    assert model.efficient_s(0.9) == pytest.approx(10 * FIXED_S, rel=0.5 if times < 1 else 2.0)


def test_the_fixed_cost_does_not_depend_on_which_steps_there_were():
    """A machine takes 8 ms more for 8 to 31 tokens than a line tells: a few such steps or half of them are the same.

    Where a line through all sizes meets zero says 4 and 5.4 ms.
    """
    told = []
    for share in (0.05, 0.5):
        model, chance = StepTimeModel(), random.Random(0)
        for _ in range(1500):
            load = crowd(chance.randint(8, 31) if chance.random() < share else chance.randint(1, 7))
            load.num_tokens += (chance.random() < 0.2) * chance.randint(100, 300)
            bump_s = 0.008 if 8 <= load.num_tokens < 32 else 0.0
            model.observe(load, (costs(load) + bump_s) * chance.uniform(0.97, 1.03))
        told.append(model.efficient_s(0.9))
    assert told[1] == pytest.approx(told[0], rel=0.1)
    assert told[0] == pytest.approx(10 * FIXED_S, rel=0.3)


def test_another_process_in_the_first_second_does_not_size_steps_for_minutes():
    """A tenth of the first steps takes four times as long; then there are none of few tokens to correct that."""
    model, chance = StepTimeModel(), random.Random(0)
    for at in range(600):
        few = at < 200
        load = crowd(chance.randint(1, 4)) if few and at % 5 else StepLoad(chance.randint(150, 250), 30_000, 30)
        is_hit = few and at % 10 == 1
        model.observe(load, costs(load) * chance.uniform(0.97, 1.03) * (4.0 if is_hit else 1.0))
    assert model.efficient_s(0.9) == pytest.approx(10 * FIXED_S, rel=0.15)
