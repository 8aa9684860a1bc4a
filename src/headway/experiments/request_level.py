"""`static`: how much of its work request-level batching wastes on the lengths that real users send."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.core import Event, StepRecord
from headway.engine.core import Emit
from headway.experiments.demand import Length, request, sample
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio
from headway.experiments.probing import answered, run
from headway.report import Chart, Grid, Limit, Series
from headway.sim import Plan, Plant, Pool, Site, hardware_card, model_card, overheads, simulate
from headway.workload import WorkItem

TRACES = {"azure_conv": "Azure chat", "sharegpt_8k": "ShareGPT", "arxiv_4k": "arXiv summaries"}
NUM_REQUESTS, NUM_REFILLED = 256, 128
BATCHES = (4, 8, 16, 32)
TYPICAL = 16
PAPER = (0.5, 0.8)


@dataclass(slots=True)
class Waste:
    """Rows of tokens that the device computed: useful ones, of ended sequences, and of padding."""

    useful: int = 0
    decoded: int = 0
    ended: int = 0
    padding: int = 0

    @property
    def of_decoding(self) -> float:
        """Rows of ended sequences ÷ all rows of decode steps."""
        return self.ended / (self.ended + self.decoded)

    @property
    def of_all(self) -> float:
        """Rows that served nobody ÷ all rows."""
        lost = self.ended + self.padding
        return lost / (lost + self.useful)

    def replica(self, _name: str) -> Emit:
        """A listener that counts."""
        return self._listen

    def _listen(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, StepRecord):
                self.useful += sum(event.grants.values())
                self.decoded += sum(num == 1 for num in event.grants.values())
                self.ended += len(event.wasted_rows)
                self.padding += sum(event.padding.values())


def reproduce(effort: Effort) -> Finding:
    """All traces at all batch sizes."""
    plant = Site(
        model=model_card("Llama-3-8B"),
        hardware=hardware_card("A100-80"),
        overheads=overheads("cuda-graph"),
        prefix_cache="none",
    ).plant()
    waste, gains = {}, {}
    for trace, name in TRACES.items():
        effort.tell(name)
        rows = sample(trace, effort.seed)
        waste[trace] = {batch: measure_waste(rows[: effort.num(NUM_REQUESTS, 16)], plant, batch) for batch in BATCHES}
        gains[trace] = _gain(rows[: effort.num(NUM_REFILLED, 16)], plant)
    ratios = [
        Ratio(
            name=f"decode rows wasted, {TRACES[trace]}, batch {TYPICAL}",
            ours=waste[trace][TYPICAL].of_decoding,
            paper=PAPER,
            why=_WHY.get(trace, ""),
        )
        for trace in TRACES
    ]
    return Finding(
        name="static",
        title="What request-level batching wastes",
        source="FasterTransformer-style batching; the 50–80 % that are quoted for real length mixes",
        setup=(
            f"Llama-3-8B on an A100-80, {NUM_REQUESTS} requests of each trace waiting at the start, in the trace's "
            "order. A batch "
            "runs until its longest answer ends; rows that ended before are computed all the same."
        ),
        ratios=ratios,
        tables=[_waste_table(waste), _gain_table(gains)],
        chart=_chart(waste),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "The share grows with the batch, because the longest of many answers is longer. It depends on lengths alone, "
        "not on any cost model."
    ),
    (
        "Wasted rows cost little time while decoding is bound by reading weights: the loss of throughput is that no "
        "new request may take the free rows, which the second table shows."
    ),
)
_WHY = {"arxiv_4k": "a few answers are far longer than the rest, and each keeps its whole batch waiting"}


def measure_waste(lengths: list[Length], plant: Plant, batch: int) -> Waste:
    """Serve requests that all wait at the start, in static batches."""
    waste = Waste()
    plan = Plan(policy="static", settings={"max_batch_size": str(batch)})
    answered(simulate(_waiting(lengths), Pool(plant=plant, plan=plan, observers=[waste.replica])))
    return waste


def _gain(lengths: list[Length], plant: Plant) -> tuple[float, float]:
    """Requests per second at a batch size of 16: request-level batches, and the same rows refilled at each step."""
    roomy = replace(plant, context=None)
    static = run(_waiting(lengths), roomy, "static", max_batch_size=TYPICAL)
    refilled = run(_waiting(lengths), roomy, "orca", max_batch_size=TYPICAL)
    return len(answered(static)) / static.duration_s, len(answered(refilled)) / refilled.duration_s


def _waiting(lengths: list[Length]) -> list[WorkItem]:
    return [request(number, *pair, 0.0) for number, pair in enumerate(lengths)]


def _waste_table(waste: dict[str, dict[int, Waste]]) -> Grid:
    rows = [
        (f"{TRACES[trace]}, batch {batch}", one.of_decoding, one.of_all)
        for trace, by_batch in waste.items()
        for batch, one in by_batch.items()
    ]
    return Grid(
        title="Waste by batch size",
        columns=("", "of decode rows", "of all rows, padding too"),
        rows=rows,
    )


def _gain_table(gains: dict[str, tuple[float, float]]) -> Grid:
    rows = [(TRACES[trace], static, refilled, refilled / static) for trace, (static, refilled) in gains.items()]
    return Grid(
        title=f"The same {TYPICAL} rows, refilled at each step, {NUM_REFILLED} requests",
        columns=("", "static, requests/s", "refilled, requests/s", "ratio"),
        rows=rows,
    )


def _chart(waste: dict[str, dict[int, Waste]]) -> Chart:
    series = [
        Series(name=TRACES[trace], x=list(by_batch), y=[100 * one.of_decoding for one in by_batch.values()])
        for trace, by_batch in waste.items()
    ]
    limits = [Limit(name="50 %", y=50.0), Limit(name="80 %", y=80.0)]
    return Chart(
        title="Decode rows that served nobody",
        x_label="rows of a static batch",
        y_label="% of decode rows",
        series=series,
        limits=limits,
    )
