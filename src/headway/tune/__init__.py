"""Which settings to serve a workload with: searched in calibrated virtual time, verified on this machine.

Must not know: the command line. Start reading at `stages`, then `lab`, `verify`, `outcome`.
"""

from headway.tune.config import config_text
from headway.tune.lab import Lab, Sample
from headway.tune.outcome import Outcome, as_document
from headway.tune.page import tuning_page
from headway.tune.setting import Setting
from headway.tune.slo import SloTable, read_slo
from headway.tune.stages import QUICK_BUDGETS, QUICK_CONCURRENCY, Effort, tune
from headway.tune.traffic import Traffic

__all__ = [
    "QUICK_BUDGETS",
    "QUICK_CONCURRENCY",
    "Effort",
    "Lab",
    "Outcome",
    "Sample",
    "Setting",
    "SloTable",
    "Traffic",
    "as_document",
    "config_text",
    "read_slo",
    "tune",
    "tuning_page",
]
