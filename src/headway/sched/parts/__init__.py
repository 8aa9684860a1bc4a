"""What policies are made of: counters, estimates, orders, and passes over a view.

A part plans or counts; it never touches pool, clock or sequences. Must not know: the scheduler, the registry, a policy.
Start reading at `promises` for policies that reserve, at `prompts` for those that fill a budget.
"""

from headway.sched.parts.admission import PeakGate
from headway.sched.parts.controller import BudgetController
from headway.sched.parts.fairness import ReceivedCounters, VirtualCounters
from headway.sched.parts.lengths import OutputLengths
from headway.sched.parts.meter import StepMeter, add_load
from headway.sched.parts.prompts import PromptPass, PromptRules, resume_swapped
from headway.sched.parts.putoff import PutOff
from headway.sched.parts.shortage import relieve
from headway.sched.parts.siblings import PrefixesUnderway
from headway.sched.parts.standing import Rank, ranking
from headway.sched.parts.steptime import StepLoad

__all__ = [
    "BudgetController",
    "OutputLengths",
    "PeakGate",
    "PrefixesUnderway",
    "PromptPass",
    "PromptRules",
    "PutOff",
    "Rank",
    "ReceivedCounters",
    "StepLoad",
    "StepMeter",
    "VirtualCounters",
    "add_load",
    "ranking",
    "relieve",
    "resume_swapped",
]
