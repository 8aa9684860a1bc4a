"""What can be seen from outside: latencies, Prometheus metrics, the line about traffic.

Listens to the core's events and asks for snapshots; nothing in the engine calls it by name. `docs/metrics.md` has the
formulas. Start reading at `latency`.
"""

from headway.obs.decisions import Decisions
from headway.obs.histogram import Histogram
from headway.obs.latency import LatencyTracker, Lifetime
from headway.obs.live import LiveView
from headway.obs.load import Load
from headway.obs.logline import TrafficLog
from headway.obs.prometheus import CONTENT_TYPE, EngineMetrics
from headway.obs.recorder import Recorder
from headway.obs.refusals import Refusals
from headway.obs.spent import Spent
from headway.obs.tenants import TenantFigures
from headway.obs.token_ledger import Entry, TokenLedger
from headway.obs.watch import Watch
from headway.obs.work import WorkFigures

__all__ = [
    "CONTENT_TYPE",
    "Decisions",
    "EngineMetrics",
    "Entry",
    "Histogram",
    "LatencyTracker",
    "Lifetime",
    "LiveView",
    "Load",
    "Recorder",
    "Refusals",
    "Spent",
    "TenantFigures",
    "TokenLedger",
    "TrafficLog",
    "Watch",
    "WorkFigures",
]
