"""The document about all papers: `docs/papers.md` is what `papers_document` returns."""

from __future__ import annotations

from collections.abc import Sequence

from headway.experiments.finding import Finding, Ratio, Verdict
from headway.report import Grid

_HEAD = """# Papers, reproduced

`headway reproduce all` wrote this file: it runs each paper's set-up in the simulator, with the same schedulers that
serve real requests, and puts the paper's ratio beside ours. Do not edit it by hand.

Read it with these limits in mind:

- **Ratios, not rates.** Step times come from a roofline model of the hardware, and engines of that time had overheads
  of their own. Where a ratio depends on such an assumption, a table sweeps it.
- **Small runs.** Each run has hundreds of requests, not thousands, so that everything takes minutes. A highest rate
  is found to 6 %: a ratio of two of them may be off by as much.
- **"As published"** means inside the paper's range, or within 25 % of its one figure. *Plausible* is the range that
  simulations and closed forms of the same set-up reach, where one is known.
- Figures without a mark in the paper's text come from summaries of it and may differ in detail from the original.
"""


def papers_document(findings: Sequence[Finding], figures: str = "figures") -> str:
    """All findings as Markdown; figures are linked as `{figures}/NAME.svg`."""
    parts = [_HEAD, _overview(findings), *(_section(finding, figures) for finding in findings)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _overview(findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        table = finding.ratio_table()
        rows += [(f"[{finding.name}](#{finding.name}): {row[0]}", *row[1:]) for row in table.rows]
    columns = ("", "paper", "plausible", "ours", "verdict")
    return "## All ratios\n\n" + Grid(title="", columns=columns, rows=rows).to_markdown()


def _section(finding: Finding, figures: str) -> str:
    parts = [
        f"## {finding.name}",
        f"**{finding.title}.** {finding.source}.",
        finding.setup,
        f"![{finding.chart.title}]({figures}/{finding.name}.svg)",
        finding.ratio_table().to_markdown(),
        *(f"- **{ratio.name}**: {_reason(ratio)}" for ratio in finding.ratios if _needs_reason(ratio)),
        *(table.to_markdown() for table in finding.tables),
        "\n".join(f"- {remark}" for remark in finding.remarks),
    ]
    return "\n\n".join(part for part in parts if part)


def _needs_reason(ratio: Ratio) -> bool:
    return ratio.verdict in (Verdict.LARGER, Verdict.SMALLER) or not ratio.is_plausible


def _reason(ratio: Ratio) -> str:
    return ratio.why or "does not come out, and we do not know why"
