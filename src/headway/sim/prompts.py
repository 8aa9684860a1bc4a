"""Token ids for prompts of which only lengths and shared parts are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headway.core import Request, SamplingParams
from headway.workload import WorkItem, continues

EOS = 0
_ENDS = frozenset({EOS})
_FIRST_SHARED = 1 << 48
"""Ids of shared blocks start here; all ids below belong to one prompt alone, or were made up as output."""

_SHARED_MASK = (1 << 44) - 1
_FIRST_OWN = 1 << 24
_FILLER = (EOS + 1,)
"""What a prompt goes on with after the first id of its own: a prefix that holds that one is nobody else's."""


class PromptMaker:
    """Turns work items into requests: equal prefix blocks become equal tokens, everything else is unique.

    `weights` are tenants' shares of the service; a tenant without one weighs 1.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._next_own = _FIRST_OWN
        self._said: dict[str, tuple[WorkItem, list[int]]] = {}

    def request(self, item: WorkItem, arrival_s: float) -> Request:
        """The request that an item's client would send at `arrival_s`."""
        return self._make(item, arrival_s, self._prompt(item), item.max_output)

    def first_token(self, item: WorkItem, arrival_s: float) -> Request:
        """The same for a replica that only computes the prompt and draws one token."""
        return self._make(item, arrival_s, self._prompt(item), 1)

    def rest(self, item: WorkItem, arrival_s: float, sent_s: float) -> Request:
        """What is left for a replica that is handed the prompt's KV and the first token of what was sent before."""
        request = self._make(item, arrival_s, (*self._prompt(item), EOS + 1), item.max_output - 1)
        return replace(request, deadline_s=None if item.deadline_s is None else sent_s + item.deadline_s, ttft_s=None)

    def remember(self, item: WorkItem, answer: list[int]) -> None:
        """Keep what was said in a session, for a later turn that resends it."""
        self._said[item.session] = item, answer

    def forget(self, session: str) -> None:
        """A session is over."""
        self._said.pop(session, None)

    def _make(self, item: WorkItem, arrival_s: float, prompt: tuple[int, ...], max_output: int) -> Request:
        return Request(
            id=item.id,
            prompt_ids=prompt,
            max_output=max_output,
            arrival_s=arrival_s,
            params=SamplingParams(temperature=0.0, max_tokens=max_output),
            eos_ids=_ENDS,
            priority=item.priority,
            tenant=item.tenant,
            weight=self._weights.get(item.tenant, 1.0),
            deadline_s=None if item.deadline_s is None else arrival_s + item.deadline_s,
            ttft_s=item.slo.ttft_s,
        )

    def _prompt(self, item: WorkItem) -> tuple[int, ...]:
        tokens = _shared(item)
        earlier, answer = self._said.get(item.session, (None, []))
        if earlier is not None and continues(earlier, item):
            begin = earlier.num_prompt
            end = min(begin + len(answer), item.num_prompt)
            tokens[begin:end] = answer[: end - begin]
        if num_own := item.num_prompt - len(tokens):
            self._next_own += 1
            return (*tokens, self._next_own, *_FILLER * (num_own - 1))
        return tuple(tokens)


def _shared(item: WorkItem) -> list[int]:
    tokens: list[int] = []
    for block in item.prefix:
        first = _FIRST_SHARED + (block & _SHARED_MASK) * item.prefix_block
        tokens += range(first, first + item.prefix_block)
    return tokens[: item.num_prefix]
