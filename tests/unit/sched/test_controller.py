"""The prefill budget of `headway`: how it moves, and what bounds a step in which nobody decodes."""

from itertools import pairwise

import pytest

from headway.sched.parts.controller import LEAST_TOKENS, TILE, BudgetController
from headway.sched.parts.meter import StepMeter
from headway.sched.parts.steptime import StepLoad

DECODES = StepLoad(num_tokens=2, num_context=400, num_seqs=2)


def taught(target_s=None, *, fixed_s=0.01, token_s=0.001):
    """A controller that saw steps of a machine with these costs."""
    controller = BudgetController(target_s, 2048)
    for step in range(64):
        load = StepLoad(num_tokens=1 + 7 * step % 300, num_context=0, num_seqs=1 + step % 3)
        controller.observe(load, fixed_s + token_s * load.num_tokens, StepLoad())
    return controller


@pytest.mark.parametrize("target_s", [None, 0.4])
def test_a_budget_that_fell_to_its_least_grows_again(target_s):
    """However small it was, it reaches what is wanted: a quarter of a small budget is less than a tile."""
    controller = taught(target_s)
    controller._last = LEAST_TOKENS
    budgets = [controller.budget(DECODES, 0.9) for _ in range(40)]
    assert budgets == sorted(budgets)
    assert all(after - before <= max(TILE, before // 4) for before, after in pairwise(budgets))
    assert budgets[-1] == pytest.approx(88 if target_s is None else 388, abs=4)


@pytest.mark.parametrize("target_s", [None, 0.4])
def test_a_step_without_decodes_is_no_longer_than_it_must_be(target_s):
    """Who comes meanwhile waits for its end: 90 % of the greatest throughput needs 9 × 10 ms ÷ 1 ms per token."""
    assert taught(target_s).budget(StepLoad(), 0.9) == pytest.approx(90, abs=4)


def test_a_change_of_settings_goes_on_from_where_the_budget_stood():
    """Neither the machine's restlessness is learned anew, nor is a step of the old size cut to that of a new engine."""
    old, new = taught(0.4), BudgetController(0.4, 2048)
    for _ in range(20):
        old.budget(DECODES, 1.0)
        old.observe(StepLoad(num_tokens=100, num_context=0, num_seqs=3), 0.41, DECODES)
    new.adopt(old)
    assert new._margin == old._margin > 1.0
    assert new.budget(DECODES, 1.0) == old.budget(DECODES, 1.0) != BudgetController(0.4, 2048).budget(DECODES, 1.0)


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
        controller.observe(load, 0.01 + 1e-3 * num + 1e-6 * num * context, StepLoad())
    controller.budget(DECODES, 0.9)
    assert controller.context_price == pytest.approx(1e-3, rel=0.05)
    assert controller.model.prefill_s(100, 950) == pytest.approx(0.2, rel=0.05)
    assert BudgetController(None, 2048).context_price == 0.0


def settled(controller, decodes):
    """The budget once it has grown as far as it will."""
    return [controller.budget(decodes, 0.9) for _ in range(40)][-1]


def crowd(num):
    """So many sequences that decode, and read no context to speak of."""
    return StepLoad(num_tokens=num, num_seqs=num)


def test_a_target_that_a_small_budget_keeps_is_kept():
    """30 ms: 10 are fixed and 2 go to decodes; with 4 decodes more the least budget alone fills it."""
    controller = taught(0.03)
    assert settled(controller, crowd(2)) == pytest.approx(18, abs=1)
    assert settled(controller, crowd(4)) == LEAST_TOKENS


@pytest.mark.parametrize("target_s", [None, 0.05])
def test_prompts_get_a_third_of_a_step_that_no_budget_keeps_short(target_s):
    """100 decodes take 110 ms, with a target of 50 or where 100 are enough: prompts get 55 ms beside them."""
    assert settled(taught(target_s), crowd(100)) == pytest.approx(55, abs=2)


def test_only_misses_that_a_smaller_budget_prevents_make_it_smaller():
    """A target of 100 ms leaves 88 tokens. Steps disturbed by 200 ms say nothing of that; by 20 ms they do."""
    controller = taught(0.1)
    whole = settled(controller, crowd(2))
    assert whole == pytest.approx(88, abs=2)
    for disturbed_s, least, most in ((0.2, whole - 2, whole + 2), (0.02, LEAST_TOKENS, 0.9 * whole)):
        model = controller.model
        for _ in range(20):
            budget = settled(controller, crowd(2))
            load = StepLoad(num_tokens=2 + budget, num_seqs=3)
            controller.observe(load, model.predict(load) + disturbed_s, crowd(2))
            controller.model = taught(0.1).model  # what the steps themselves teach is not the question here
        assert least <= settled(controller, crowd(2)) <= most


def test_tokens_have_a_price_where_no_fit_finds_one():
    """Steps that take less the more they hold fit no price of tokens; giving way must cost something all the same."""
    controller = BudgetController(None, 2048)
    for num in (1, 2, 4, 8, 16, 32, 64, 128) * 4:
        controller.observe(StepLoad(num_tokens=num, num_context=num, num_seqs=1), 0.05 / num, StepLoad())
    assert controller.model.is_ready
    assert controller.model.coefficients[1] == 0.0
    assert StepMeter(controller).prices.recompute_s > 0.0
