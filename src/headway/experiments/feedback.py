"""`fastserve`: skip-join feedback queues with preemption at every step against first come, first served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from headway.experiments.demand import Demand, LogNormal, demand, log_normal, uniform
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio, Row
from headway.experiments.probing import run, token_latencies
from headway.report import Chart, Grid, Mark, Series
from headway.sim import CostModel, Load, Overheads, Plant, Site, hardware_card, model_card

NUM_REQUESTS, NUM_LONG = 150, 150
RATES = (2.0, 3.0, 4.0)
LONG_RATES = (3.0, 4.0)
TYPICAL = 3.0
BATCHES = (64, 16)
LENGTHS = (LogNormal(100, 330, 1024), LogNormal(215, 700, 1024))
LONG_PROMPTS, SHORT_ANSWERS = (16, 1900), (1, 40)
KV_TOKENS = 12_000
SLOW_SEQUENCE_S = 0.3e-3
"""Host time per sequence and step of a Python engine of 2023; the paper's own engine is compiled."""

MLFQ: Mapping[str, object] = {"first_quantum": 0.03, "promote_after": 3.0, "demote": "repo"}
Systems = Mapping[str, tuple[str, Mapping[str, object]]]


@dataclass(frozen=True, slots=True)
class Overlapped(CostModel):
    """Swaps run on a stream of their own: a step takes as long as the longer of computing and copying."""

    cost: CostModel

    def predict(self, load: Load) -> float:
        """Seconds of the step."""
        computing = self.cost.predict(replace(load, num_swapped=0))
        both = self.cost.predict(load)
        return max(computing, both - computing)


def reproduce(effort: Effort) -> Finding:
    """Mean latency per token at equal rates, by batch size, and what single parts of FastServe are worth."""
    asked = demand(log_normal(effort.num(NUM_REQUESTS), *LENGTHS, effort.seed + 1), effort.seed)
    long = demand(uniform(effort.num(NUM_LONG), LONG_PROMPTS, SHORT_ANSWERS, effort.seed + 1), effort.seed)
    found = {}
    for rows in BATCHES:
        effort.tell(f"batches of {rows}")
        found[rows] = _latencies(asked, RATES, _plant(), _systems(rows))
    effort.tell("a slower vLLM, long prompts, and other rules")
    slow = _latencies(asked, RATES, _plant(SLOW_SEQUENCE_S), {"vLLM": ("vllm_v0", {"mode": "mixed"})})
    joins = _latencies(long, LONG_RATES, _plant(), _joins(BATCHES[1]))
    rules = _latencies(asked, (TYPICAL,), _plant(), _rules(BATCHES[1]))
    return Finding(
        name="fastserve",
        title="Skip-join multi-level feedback queues",
        source="Wu et al., FastServe, arXiv 2305.05920 and NSDI'26, §6: OPT-13B, ShareGPT, mean latency at equal rates",
        setup=(
            f"OPT-13B on an A100-40 with {KV_TOKENS:,} KV tokens and a host tier without limit, whose copies overlap "
            f"with computing; {NUM_REQUESTS} Poisson requests with log-normal lengths like ShareGPT. FastServe as in "
            "its repository: quanta of 30, 60, 120 … ms, a sequence that has exceeded one goes to the front of the "
            "next level, promotion after 3 s. First come, first served: like Orca, which reserves prompt and answer, "
            "and like vLLM, which takes blocks as they are needed. All have the same engine and the same batch size."
        ),
        ratios=_ratios(found, slow, joins),
        tables=[_table(found, slow), _joins_table(joins), _rules_table(rules, found[BATCHES[1]])],
        chart=_chart(found[BATCHES[0]], found[BATCHES[1]]),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "Where a sequence that has used up its quantum goes decides everything once memory is short: at the back of "
        "its new level (as textbooks have it) sequences take turns step by step, and each turn moves KV over the link "
        "to the host; at the front, as in the authors' program, a sequence runs on until a better one comes."
    ),
    "The same holds for promotion: after the 0.3 s that the paper names everybody is promoted all the time.",
    (
        "Skip-join and the plain feedback queue differ only where prompts take several quanta; ShareGPT's take one or "
        "two. With long prompts both fall far behind arrival order here: whoever loses its turn leaves KV behind that "
        "has to be moved, and the ratio is one between two systems short of memory. With 60,000 KV tokens nothing is "
        "moved, and all three are alike."
    ),
)


def _plant(sequence_s: float = 0.05e-3) -> Plant:
    site = Site(
        model=model_card("OPT-13B"),
        hardware=hardware_card("A100-40"),
        overheads=Overheads(step_s=2e-3, layer_s=0.1e-3, seq_s=sequence_s),
        num_blocks=KV_TOKENS // 16,
        prefix_cache="none",
        context=2048,
    )
    plant = site.plant()
    return replace(plant, cost=Overlapped(plant.cost))


def _systems(rows: int) -> Systems:
    return {
        "FastServe": ("fastserve", {**MLFQ, "max_batch_size": rows}),
        "Orca": ("orca", {"max_batch_size": rows}),
        "vLLM": ("vllm_v0", {"mode": "mixed", "max_num_seqs": rows}),
    }


def _joins(rows: int) -> Systems:
    return {
        "skip-join": ("fastserve", {**MLFQ, "max_batch_size": rows}),
        "plain feedback queues": ("fastserve", {**MLFQ, "max_batch_size": rows, "skip_join": False}),
        "first come, first served": ("orca", {"max_batch_size": rows}),
    }


def _rules(rows: int) -> Systems:
    usual = {**MLFQ, "max_batch_size": rows}
    return {
        "to the back of the next level": ("fastserve", {**usual, "demote": "paper"}),
        "promotion after 0.3 s": ("fastserve", {**usual, "promote_after": 0.3}),
        "swaps only when blocks lack": ("fastserve", {**usual, "swap": "reactive"}),
    }


Latencies = Mapping[tuple[str, float], Sequence[float]]
"""Seconds per token of each request, by system and rate."""


def _latencies(asked: Demand, rates: Sequence[float], plant: Plant, systems: Systems) -> Latencies:
    return {
        (name, rate): token_latencies(run(asked.items(rate), plant, policy, **settings))
        for name, (policy, settings) in systems.items()
        for rate in rates
    }


def _gain(found: Latencies, other: str, ours: str = "FastServe", rate: float = TYPICAL) -> float:
    return fmean(found[other, rate]) / fmean(found[ours, rate])


def _ratios(found: Mapping[int, Latencies], slow: Latencies, joins: Latencies) -> list[Ratio]:
    large, small = BATCHES
    return [
        Ratio(
            name=f"÷ first come (Orca), batches of {large}",
            ours=_gain(found[large], "Orca"),
            paper=(2.0, 4.0),
            plausible=(2.5, 3.7),
        ),
        Ratio(
            name=f"÷ first come (Orca), batches of {small}",
            ours=_gain(found[small], "Orca"),
            paper=(2.0, 4.0),
            plausible=(1.2, 1.5),
            why=(
                "small batches never fill the memory, so that nobody waits for reservations; what is left is the gain "
                "of answering short requests first"
            ),
        ),
        Ratio(
            name=f"÷ vLLM, equal engines, batches of {large}",
            ours=_gain(found[large], "vLLM"),
            paper=(2.1, 6.1),
            why="vLLM admits far more than Orca, so that little waits at this rate; the paper's vLLM was slower",
        ),
        Ratio(
            name=f"÷ vLLM with {1e3 * SLOW_SEQUENCE_S:g} ms per sequence, up to 256",
            ours=fmean(slow["vLLM", TYPICAL]) / fmean(found[large]["FastServe", TYPICAL]),
            paper=(2.1, 6.1),
            why="the engine's host time decides: see the table by rate",
        ),
        Ratio(
            name="skip-join ÷ plain feedback queues, long prompts",
            ours=max(_gain(joins, "plain feedback queues", "skip-join", rate) for rate in LONG_RATES),
            paper=(1.0, 1.87),
            why="1.87 is the paper's largest ratio",
        ),
    ]


def _table(found: Mapping[int, Latencies], slow: Latencies) -> Grid:
    rows: list[Row] = [
        (f"{name}, batches of {size}", *(fmean(some[name, rate]) for rate in RATES))
        for size, some in found.items()
        for name in _systems(size)
    ]
    rows.append(
        (f"vLLM, {1e3 * SLOW_SEQUENCE_S:g} ms per sequence, up to 256", *(fmean(slow["vLLM", rate]) for rate in RATES))
    )
    columns = ("", *(f"{rate:g} requests/s" for rate in RATES))
    return Grid(title="Mean seconds per token", columns=columns, rows=rows)


def _joins_table(joins: Latencies) -> Grid:
    rows: list[Row] = [
        (name, *(fmean(joins[name, rate]) for rate in LONG_RATES), *(_p95(joins[name, rate]) for rate in LONG_RATES))
        for name in _joins(1)
    ]
    columns = ("", *(f"{kind}, {rate:g} requests/s" for kind in ("mean", "P95") for rate in LONG_RATES))
    return Grid(
        title=(
            f"Prompts of {LONG_PROMPTS[0]}–{LONG_PROMPTS[1]} and answers of {SHORT_ANSWERS[0]}–{SHORT_ANSWERS[1]} "
            f"tokens, batches of {BATCHES[1]}: seconds per token"
        ),
        columns=columns,
        rows=rows,
    )


def _rules_table(rules: Latencies, usual: Latencies) -> Grid:
    every = {"as above": usual["FastServe", TYPICAL], **{name: rules[name, TYPICAL] for name in _rules(1)}}
    rows: list[Row] = [(name, fmean(one), _p95(one)) for name, one in every.items()]
    return Grid(
        title=f"FastServe under other rules, batches of {BATCHES[1]}, {TYPICAL:g} requests/s: seconds per token",
        columns=("", "mean", "P95"),
        rows=rows,
    )


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


def _chart(large: Latencies, small: Latencies) -> Chart:
    series = [
        Series(
            name=f"{name}, batches of {size}",
            x=list(RATES),
            y=[fmean(some[name, rate]) for rate in RATES],
            mark=Mark.LINE,
        )
        for size, some in zip(BATCHES, (large, small), strict=True)
        for name in _systems(size)
    ]
    return Chart(
        title="OPT-13B, ShareGPT-like: latency per token by request rate",
        x_label="requests per second",
        y_label="mean seconds per token",
        series=series,
    )
