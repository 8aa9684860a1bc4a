"""`headway bench isolation`: whether a small tenant feels a big one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import bench_options as options
from headway.cli import flags
from headway.cli.bench_screen import Screen
from headway.cli.output import print_json, results
from headway.cli.values import parse_settings

if TYPE_CHECKING:
    from headway.bench.isolation import Felt, IsolationLoad

RUNS = {"solo": "headway", "headway": "headway", "vllm": "vllm"}
"""Name of a run to its policy. `solo` is the small tenant alone."""

Duration = Annotated[float, typer.Option("--duration", help="Seconds of load in each of the three runs.", min=1.0)]
Rate = Annotated[float, typer.Option(help="Requests per second of the small tenant: 128 tokens in, 32 out.")]
Factor = Annotated[float, typer.Option(help="The big tenant asks for so many times the small one's tokens.")]
BigPrompt = Annotated[int, typer.Option(help="Tokens of the big tenant's prompts.", min=1)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A parameter of policy headway; repeatable.", show_default="none"),
]
Hardware = Annotated[str | None, typer.Option(metavar="CARD", help="In virtual time, on a hardware card.")]
Calibrated = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="In virtual time, with the step times that `headway calibrate` wrote."),
]


def isolation(
    *,
    model: options.LocalModel = None,
    duration_s: Duration = 120.0,
    rate: Rate = 1.0,
    factor: Factor = 20.0,
    big_prompt: BigPrompt = 2000,
    executor: options.ExecutorName = None,
    threads: flags.Threads = None,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    settings: Sets = None,
    hardware: Hardware = None,
    calibration: Calibrated = None,
    seed: Annotated[int, typer.Option(help="Seed of the arrivals.")] = 0,
    as_json: flags.Json = False,
) -> int:
    """A small tenant's P99 time to first token: alone, beside a flood under `headway`, and under `vllm`."""
    given: dict[str, Any] = locals()
    return _run(given)


def _run(given: dict[str, Any]) -> int:
    from headway.bench.isolation import BIG, SMALL, IsolationLoad

    names = ("duration_s", "rate", "factor", "big_prompt", "seed")
    load = IsolationLoad(**{name: given[name] for name in names})
    runs: dict[str, Felt] = {}
    with Screen() as screen:
        for name, policy in RUNS.items():
            runs[name] = _measure(policy, load, [SMALL] if name == "solo" else [SMALL, BIG], given, screen)
            screen.log(f"{name:8} P99 {runs[name].ttft_p99_s * 1e3:9.0f} ms, P50 {runs[name].ttft_p50_s * 1e3:9.0f} ms")
    document = _document(load, runs, given)
    if given["as_json"]:
        print_json(document)
    else:
        results().print(_text(document), markup=False, soft_wrap=True)
    return 0


def _measure(policy: str, load: IsolationLoad, tenants: list[str], given: dict[str, Any], screen: Screen) -> Felt:
    """One run, where the flags say."""
    from headway.cli.isolation_runs import run_live, run_virtual

    settings = (given["settings"] or []) if policy == "headway" else []
    if given["hardware"] or given["calibration"]:
        return run_virtual(policy, load, tenants, given | {"settings": parse_settings(settings)})
    words = [*server_flags(given), "--policy", policy]
    return run_live(load, tenants, [*words, *(word for text in settings for word in ("--set", text))], screen)


def server_flags(given: dict[str, Any]) -> list[str]:
    """Flags of the experiment's own server, but for its policy."""
    words = [given["model"]] if given["model"] else []
    words += ["--executor", given["executor"] or options.default_executor()]
    words += ["--max-num-batched-tokens", str(given["max_num_batched_tokens"])]
    if given["threads"]:
        words += ["--threads", str(given["threads"])]
    return words


def _document(load: IsolationLoad, runs: dict[str, Felt], given: dict[str, Any]) -> dict[str, Any]:
    p99 = {name: run.ttft_p99_s for name, run in runs.items()}
    served = max(runs["headway"].served_tokens_per_s, runs["vllm"].served_tokens_per_s)
    return {
        **p99,
        "ratio_headway": p99["headway"] / p99["solo"],
        "ratio_vllm": p99["vllm"] / p99["solo"],
        "is_virtual": bool(given["hardware"] or given["calibration"]),
        "offered_over_served": load.tokens_per_s / served if served else None,
        "load": asdict(load),
        "runs": {name: asdict(run) for name, run in runs.items()},
    }


def _text(document: dict[str, Any]) -> str:
    lines = [f"{name:8} P99 TTFT {document[name] * 1e3:9.0f} ms" for name in RUNS]
    lines += [f"{name}: {document[f'ratio_{name}']:.2f} times as long as alone" for name in ("headway", "vllm")]
    if (over := document["offered_over_served"]) is not None:
        lines.append(f"offered {over:.2f} times what the server got through")
    return "\n".join(lines)
