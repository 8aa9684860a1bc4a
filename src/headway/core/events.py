"""What happened, for everyone who watches: metrics, streams, traces, tapes. `at_s` is the engine's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.plan import Hold, PreemptMethod
from headway.core.request import Cause, FinishReason, Request
from headway.core.result import Logprobs


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request entered the waiting queue."""

    request: Request
    at_s: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence was given its first blocks, or its next ones after a preemption by recompute.

    `num_cached` tokens were found in the prefix cache. `is_first` tells an admission from a resumption.
    """

    seq_id: str
    request_id: str
    num_cached: int
    is_first: bool
    at_s: float


@dataclass(slots=True)
class TokenEmitted:
    """A sequence's next token. `index` counts its output from 0. Never sent twice, whatever preemption did."""

    seq_id: str
    request_id: str
    choice: int
    index: int
    token_id: int
    at_s: float
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Log probabilities of the prompt tokens from the second on; sent once, before the first token."""

    request_id: str
    logprobs: tuple[Logprobs, ...]


@dataclass(frozen=True, slots=True)
class Preempted:
    """A running sequence lost its place. `price_s` is what that is thought to cost; None where nobody reckoned."""

    seq_id: str
    request_id: str
    method: PreemptMethod
    at_s: float
    price_s: float | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """A swapped sequence is back on the device."""

    seq_id: str
    request_id: str
    at_s: float


@dataclass(frozen=True, slots=True)
class SequenceFinished:
    """One choice ended. Exactly one per sequence."""

    seq_id: str
    request_id: str
    choice: int
    reason: FinishReason
    at_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """All choices of a request ended, and its blocks are free. Exactly one of `Finished` and `Rejected` per request."""

    request: Request
    reason: FinishReason
    num_output: int
    num_cached: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that was queued is refused; `reason` says why and what to do."""

    request: Request
    reason: str
    at_s: float
    cause: Cause = Cause.POLICY


@dataclass(frozen=True, slots=True)
class QueueSizes:
    """Sequences in each queue once a step was planned."""

    num_running: int = 0
    num_waiting: int = 0
    num_swapped: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What a policy says about its plan.

    `limit` keeps all those waiting but the ones in `held`, which have a reason of their own. `predicted_s` is how long
    it thinks that the step will take; None where it does not predict.
    """

    notes: list[str] = field(default_factory=list)
    limit: Hold | None = None
    held: Mapping[str, Hold] = field(default_factory=dict)
    predicted_s: float | None = None


NOTHING = Said()
"""What a policy without remarks says."""


@dataclass(frozen=True, slots=True)
class Waste:
    """What a step computes for nobody, by sequence: rows of ended ones, and tokens that fill others' rows up."""

    rows: Mapping[str, int] = field(default_factory=dict)
    padding: Mapping[str, int] = field(default_factory=dict)


NO_WASTE = Waste()


@dataclass(slots=True)
class StepRecord:
    """One step as it was carried out; a tape is a list of these.

    `free_blocks` is taken after allocation and before finished sequences are released; it counts evictable
    blocks as free and promised ones as taken.
    `lost` are tokens of a batch that broke: granted in this step or an earlier one, and not computed. `predicted_s` is
    how long the policy thought that the step would take; None where it does not predict. `executor_s` is the time that
    the batches which this step booked spent inside the executor.
    """

    step: int
    start_s: float
    grants: dict[str, int] = field(default_factory=dict)
    preempted: list[str] = field(default_factory=list)
    swapped_out: list[str] = field(default_factory=list)
    swapped_in: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    free_blocks: int = 0
    waste: Waste = NO_WASTE
    said: Said = NOTHING
    queued: QueueSizes = QueueSizes()
    lost: dict[str, int] = field(default_factory=dict)
    end_s: float = 0.0
    executor_s: float = field(default=0.0, compare=False)  # measured: two runs of one tape differ in it

    @property
    def wasted_rows(self) -> Mapping[str, int]:
        """Rows of sequences that ended."""
        return self.waste.rows

    @property
    def padding(self) -> Mapping[str, int]:
        """Tokens that fill rows up."""
        return self.waste.padding

    @property
    def notes(self) -> list[str]:
        """The policy's remarks."""
        return self.said.notes

    @property
    def limit(self) -> Hold | None:
        """What kept those who wait."""
        return self.said.limit

    @property
    def held(self) -> Mapping[str, Hold]:
        """What kept single ones."""
        return self.said.held

    @property
    def predicted_s(self) -> float | None:
        """How long the policy thought that the step would take."""
        return self.said.predicted_s


Event = (
    Arrived
    | Admitted
    | TokenEmitted
    | PromptScored
    | Preempted
    | Resumed
    | SequenceFinished
    | Finished
    | Rejected
    | StepRecord
)
