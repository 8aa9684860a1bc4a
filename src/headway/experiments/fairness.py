"""`vtc`: fair shares between clients against first come, first served (OSDI'24)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from headway.experiments.demand import request
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio
from headway.experiments.probing import answered, run
from headway.report import Chart, Grid, RequestRecord, Series
from headway.sim import Plant, Site, hardware_card, model_card, overheads
from headway.workload import WorkItem

POOLS = (10_000, 12_000, 14_000)
"""KV tokens that the published runs were given, between the first and the last."""

POOL_TOKENS = POOLS[1]
EQUAL_S, MIXED_S = 120.0, 150.0
POLICIES: Mapping[str, tuple[str, dict[str, object]]] = {
    "FCFS": ("vllm_v0", {"mode": "prefill_first"}),
    "VTC": ("vtc", {"base": "vllm_v0", "mode": "prefill_first"}),
}


@dataclass(frozen=True, slots=True)
class Client:
    """Poisson requests of one size."""

    name: str
    rate: float
    num_prompt: int
    num_output: int


@dataclass(frozen=True, slots=True)
class Spans:
    """Seconds during which requests come."""

    equal_s: float
    mixed_s: float


EQUAL = (Client("small", 1.5, 256, 256), Client("big", 3.0, 256, 256))
MIXED = (Client("0", 8.2, 512, 32), Client("1", 1.52, 32, 512))
"""Rates and lengths of the published runs `poisson_short_long_2`."""

EQUAL_TTFT = {("VTC", "small"): 124.5 / 360, ("VTC", "big"): 353.4 / 360, ("FCFS", "small"): 484.9 / 600}
EQUAL_TTFT[("FCFS", "big")] = 485.0 / 600
MIXED_TTFT = {("FCFS", "0"): 250.2 / 292.7, ("FCFS", "1"): 244.6 / 292.7}
MIXED_TTFT |= {("VTC", "0"): 901.5 / 584.3, ("VTC", "1"): 302.7 / 584.3}
MIXED_END = {("FCFS", "0"): 790.8 / 292.7, ("FCFS", "1"): 806.2 / 292.7}
MIXED_END |= {("VTC", "0"): 1856.0 / 584.3, ("VTC", "1"): 1210.3 / 584.3}
"""Measured: mean TTFT and the last answer's end, as multiples of the time over which requests came."""


def reproduce(effort: Effort) -> Finding:
    """Two clients that ask for more than there is: of equal requests, then of short and long answers."""
    plant = machine(POOL_TOKENS)
    spans = Spans(effort.share * EQUAL_S, effort.share * MIXED_S)
    effort.tell("equal requests")
    equal = {name: serve(plant, name, EQUAL, spans.equal_s, effort.seed) for name in POLICIES}
    effort.tell("short and long answers")
    mixed = {name: serve(plant, name, MIXED, spans.mixed_s, effort.seed) for name in POLICIES}
    effort.tell("other engine speeds")
    pools = {pool: serve(machine(pool), "VTC", EQUAL, spans.equal_s, effort.seed) for pool in POOLS}
    return Finding(
        name="vtc",
        title="Fair shares with virtual token counters",
        source="Sheng et al., Fairness in Serving LLMs, OSDI'24, and the measurements published with it",
        setup=(
            f"Llama-7B on an A10G with {POOL_TOKENS:,} KV tokens, charge 1 per prompt and 2 per output token. Equal "
            f"requests: two Poisson clients of 1.5 and 3 requests/s, 256 tokens in and out, for {EQUAL_S:g} s. Short "
            "and long answers: client 0 sends 512 and gets 32 tokens, 8.2 times a second, client 1 sends 32 and gets "
            f"512, 1.52 times, for {MIXED_S:g} s. Times are multiples of these seconds: in overload waits grow "
            "with them, and the published runs took 293 to 600 s."
        ),
        ratios=_ratios(equal, mixed, spans),
        tables=[_equal_table(equal, spans), _mixed_table(mixed, spans), _pool_table(pools, spans)],
        chart=_chart(equal["VTC"], equal["FCFS"]),
        remarks=_remarks(equal, mixed, spans),
    )


def machine(pool: int) -> Plant:
    """An A10G with room for `pool` tokens."""
    return Site(
        model=model_card("Llama-2-7B"),
        hardware=hardware_card("A10G"),
        overheads=overheads("cuda-graph"),
        num_blocks=pool // 16,
        prefix_cache="none",
    ).plant()


def serve(plant: Plant, name: str, clients: Sequence[Client], seconds: float, seed: int) -> list[RequestRecord]:
    """One run. Both policies see the same requests."""
    policy, settings = POLICIES[name]
    return answered(run(_items(clients, seconds, seed), plant, policy, **settings))


def _items(clients: Sequence[Client], seconds: float, seed: int) -> list[WorkItem]:
    moments = []
    for client in clients:
        rng, at_s = random.Random(client.name if seed == 1 else f"{client.name}/{seed}"), 0.0
        while (at_s := at_s + rng.expovariate(client.rate)) < seconds:
            moments.append((at_s, client))
    moments.sort(key=lambda moment: moment[0])
    return [
        request(number, client.num_prompt, client.num_output, at_s, client.name)
        for number, (at_s, client) in enumerate(moments)
    ]


Records = Mapping[str, list[RequestRecord]]
"""By policy."""


def mean_ttft(records: Sequence[RequestRecord], tenant: str) -> float:
    """Seconds to the first token, of one client."""
    return fmean(one.ttft_s or 0.0 for one in records if one.tenant == tenant)


def _end(records: Sequence[RequestRecord], tenant: str) -> float:
    return max(one.end_s for one in records if one.tenant == tenant)


def throughput(records: Sequence[RequestRecord]) -> float:
    """Requests per second, to the last answer."""
    return len(records) / max(one.end_s for one in records)


def _ratios(equal: Records, mixed: Records, spans: Spans) -> list[Ratio]:
    small, big = EQUAL_TTFT["VTC", "small"], EQUAL_TTFT["VTC", "big"]
    order = MIXED_TTFT["VTC", "0"] / MIXED_TTFT["VTC", "1"]
    fcfs = MIXED_TTFT["FCFS", "0"] / MIXED_TTFT["FCFS", "1"]
    rate = throughput(equal["VTC"])
    fluid = fluid_wait(rate, EQUAL[0].rate)
    return [
        Ratio(
            name="equal requests, VTC: small client's TTFT ÷ duration",
            ours=mean_ttft(equal["VTC"], "small") / spans.equal_s,
            paper=(small, small),
            plausible=(fluid, fluid),
            why="it follows from the engine's speed: see the fluid model below",
        ),
        Ratio(
            name="equal requests, VTC: big client's TTFT ÷ small client's",
            ours=mean_ttft(equal["VTC"], "big") / mean_ttft(equal["VTC"], "small"),
            paper=(big / small, big / small),
            why="the small client's wait is a difference of two large numbers, so that engine speed moves it most",
        ),
        Ratio(
            name="equal requests, FCFS: big client's TTFT ÷ small client's",
            ours=mean_ttft(equal["FCFS"], "big") / mean_ttft(equal["FCFS"], "small"),
            paper=(1.0, 1.0),
        ),
        Ratio(
            name="short and long answers, VTC: client 0's TTFT ÷ client 1's",
            ours=mean_ttft(mixed["VTC"], "0") / mean_ttft(mixed["VTC"], "1"),
            paper=(order, order),
            why="the order is the measured one; the size depends on what prompts cost against answers on that engine",
        ),
        Ratio(
            name="short and long answers, FCFS: client 0's TTFT ÷ client 1's",
            ours=mean_ttft(mixed["FCFS"], "0") / mean_ttft(mixed["FCFS"], "1"),
            paper=(fcfs, fcfs),
        ),
        Ratio(name="throughput, VTC ÷ FCFS", ours=rate / throughput(equal["FCFS"]), paper=(1.0, 1.0)),
    ]


def fluid_wait(rate: float, asked: float) -> float:
    """Mean wait ÷ duration of a client that gets half of `rate` and asks for more: (2·asked ÷ rate − 1) ÷ 2."""
    return max(0.0, (2 * asked / rate - 1) / 2)


def _equal_table(equal: Records, spans: Spans) -> Grid:
    rows = [
        (
            f"{policy}, {client.name} client",
            mean_ttft(records, client.name) / spans.equal_s,
            EQUAL_TTFT[policy, client.name],
        )
        for policy, records in equal.items()
        for client in EQUAL
    ]
    return Grid(title="Equal requests: mean TTFT ÷ duration", columns=("", "ours", "measured"), rows=rows)


def _mixed_table(mixed: Records, spans: Spans) -> Grid:
    rows = [
        (
            f"{policy}, client {client.name}",
            mean_ttft(records, client.name) / spans.mixed_s,
            MIXED_TTFT[policy, client.name],
            _end(records, client.name) / spans.mixed_s,
            MIXED_END[policy, client.name],
        )
        for policy, records in mixed.items()
        for client in MIXED
    ]
    columns = ("", "mean TTFT, ours", "measured", "last answer, ours", "measured")
    return Grid(title="Short and long answers, as multiples of the duration", columns=columns, rows=rows)


def _pool_table(pools: Mapping[int, list[RequestRecord]], spans: Spans) -> Grid:
    rows = []
    for pool, records in sorted(pools.items()):
        rate = throughput(records)
        wait = mean_ttft(records, "small") / spans.equal_s
        rows.append((f"{pool:,} KV tokens", rate, wait, fluid_wait(rate, EQUAL[0].rate)))
    return Grid(
        title="By engine speed: VTC, equal requests",
        columns=("", "requests/s", "small client's TTFT ÷ duration", "fluid model"),
        rows=rows,
        note="Measured: 1.744 requests/s and 0.346; the fluid model gives 0.36 at that speed.",
    )


def _remarks(equal: Records, mixed: Records, spans: Spans) -> list[str]:
    def order(of: Mapping[tuple[str, str], float]) -> list[tuple[str, str]]:
        return sorted(of, key=lambda key: of[key])

    ours = {
        (name, client.name): mean_ttft(mixed[name], client.name) / spans.mixed_s for name in mixed for client in MIXED
    }
    verdict = "is" if order(ours) == order(MIXED_TTFT) else "is not"
    rate = throughput(equal["VTC"])
    return [
        (
            f"This engine answers {rate:.3g} equal requests/s, the measured one 1.744. Of a fluid of which each client "
            f"gets half while both wait, the small client waits {fluid_wait(rate, EQUAL[0].rate):.3g} durations here, "
            f"and {fluid_wait(1.744, EQUAL[0].rate):.3g} there."
        ),
        f"The order of all four mean TTFTs of the short and long answers {verdict} the measured one.",
    ]


def _chart(fair: Sequence[RequestRecord], fcfs: Sequence[RequestRecord]) -> Chart:
    series = []
    for policy, records in (("VTC", fair), ("FCFS", fcfs)):
        for client in EQUAL:
            own = [one for one in records if one.tenant == client.name]
            series.append(
                Series(
                    name=f"{policy}, {client.name} client",
                    x=[one.intended_s for one in own],
                    y=[one.ttft_s or 0.0 for one in own],
                )
            )
    return Chart(
        title="Time to first token, two clients in overload",
        x_label="seconds at which a request came",
        y_label="seconds to its first token",
        series=series,
    )
