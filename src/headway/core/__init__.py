"""The words everyone speaks: requests, sequences, plans, results, events.

Must not know: anything that owns memory, time or a device; standard library only.
Start reading at `request`, then `sequence`, then `plan`.
"""

from headway.core.events import (
    Admitted,
    Arrived,
    Event,
    Finished,
    Preempted,
    PromptScored,
    QueueSizes,
    Rejected,
    Resumed,
    Said,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
    Waste,
)
from headway.core.json_text import DoubledKey, json_value, keys_once
from headway.core.plan import Batch, BlockPair, Draw, Grant, Hold, Lane, Preemption, PreemptMethod, Requeue, StepPlan
from headway.core.refusal import Refusal
from headway.core.request import Cause, FinishReason, Request, Tier
from headway.core.result import Logprobs, StepResult, Token
from headway.core.sampling import SamplingParams
from headway.core.sequence import Place, Sequence
from headway.core.slo import Slo
from headway.core.user_file import unreadable

__all__ = [
    "Admitted",
    "Arrived",
    "Batch",
    "BlockPair",
    "Cause",
    "DoubledKey",
    "Draw",
    "Event",
    "FinishReason",
    "Finished",
    "Grant",
    "Hold",
    "Lane",
    "Logprobs",
    "Place",
    "PreemptMethod",
    "Preempted",
    "Preemption",
    "PromptScored",
    "QueueSizes",
    "Refusal",
    "Rejected",
    "Request",
    "Requeue",
    "Resumed",
    "Said",
    "SamplingParams",
    "Sequence",
    "SequenceFinished",
    "Slo",
    "StepPlan",
    "StepRecord",
    "StepResult",
    "Tier",
    "Token",
    "TokenEmitted",
    "Waste",
    "json_value",
    "keys_once",
    "unreadable",
]
