"""Papers' set-ups in virtual time: their ratio beside ours.

Must not know: HTTP, terminals. Start reading at `registry`; each experiment is one module with a `reproduce`.
"""

from headway.experiments.document import papers_document
from headway.experiments.effort import QUICK, Effort
from headway.experiments.finding import Finding, Ratio, Verdict
from headway.experiments.registry import EXPERIMENTS, experiment

__all__ = ["EXPERIMENTS", "QUICK", "Effort", "Finding", "Ratio", "Verdict", "experiment", "papers_document"]
