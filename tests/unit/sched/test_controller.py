"""The prefill budget of `headway`: how it moves, and what bounds a step in which nobody decodes."""

import pytest

from headway.sched.parts.controller import LEAST_TOKENS, TILE, BudgetController
from headway.sched.parts.steptime import StepLoad

DECODES = StepLoad(num_tokens=2, num_context=400, num_seqs=2)


def taught(target_s=None, *, fixed_s=0.01, token_s=0.001):
    """A controller that saw steps of a machine with these costs."""
    controller = BudgetController(target_s, 2048)
    for step in range(64):
        load = StepLoad(num_tokens=1 + 7 * step % 300, num_context=0, num_seqs=1 + step % 3)
        controller.observe(load, fixed_s + token_s * load.num_tokens, num_decodes=0)
    return controller


@pytest.mark.parametrize("target_s", [None, 0.4])
def test_a_budget_that_fell_to_its_least_grows_again(target_s):
    """However small it was, it reaches what is wanted: a quarter of a small budget is less than a tile."""
    controller = taught(target_s)
    controller._last = LEAST_TOKENS
    budgets = [controller.budget(DECODES, 0.9) for _ in range(40)]
    assert budgets == sorted(budgets)
    assert all(budget % TILE == 0 for budget in budgets)
    assert budgets[-1] == pytest.approx(88 if target_s is None else 384, abs=TILE)


@pytest.mark.parametrize("target_s", [None, 0.4])
def test_a_step_without_decodes_is_no_longer_than_it_must_be(target_s):
    """Who comes meanwhile waits for its end: 90 % of the greatest throughput needs 9 × 10 ms ÷ 1 ms per token."""
    assert taught(target_s).budget(StepLoad(), 0.9) == pytest.approx(90, abs=4)


def test_without_efficiency_or_knowledge_a_step_is_whole():
    """The part switched off, nothing measured yet, or a machine whose steps cost the same however large."""
    assert taught().budget(StepLoad(), 1.0) == 2048
    assert BudgetController(None, 2048).budget(StepLoad(), 0.9) == 2048
    assert taught(token_s=0.0).budget(StepLoad(), 0.9) >= 2048


def test_context_is_paid_for():
    """A token that reads 1,000 tokens of context at 1 µs each costs as much as two that read none, here at 1 ms."""
    controller = BudgetController(None, 2048)
    for step in range(200):
        num, context = 1 + 7 * step % 300, 1000 * (step % 5)
        load = StepLoad(num_tokens=num, num_context=num * context, num_seqs=1 + step % 3)
        controller.observe(load, 0.01 + 1e-3 * num + 1e-6 * num * context, num_decodes=0)
    controller.budget(DECODES, 0.9)
    assert controller.context_price == pytest.approx(1e-3, rel=0.05)
    assert controller.model.prefill_s(100, 950) == pytest.approx(0.2, rel=0.05)
    assert BudgetController(None, 2048).context_price == 0.0
