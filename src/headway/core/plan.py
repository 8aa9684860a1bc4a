"""What a policy wants (`StepPlan`) and what the executor runs (`Batch`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum

from headway.core.sampling import SamplingParams
from headway.core.sequence import Sequence

BlockPair = tuple[int, int]
"""(from, to) block ids of a copy."""


class PreemptMethod(Enum):
    """What happens to the KV of a preempted sequence."""

    RECOMPUTE = "recompute"  # dropped; computed again later, but for what the prefix cache still holds
    SWAP = "swap"  # moved to the host tier
    PARTIAL = "partial"  # only tail blocks are freed


class Hold(StrEnum):
    """What keeps a sequence waiting through a step."""

    TOKENS = "tokens"  # the step's token budget is used up
    SEQUENCES = "sequences"  # as many sequences run as may
    KV = "kv"  # its memory is not there
    TENANT_SHARE = "tenant_share"  # another tenant's turn
    CLASS = "class"  # more urgent ones go first
    PREFIX_WAIT = "prefix_wait"  # its prefix is being computed for another
    GUARDRAIL = "guardrail"  # a promise to others is broken
    POLICY = "policy"  # the policy admits nobody now


class Requeue(Enum):
    """Where a sequence preempted by recompute joins the waiting queue."""

    FRONT = "front"
    BACK = "back"


@dataclass(slots=True)
class Grant:
    """`num_tokens` of a sequence to compute in this step, plus `padding` rows computed for nothing."""

    seq: Sequence
    num_tokens: int
    padding: int = 0


@dataclass(slots=True)
class Preemption:
    """A running sequence to take off the device. `keep_tokens` matters to `PARTIAL` alone.

    Of what `RECOMPUTE` drops the first `cached_tokens` may stay in the prefix cache, None: all. `price_s` are the
    seconds that it is thought to cost, None where nobody reckoned.
    """

    seq: Sequence
    method: PreemptMethod = PreemptMethod.RECOMPUTE
    requeue: Requeue = Requeue.FRONT
    keep_tokens: int = 0
    cached_tokens: int | None = None
    price_s: float | None = None


@dataclass(slots=True)
class StepPlan:
    """A policy's whole decision for one step: data, no effects.

    Preemptions happen first, then swap-ins, then grants in their order. `wasted` are ended sequences whose
    rows are computed all the same (static batching). `rejected` carries a reason for each. `limit` is what ended
    the admission of waiting sequences, `held` what kept single ones of them for a reason of their own, `predicted_s`
    how long the step is thought to take; all three are told to people only.
    """

    grants: list[Grant] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    swap_ins: list[Sequence] = field(default_factory=list)
    rejected: list[tuple[Sequence, str]] = field(default_factory=list)
    wasted: list[Sequence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limit: Hold | None = None
    held: dict[str, Hold] = field(default_factory=dict)
    predicted_s: float | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens granted, without padding and wasted rows."""
        return sum([grant.num_tokens for grant in self.grants])


@dataclass(slots=True)
class Draw:
    """One token to sample from a lane's last row. The token lists are the sequence's own: read, never write.

    `num_prompt` splits `token_ids` into prompt and output. `choice` and the output position key the random
    stream, so neighbours cannot shift it.
    """

    seq_id: str
    params: SamplingParams
    seed: int
    choice: int
    token_ids: list[int]
    num_prompt: int
    eos_ids: frozenset[int]


@dataclass(slots=True)
class Lane:
    """One sequence's share of a batch.

    `token_ids` are the tokens to compute, the first at position `start`. `block_table` covers all positions
    below `start + len(token_ids)`. `draws` is empty where the chunk ends before the known tokens do.
    `prompt_logprobs` asks for that many alternatives at every row of the prompt; then `next_id` is the known token
    after the chunk, which the last row is scored on (None where the chunk reaches the end of the known tokens).
    """

    seq_id: str
    token_ids: list[int]
    start: int
    block_table: list[int]
    draws: tuple[Draw, ...] = ()
    prompt_logprobs: int | None = None
    padding: int = 0
    next_id: int | None = None


@dataclass(slots=True)
class Batch:
    """A checked plan with block tables: one step of the executor.

    The copies are done before the step, in the order `swap_out`, `swap_in`, `copies`. `num_wasted_rows` are
    computed and thrown away. `grants` repeats the lanes' plan for the scheduler; executors ignore it.
    """

    step: int
    lanes: list[Lane]
    swap_out: list[BlockPair] = field(default_factory=list)
    swap_in: list[BlockPair] = field(default_factory=list)
    copies: list[BlockPair] = field(default_factory=list)
    num_wasted_rows: int = 0
    grants: list[Grant] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens computed for sequences, without padding and wasted rows."""
        return sum(len(lane.token_ids) for lane in self.lanes)
