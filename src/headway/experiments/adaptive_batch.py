"""`dynamic-batch`: a batch size that follows memory and latency against fixed ones (arXiv 2503.05248)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

from headway.experiments.demand import Demand, LogNormal, demand, log_normal, request
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio, Row
from headway.experiments.probing import RateCurve, answered, run, throughput
from headway.report import Chart, Grid, Limit, Mark, RunRecord, Series
from headway.sim import Plant, Site, hardware_card, model_card, overheads

NUM_WAITING, NUM_ARRIVING = 150, 240
LENGTHS = (LogNormal(256, 256, 256), LogNormal(200, 480, 1024))
KV_TOKENS = 12_000
SIZES = (8, 16, 32, 64, 256)
TYPICAL = (16, 256)
"""Fixed sizes that waste memory, and that promise more than there is."""

LIMIT_S, DELAY_S = 0.05, 2.0
LATENCY_SIZES = (32, 64, 128, 256)
STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests per second, the mean gap between tokens, and how often somebody gave way."""

    rate: float
    gap_s: float
    num_preemptions: int


def reproduce(effort: Effort) -> Finding:
    """Throughput by batch size in little memory, and under a limit on the time between tokens."""
    lengths = log_normal(effort.num(NUM_WAITING), *LENGTHS, effort.seed + 1)
    small = {}
    for name, (policy, settings) in _memory_systems().items():
        effort.tell(f"little memory: {name}")
        items = [request(at, *pair, 0.0) for at, pair in enumerate(lengths)]
        small[name] = _outcome(run(items, _plant("A100-40", KV_TOKENS), policy, **settings))
    asked = demand(log_normal(effort.num(NUM_ARRIVING), *LENGTHS, effort.seed + 1), effort.seed)
    large, curves, capacity = {}, [], {}
    for name, (policy, settings) in _latency_systems().items():
        effort.tell(f"limit on gaps: {name}")
        plant = _plant("A100-80")
        large[name] = _outcome(run(asked.items(1e3), plant, policy, **settings))
        curves.append(_curve(name, asked, plant))
        capacity[name] = curves[-1].highest(LIMIT_S, 4.0, effort.search)
    return Finding(
        name="dynamic-batch",
        title="A batch size that follows memory and latency",
        source="Memory-aware and SLA-constrained dynamic batching, arXiv 2503.05248: throughput and capacity",
        setup=(
            f"OPT-13B, prompts of 256 and log-normal answers (median 200). Memory: an A100-40 with {KV_TOKENS:,} KV "
            f"tokens, {NUM_WAITING} requests that all wait; fixed sizes against the paper's first rule (expected "
            "lengths) and the authors' adaptation to vLLM (blocks in use). Latency: an A100-80, "
            f"{NUM_ARRIVING} Poisson requests, steps of at most {STEP_TOKENS} tokens; capacity is the highest rate "
            f"whose mean time between tokens is at most {1e3 * LIMIT_S:g} ms while the median request waits at most "
            f"{DELAY_S:g} s. The base is vllm in all cases."
        ),
        ratios=_ratios(small, large, capacity),
        tables=[_memory_table(small), _latency_table(large, capacity)],
        chart=_chart(small, large),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "The gain is one over a size that was chosen badly: over the best fixed size there is next to none, but that "
        "size is another one for every memory, model and mix of lengths."
    ),
    (
        "Too large a fixed size costs little here, since giving way by recompute is cheap with short prompts and a "
        "fast device; where KV is swapped, or prompts are long, the same number of preemptions costs more."
    ),
)
Systems = Mapping[str, tuple[str, Mapping[str, object]]]


def _memory_systems() -> Systems:
    fixed: dict[str, tuple[str, Mapping[str, object]]] = {
        f"fixed, {size}": ("vllm", {"max_num_seqs": size}) for size in SIZES
    }
    rules = {"expected lengths": "lengths", "blocks in use": "usage"}
    return fixed | {
        name: ("dynamic_batch", {"memory": rule, "tbt_target": 0.0, "batchsize_start": SIZES[1]})
        for name, rule in rules.items()
    }


def _latency_systems() -> Systems:
    step = {"max_num_batched_tokens": STEP_TOKENS}
    fixed: dict[str, tuple[str, Mapping[str, object]]] = {
        f"fixed, {size}": ("vllm", {**step, "max_num_seqs": size}) for size in LATENCY_SIZES
    }
    return fixed | {"dynamic": ("dynamic_batch", {**step, "tbt_target": LIMIT_S})}


def _plant(hardware: str, kv_tokens: int | None = None) -> Plant:
    return Site(
        model=model_card("OPT-13B"),
        hardware=hardware_card(hardware),
        overheads=overheads("cuda-graph"),
        num_blocks=None if kv_tokens is None else kv_tokens // 16,
        prefix_cache="none",
        context=2048,
    ).plant()


def _outcome(record: RunRecord) -> Outcome:
    gaps = (gap for one in answered(record) for gap in one.itl_s)
    return Outcome(throughput(record), fmean(gaps), int(record.server["num_preemptions"]))


def _curve(name: str, asked: Demand, plant: Plant) -> RateCurve:
    policy, settings = _latency_systems()[name]

    def measure(rate: float) -> float:
        record = run(asked.items(rate), plant, policy, **settings)
        requests = answered(record)
        if median(one.queue_s or 0.0 for one in requests) > DELAY_S:
            return float("inf")
        return fmean(gap for one in requests for gap in one.itl_s)

    return RateCurve(name, measure)


def _ratios(small: Mapping[str, Outcome], large: Mapping[str, Outcome], capacity: Mapping[str, float]) -> list[Ratio]:
    best = max(small[name].rate for name in ("expected lengths", "blocks in use"))
    meets = [one.rate for name, one in large.items() if name != "dynamic" and one.gap_s <= LIMIT_S]
    ratios = [
        Ratio(
            name=f"throughput in little memory, dynamic ÷ fixed, {size}",
            ours=best / small[f"fixed, {size}"].rate,
            paper=(1.08, 1.28),
            plausible=(1.1, 1.3),
            why=why,
        )
        for size, why in zip(TYPICAL, _MEMORY_WHY, strict=True)
    ]
    return [
        *ratios,
        Ratio(
            name="throughput in little memory, dynamic ÷ the best fixed size",
            ours=best / max(small[f"fixed, {size}"].rate for size in SIZES),
        ),
        Ratio(
            name=f"throughput at {1e3 * LIMIT_S:g} ms, dynamic ÷ the best fixed size that keeps it",
            ours=large["dynamic"].rate / max(meets) if meets else float("inf"),
        ),
        *(
            Ratio(
                name=f"capacity, dynamic ÷ fixed, {size}",
                ours=capacity["dynamic"] / capacity[f"fixed, {size}"],
                paper=(1.22, 1.22),
                why="it depends on which fixed size it is compared with: see the table",
            )
            for size in (LATENCY_SIZES[0], LATENCY_SIZES[-1])
            if capacity[f"fixed, {size}"]
        ),
    ]


_MEMORY_WHY = (
    "how far too small the fixed size is decides: see the table",
    "recompute after a preemption is cheap here, so that too large a size costs a few per cent only",
)


def _memory_table(small: Mapping[str, Outcome]) -> Grid:
    rows: list[Row] = [(name, one.rate, one.num_preemptions, 1e3 * one.gap_s) for name, one in small.items()]
    columns = ("batch size", "requests/s", "preemptions", "mean ms between tokens")
    return Grid(title=f"In {KV_TOKENS:,} KV tokens, all requests waiting", columns=columns, rows=rows)


def _latency_table(large: Mapping[str, Outcome], capacity: Mapping[str, float]) -> Grid:
    rows: list[Row] = [(name, one.rate, 1e3 * one.gap_s, capacity[name]) for name, one in large.items()]
    columns = ("batch size", "requests/s, all waiting", "mean ms between tokens", "capacity, requests/s")
    return Grid(title=f"With a limit of {1e3 * LIMIT_S:g} ms between tokens", columns=columns, rows=rows)


def _chart(small: Mapping[str, Outcome], large: Mapping[str, Outcome]) -> Chart:
    fixed = [one for name, one in large.items() if name != "dynamic"]
    tight = [one for name, one in small.items() if name.startswith("fixed")]
    rules = [one for name, one in small.items() if not name.startswith("fixed")]
    series = [
        Series(name=name, x=[one.rate for one in some], y=[1e3 * one.gap_s for one in some], mark=mark)
        for name, some, mark in (
            ("much memory, fixed sizes", fixed, Mark.LINE),
            ("much memory, dynamic", [large["dynamic"]], Mark.DOTS),
            ("little memory, fixed sizes", tight, Mark.LINE),
            ("little memory, dynamic", rules, Mark.DOTS),
        )
    ]
    return Chart(
        title="Fixed and dynamic batch sizes, all requests waiting",
        x_label="requests per second",
        y_label="mean ms between tokens",
        series=series,
        limits=[Limit(name="limit", y=1e3 * LIMIT_S)],
    )
