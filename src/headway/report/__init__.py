"""What a run means: statistics, tables, plots and pages, the same for every tool that measures or simulates.

Must not know: where records come from, engines, servers, clocks. Start reading at `record`, then `metrics`, then
`run_page`.
"""

from headway.report.chart import Chart, Limit, Mark, Series, cdf
from headway.report.compare import compare_page, compare_runs, compare_warnings
from headway.report.fairness import jain
from headway.report.figures import save_chart
from headway.report.grid import Cell, Grid
from headway.report.metrics import Group, Latencies, Ledger, RunMetrics, measure
from headway.report.page import Card, Section, render_page
from headway.report.percentiles import LEVELS, Summary, summarize
from headway.report.record import Outcome, RequestRecord, RunRecord, StepSample
from headway.report.result_json import result_json, with_details
from headway.report.run_page import run_markdown, run_page, run_text
from headway.report.spread import Spread, bootstrap, over_repeats, percentile
from headway.report.store import load_run, save_csv, save_run
from headway.report.tables import run_tables
from headway.report.validity import Verdict, judge
from headway.report.window import Window, choose_window

__all__ = [
    "LEVELS",
    "Card",
    "Cell",
    "Chart",
    "Grid",
    "Group",
    "Latencies",
    "Ledger",
    "Limit",
    "Mark",
    "Outcome",
    "RequestRecord",
    "RunMetrics",
    "RunRecord",
    "Section",
    "Series",
    "Spread",
    "StepSample",
    "Summary",
    "Verdict",
    "Window",
    "bootstrap",
    "cdf",
    "choose_window",
    "compare_page",
    "compare_runs",
    "compare_warnings",
    "jain",
    "judge",
    "load_run",
    "measure",
    "over_repeats",
    "percentile",
    "render_page",
    "result_json",
    "run_markdown",
    "run_page",
    "run_tables",
    "run_text",
    "save_chart",
    "save_csv",
    "save_run",
    "summarize",
    "with_details",
]
