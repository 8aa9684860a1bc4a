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
