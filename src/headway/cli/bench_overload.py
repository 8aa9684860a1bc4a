"""`headway bench overload`: what is left of goodput beyond capacity, and whether `Retry-After` tells the truth."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import flags
from headway.cli.bench_isolation import server_flags
from headway.cli.bench_screen import Screen
from headway.cli.output import print_json, results

if TYPE_CHECKING:
    from headway.bench.overload import OverloadLoad

FACTORS = (1.0, 3.0)

Duration = Annotated[float, typer.Option("--duration", help="Seconds of load in each of the three runs.", min=1.0)]
PromptLen = Annotated[int, typer.Option("--prompt-len", help="Tokens of every prompt.", min=1)]
OutputLen = Annotated[int, typer.Option("--output-len", help="Tokens of every answer.", min=1)]
Ttft = Annotated[float, typer.Option("--ttft-ms", help="A good answer begins within so many milliseconds.")]
Margin = Annotated[float, typer.Option(help="The server admits by that share of --ttft-ms.", min=0.05, max=1.0)]


def overload(
    *,
    model: options.LocalModel = None,
    duration_s: Duration = 60.0,
    prompt_len: PromptLen = 256,
    output_len: OutputLen = 32,
    ttft_ms: Ttft = 3000.0,
    margin: Margin = 0.7,
    policy: flags.PolicyName = "headway",
    executor: options.ExecutorName = None,
    threads: flags.Threads = None,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    seed: Annotated[int, typer.Option(help="Seed of the arrivals.")] = 0,
    as_json: flags.Json = False,
) -> int:
    """Measure goodput at capacity and at three times that, and hold Retry-After to when a probe is let in."""
    given: dict[str, Any] = locals()
    return _run(given)


def _run(given: dict[str, Any]) -> int:
    from headway.bench.overload import OverloadLoad
    from headway.cli.own_server import own_server

    load = OverloadLoad(
        duration_s=given["duration_s"],
        num_prompt=given["prompt_len"],
        num_output=given["output_len"],
        ttft_s=given["ttft_ms"] / 1e3,
        seed=given["seed"],
    )
    words = [*server_flags(given), "--policy", given["policy"]]
    with own_server(words) as server, Screen() as screen:
        document = screen.run(_measure(load, server.url, given, screen))
    if given["as_json"]:
        print_json(document)
    else:
        results().print(_text(document), markup=False, soft_wrap=True)
    return 0


async def _measure(load: OverloadLoad, url: str, given: dict[str, Any], screen: Screen) -> dict[str, Any]:
    """Capacity by users who always ask, then the two open runs, the last one probed."""
    from headway.bench.overload import share_within, sustained
    from headway.cli.overload_runs import Track

    track = Track(load, url, given, screen)
    track.set_limit(0.0)  # users who ask again at once would storm a server that refuses them
    closed = await track.run("capacity", load.closed(), is_closed=True)
    track.set_limit(given["ttft_ms"] * given["margin"])
    capacity = max(sustained(closed, load), 0.01)
    screen.log(f"capacity {capacity:.2f} requests/s")
    goodputs: dict[float, float] = {}
    refused: dict[float, int] = {}
    pairs: list[tuple[float, float]] = []
    for factor in FACTORS:
        items = load.at_rate(capacity * factor)
        run = await track.run(f"{factor:g} x capacity", items, pairs=pairs if factor > 1 else None)
        goodputs[factor] = load.goodput(run)
        refused[factor] = sum(record.status == 503 for record in run.requests)
        screen.log(f"{factor:g} x capacity: goodput {goodputs[factor]:.2f} requests/s, {refused[factor]} refused")
    return {
        "capacity": capacity,
        "goodput_at_capacity": goodputs[FACTORS[0]],
        "goodput_at_overload": goodputs[FACTORS[1]],
        "kept": goodputs[FACTORS[1]] / goodputs[FACTORS[0]] if goodputs[FACTORS[0]] else None,
        "num_refused": refused[FACTORS[1]],
        "refused_by_reason": track.refused_by_reason(),
        "retry_after_within_2": share_within(pairs),
        "num_probes": len(pairs),
        "retry_after_median_s": statistics.median(said for said, _ in pairs) if pairs else None,
        "truth_median_s": statistics.median(true for _, true in pairs) if pairs else None,
        "load": asdict(load),
    }


def _text(document: dict[str, Any]) -> str:
    kept, within = document["kept"], document["retry_after_within_2"]
    return "\n".join(
        [
            f"capacity                {document['capacity']:.2f} requests/s",
            f"goodput at capacity     {document['goodput_at_capacity']:.2f} requests/s",
            f"goodput at 3 x          {document['goodput_at_overload']:.2f} requests/s"
            + ("" if kept is None else f", {kept:.0%} of it"),
            "refused                 "
            + (", ".join(f"{num} for {reason}" for reason, num in document["refused_by_reason"].items()) or "nobody"),
            "Retry-After within a factor of 2 of the truth: "
            + ("nobody was refused" if within is None else f"{within:.0%} of {document['num_probes']} probes"),
        ]
    )
