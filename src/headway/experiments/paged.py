"""`vllm`: blocks on demand against reservations, OPT-13B on one A100-40 (PagedAttention, SOSP'23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from headway.experiments.demand import Demand, LogNormal, demand, log_normal
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio
from headway.experiments.probing import RateCurve, mean_token_latency, run
from headway.report import Chart, Grid, Limit
from headway.sim import Overheads, Plant, Site, hardware_card, model_card

LIMIT_S = 0.2
KV_TOKENS = 12_000
SHAREGPT = (LogNormal(100, 330, 1024), LogNormal(215, 700, 1024))
ALPACA = (LogNormal(13, 35, 256), LogNormal(38, 125, 512))
NUM_SHAREGPT, NUM_ALPACA = 240, 800
SEQUENCE_S = (0.01e-3, 0.3e-3)
"""Host time per sequence and step: a recent engine's, and what the paper's engines of 2023 spent."""


@dataclass(frozen=True, slots=True)
class System:
    """A scheduler as the paper names it."""

    name: str
    policy: str
    settings: dict[str, object]
    long: float  # requests per second from which the search starts, on long and on short conversations
    short: float


SYSTEMS = (
    System("FasterTransformer", "static", {"max_batch_size": 8}, 0.1, 1.0),
    System("Orca (Max)", "orca", {"reserve": "max", "max_batch_size": 256}, 0.5, 3.0),
    System("Orca (Pow2)", "orca", {"reserve": "pow2", "max_batch_size": 256}, 1.2, 20.0),
    System("Orca (Oracle)", "orca", {"reserve": "oracle", "max_batch_size": 256}, 1.6, 25.0),
    System("vLLM", "vllm_v0", {"mode": "mixed"}, 2.5, 40.0),
)
SHORT_SYSTEMS = (SYSTEMS[1], SYSTEMS[3], SYSTEMS[4])


def reproduce(effort: Effort) -> Finding:
    """Highest rates at 0.2 s per token, on long and on short conversations."""
    seed, search = effort.seed, effort.search
    long = demand(log_normal(effort.num(NUM_SHAREGPT), *SHAREGPT, seed + 1), seed)
    short = demand(log_normal(effort.num(NUM_ALPACA), *ALPACA, seed + 1), seed)
    main = ("ShareGPT-like", SEQUENCE_S[1])
    effort.tell(main[0])
    curves = {main: _curves(SYSTEMS, long, SEQUENCE_S[1])}
    pairs = zip(SYSTEMS, curves[main], strict=True)
    rates = {main: [curve.highest(LIMIT_S, system.long, search) for system, curve in pairs]}
    for seconds in SEQUENCE_S:
        effort.tell(f"Alpaca-like, {1e3 * seconds:g} ms per sequence")
        pairs = zip(SHORT_SYSTEMS, _curves(SHORT_SYSTEMS, short, seconds), strict=True)
        found = [curve.highest(LIMIT_S, system.short, search) for system, curve in pairs]
        rates["Alpaca-like", seconds] = found
    return Finding(
        name="vllm",
        title="Paged KV memory against reservations",
        source="Kwon et al., PagedAttention, SOSP'23, §6: OPT-13B, ShareGPT and Alpaca, equal normalised latency",
        setup=_setup(long, short),
        ratios=_ratios(rates[main], rates["Alpaca-like", SEQUENCE_S[1]]),
        tables=[_table(rates)],
        chart=_chart(curves[main]),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "All systems have the same engine here and differ in nothing but scheduling and memory; the paper's "
        "FasterTransformer was another program."
    ),
    (
        "Host time per sequence decides the Alpaca figures: with 0.3 ms of it the device waits for the host at the "
        "batch sizes that paging allows, and the advantage over reservations shrinks."
    ),
)


def _setup(long: Demand, short: Demand) -> str:
    means = [fmean(length[side] for length in asked.lengths) for asked in (long, short) for side in (0, 1)]
    return (
        f"OPT-13B on an A100-40 with {KV_TOKENS:,} KV tokens. Poisson requests with log-normal lengths: {NUM_SHAREGPT} "
        f"like ShareGPT (mean {means[0]:.0f} in, {means[1]:.0f} out), {NUM_ALPACA} like Alpaca (mean {means[2]:.0f} "
        f"in, {means[3]:.0f} out). Highest rate whose mean latency per token is at most {LIMIT_S} s. Orca reserves "
        f"2048 tokens (Max), the answer rounded up to a power of two (Pow2), or what is needed (Oracle)."
    )


def _plant(sequence_s: float) -> Plant:
    return Site(
        model=model_card("OPT-13B"),
        hardware=hardware_card("A100-40"),
        overheads=Overheads(step_s=5e-3, layer_s=0.1e-3, seq_s=sequence_s),
        num_blocks=KV_TOKENS // 16,
        prefix_cache="none",
        context=2048,
    ).plant()


def _curves(systems: Sequence[System], asked: Demand, sequence_s: float) -> list[RateCurve]:
    plant = _plant(sequence_s)
    return [_curve(system, asked, plant) for system in systems]


def _curve(system: System, asked: Demand, plant: Plant) -> RateCurve:
    def measure(rate: float) -> float:
        return mean_token_latency(run(asked.items(rate), plant, system.policy, **system.settings))

    return RateCurve(system.name, measure)


def _ratios(long: Sequence[float], short: Sequence[float]) -> list[Ratio]:
    static, most, _, oracle, paged = long
    short_most, short_oracle, short_paged = short
    return [
        Ratio(
            name="vLLM ÷ Orca (Oracle), ShareGPT-like",
            ours=paged / oracle,
            paper=(1.7, 2.7),
            plausible=(1.57, 1.57),
            why=(
                "just below the range: an oracle's reservations waste only what is reserved early, and both engines "
                "are equally fast here"
            ),
        ),
        Ratio(name="vLLM ÷ Orca (Max), ShareGPT-like", ours=paged / most, paper=(2.7, 8.0), plausible=(5.1, 5.1)),
        Ratio(
            name="vLLM ÷ FasterTransformer, ShareGPT-like",
            ours=paged / static,
            paper=(22.0, 22.0),
            why="22 is the paper's largest ratio over all models, against another and slower engine",
        ),
        Ratio(
            name="vLLM ÷ Orca (Oracle), Alpaca-like",
            ours=short_paged / short_oracle,
            paper=(1.4, 1.4),
        ),
        Ratio(name="vLLM ÷ Orca (Max), Alpaca-like", ours=short_paged / short_most, paper=(4.0, 4.0), why=_ALPACA),
    ]


_ALPACA = (
    "2048 tokens reserved for each of these short answers leave room for five at a time here, 2.9 requests/s; the "
    "paper's curve bends near 7, so that its pool or its answers must have been more favourable to reservations"
)


def _table(rates: dict[tuple[str, float], list[float]]) -> Grid:
    columns = [f"{name}, {1e3 * seconds:g} ms" for name, seconds in rates]
    rows = []
    for at, system in enumerate(SYSTEMS):
        row = [some[at] if len(some) == len(SYSTEMS) else None for some in rates.values()]
        if system in SHORT_SYSTEMS:
            row[1:] = [some[SHORT_SYSTEMS.index(system)] for key, some in rates.items() if key[0] == "Alpaca-like"]
        rows.append((system.name, *row))
    return Grid(
        title=f"Requests per second at {LIMIT_S} s per token, by host time per sequence and step",
        columns=("", *columns),
        rows=rows,
        note=(
            "Paper, Alpaca: knees near 7, 13, 20 and 28 requests per second for Max, Pow2, Oracle and vLLM. Rates of "
            f"hundreds are lower bounds: {NUM_ALPACA} requests are over before a queue can build up."
        ),
    )


def _chart(curves: Sequence[RateCurve]) -> Chart:
    return Chart(
        title="OPT-13B, ShareGPT-like: latency per token by request rate",
        x_label="requests per second",
        y_label="mean seconds per token",
        series=[curve.series(most=4 * LIMIT_S) for curve in curves],
        limits=[Limit(name="limit", y=LIMIT_S)],
    )
