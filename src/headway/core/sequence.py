"""The running life of one choice of a request. Only the scheduler writes to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headway.core.request import FinishReason, Request


class Place(Enum):
    """The one queue that a sequence stands in."""

    WAITING = "waiting"
    RUNNING = "running"  # holds blocks on the device
    SWAPPED = "swapped"  # its KV lies in the host tier
    ENDED = "ended"  # has its finish reason, still held by the policy (static batching)
    GONE = "gone"


@dataclass(slots=True, eq=False, weakref_slot=True)  # what is known of it elsewhere goes when it goes
class Sequence:
    """Counters and tokens of one choice. There is no phase: prefill and decode are derived.

    `token_ids` is prompt + output. `num_computed` counts the tokens whose KV is stored; up to `num_prefill` of
    them are a prefill, be its last chunk as short as a decode: the prompt, after a preemption by recompute all
    that was known then. `num_in_flight` is what a launched batch is computing for it now, 0 when none is.
    `num_branches` > 1 on the first choice of a request with n > 1 until its prompt is computed: then the others
    are forked from it. `rank` is the request's place in order of arrival, the same for all its choices;
    preemption does not change it.
    """

    request: Request
    choice: int = 0
    id: str = ""
    rank: int = 0
    token_ids: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_prefill: int = 0
    num_cached: int = 0
    num_in_flight: int = 0
    num_branches: int = 1
    num_preemptions: int = 0
    place: Place = Place.WAITING
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        """Start from the prompt."""
        if not self.id:
            self.id = self.request.id if self.choice == 0 else f"{self.request.id}/{self.choice}"
        if not self.token_ids:
            self.token_ids = list(self.request.prompt_ids)
        self.num_prefill = self.num_prefill or self.num_prompt

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: prompt + output."""
        return len(self.token_ids)

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_ids)

    @property
    def num_output(self) -> int:
        """Tokens emitted so far."""
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def num_pending(self) -> int:
        """Known tokens without KV: 1 while decoding, any number while prefilling or recomputing."""
        return len(self.token_ids) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether its prefill is over, also that of a recomputed one, and each token needs just one more KV entry."""
        return self.num_computed >= self.num_prefill and len(self.token_ids) > len(self.request.prompt_ids)

    @property
    def max_total(self) -> int:
        """Most tokens that it can ever hold."""
        return self.request.max_total

    def check(self) -> None:
        """The counters agree with each other."""
        assert 0 <= self.num_computed <= self.num_tokens, f"{self.id}: computed more than it has"
        assert 0 <= self.num_in_flight <= self.num_pending, f"{self.id}: more in flight than pending"
        assert self.num_prompt <= self.num_prefill <= self.num_tokens, f"{self.id}: its prefill ends nowhere"
        assert self.num_output <= self.request.max_output, f"{self.id}: went past its maximal output"
        assert (self.place in (Place.ENDED, Place.GONE)) == (self.finish_reason is not None), f"{self.id}: {self.place}"
