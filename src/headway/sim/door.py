"""The door of a tape: a server refuses at its own what can never run, so that not every policy has to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headway.core import Sequence, StepPlan
from headway.sched import Policy, View, Wrapper


class Door(Wrapper):
    """A policy that is not shown who can never end here; they are rejected in the first step that is planned.

    `output_lengths` are the tokens that each request will emit. What ends by itself in the memory that there is may
    enter, however much it was promised: policies that bet on that are watched doing so.
    """

    def __init__(self, base: Policy, output_lengths: Mapping[str, int]) -> None:
        super().__init__(base)
        self._output_lengths = output_lengths
        self._max_seqs = base.limits().max_seqs

    def plan(self, view: View) -> StepPlan:
        """The base's, for all others."""
        refused = [(seq, reason) for seq in view.waiting if (reason := self._obstacle(view, seq))]
        if not refused:
            return self.base.plan(view)
        gone = {seq.id for seq, _ in refused}
        plan = self.base.plan(replace(view, waiting=[seq for seq in view.waiting if seq.id not in gone]))
        plan.rejected += refused
        return plan

    def _obstacle(self, view: View, seq: Sequence) -> str | None:
        num_output = self._output_lengths[seq.request.id]
        num_blocks = view.ledger.blocks_for(seq.num_prompt + num_output - 1)  # the last token is not stored
        if num_blocks > view.ledger.num_blocks:
            return (
                f"{seq.request.id} needs {num_blocks} blocks of memory for {seq.num_prompt} prompt tokens and "
                f"{num_output} of output; there are {view.ledger.num_blocks}: shorten it, or raise num_blocks"
            )
        if self._max_seqs is not None and seq.num_branches > self._max_seqs:
            return f"{seq.request.id} wants {seq.num_branches} choices, but {self._max_seqs} may run at once: lower n"
        return None
