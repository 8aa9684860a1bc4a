"""What clients do: when requests come, how long they are, what they share, when their senders give up.

Must not know: who answers. A workload is the same for a server, an engine and a simulator. Start reading at `item`.
"""

from headway.core import Slo
from headway.workload.arrivals import Arrivals, AtOnce, Constant, Gamma, OnOff, Poisson, Ramp, Replay, Weibull
from headway.workload.flags import FLAGS, Flag
from headway.workload.item import WorkItem
from headway.workload.lengths import (
    Clamped,
    Empirical,
    Fixed,
    Lengths,
    LogNormal,
    Normal,
    Quantiles,
    Scaled,
    Truncated,
    Uniform,
    Zipf,
)
from headway.workload.loading import load_workload
from headway.workload.prompts import Encoder, IdMaker, PromptMaker, continues
from headway.workload.seeds import stream
from headway.workload.spec import parse_workload
from headway.workload.texts import Texts
from headway.workload.traces import Trace, TraceRow, read_trace
from headway.workload.workload import Workload

__all__ = [
    "FLAGS",
    "Arrivals",
    "AtOnce",
    "Clamped",
    "Constant",
    "Empirical",
    "Encoder",
    "Fixed",
    "Flag",
    "Gamma",
    "IdMaker",
    "Lengths",
    "LogNormal",
    "Normal",
    "OnOff",
    "Poisson",
    "PromptMaker",
    "Quantiles",
    "Ramp",
    "Replay",
    "Scaled",
    "Slo",
    "Texts",
    "Trace",
    "TraceRow",
    "Truncated",
    "Uniform",
    "Weibull",
    "WorkItem",
    "Workload",
    "Zipf",
    "continues",
    "load_workload",
    "parse_workload",
    "read_trace",
    "stream",
]
