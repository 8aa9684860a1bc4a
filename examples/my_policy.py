"""A scheduling policy of your own: the shortest prompt first, and prompts are never cut.

PYTHONPATH=examples headway tape tests/tapes/scenes/short_behind_long.json --policy my_policy:ShortestPrompt
"""

from dataclasses import dataclass

from headway.core import StepPlan
from headway.sched import Axes, PlanLimits, Policy, View
from headway.sched.fill import Budget, admit, fill_running
from headway.sched.params import param


@dataclass(frozen=True, kw_only=True)
class ShortestPromptParams:
    """What `--set` knows."""

    max_num_seqs: int = param(16, "most sequences running at once")


class ShortestPrompt(Policy):
    """Whoever runs goes on; of those that wait, the shortest prompts come next."""

    Params = ShortestPromptParams
    axes = Axes(order="shortest prompt", sharing="all", reservation="this step's tokens", shortage="the youngest")
    source = "docs/adding-a-policy.md"

    def __init__(self, params: ShortestPromptParams) -> None:
        self.limit = params.max_num_seqs

    def limits(self) -> PlanLimits:  # every plan is checked against these
        return PlanLimits(max_seqs=self.limit)

    def plan(self, view: View) -> StepPlan:  # decides one step
        plan, budget = StepPlan(), Budget.of(view, None, self.limit)
        fill_running(view, plan, budget)
        queue = sorted(view.waiting, key=lambda seq: seq.num_pending) if not plan.preemptions else []
        admit(view, plan, budget, queue, chunk=lambda seq, _: view.ledger.num_pending(seq))
        return plan
