"""What clients do: when requests come, how long they are, what they share, when their senders give up.

Must not know: who answers. A workload is the same for a server, an engine and a simulator. Start reading at `item`.
"""

from headway.core import Slo
from headway.workload.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Ramp, Replay, Weibull
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
from headway.workload.seeds import stream
from headway.workload.traces import Trace, TraceRow, read_trace

__all__ = [
    "Arrivals",
    "Clamped",
    "Constant",
    "Empirical",
    "Fixed",
    "Gamma",
    "Lengths",
    "LogNormal",
    "Normal",
    "OnOff",
    "Poisson",
    "Quantiles",
    "Ramp",
    "Replay",
    "Scaled",
    "Slo",
    "Trace",
    "TraceRow",
    "Truncated",
    "Uniform",
    "Weibull",
    "WorkItem",
    "Zipf",
    "read_trace",
    "stream",
]
