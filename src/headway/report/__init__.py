"""What a run means: statistics, tables, plots and pages, the same for every tool that measures or simulates.

Must not know: where records come from, engines, servers, clocks. Start reading at `record`, then `percentiles`.
"""

from headway.report.percentiles import LEVELS, Summary, summarize
from headway.report.record import Outcome, RequestRecord, RunRecord, StepSample

__all__ = ["LEVELS", "Outcome", "RequestRecord", "RunRecord", "StepSample", "Summary", "summarize"]
