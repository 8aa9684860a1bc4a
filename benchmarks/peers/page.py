"""docs/benchmarks.md and its figure, made of the results: nothing in them is typed by hand but what bounds a miss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import PACKAGES
from benchmarks.peers.machine import machine
from benchmarks.peers.results import Results
from benchmarks.peers.targets import OPENVINO, Q4, Q8, WORDS, verdicts
from headway.report import Chart, Series, Spread, save_chart

HERE = Path(__file__).parent
LATEST = Path("benchmarks/results/latest.json")
AT_ONCE = (16, 32, 64)

INTRO = """\
# Benchmarks

Headway beside other systems on one machine: the same model, the same requests, as many threads as cores, one system
after the other in alternation. `make bench-peers` writes this page, `make bench` the numbers of Headway alone.
"""

METHOD = """\
## How it is measured

- One round runs every system once, each in a fresh process that nothing else shares the machine with; a ratio is made
  within a round and the table shows the median over rounds, with the smallest and largest in brackets.
- Serving: requests of 152 prompt and exactly 64 output tokens, greedy, streamed over HTTP, 16, 32 or 64 in flight; 48,
  64 and 96 requests. Prompts are common words in any order, as text, and no prompt is sent twice to a server; the
  three that warm it up are others. The client is `headway.bench`, the same for every HTTP server, on the same cores.
- OpenVINO GenAI runs in process, without HTTP or a client: its figures leave out what every server pays.
- One stream: tokens a second behind the first one. Prefill: prompt tokens ÷ time to first token, one prompt at a time.
- Interference: eight short streams decode; from the eighth second on, four prompts of 1,500 words arrive three seconds
  apart. The gaps count from the first of them to the first answer token of the last. Headway runs with
  `--itl-target-ms` here, and with its defaults everywhere else: 60 against llama.cpp, which has no such limit, 150
  and 300 against OpenVINO with 64 and 256 tokens a step, whose steps are about as long.
- llama.cpp's files are requantised from the same Q4_1 file that the others read; its cache of ended prompts is off,
  because it could only cost time. Everything else is each system's default.

    make bench-peers                  # everything: five rounds, more than an hour on two cores
    make bench-peers ROUNDS=1 WORK="serving16 stream"
"""


def write(results: Results, docs: Path, latest: Path = LATEST) -> None:
    """Write page and figure into the folder `docs`."""
    own = json.loads(latest.read_text(encoding="utf-8")) if latest.exists() else {}
    parts = [
        INTRO,
        _machine(),
        "![Output tokens a second at 16, 32 and 64 requests at once](figures/peers-serving.svg)\n",
        "\n".join(_table(results)),
        "\n".join(_own(own)),
        (HERE / "bounds.md").read_text(encoding="utf-8"),
        METHOD,
    ]
    save_chart(_chart(results), docs / "figures" / "peers-serving.svg")
    (docs / "benchmarks.md").write_text("\n".join(parts), encoding="utf-8")


def _machine() -> str:
    here = machine()
    packages = ", ".join(f"{name.partition('==')[0]} {name.partition('==')[2]}" for name in PACKAGES.values())
    return (
        f"Machine: {here['cpu']}, {here['cores']} cores, {here['memory_bytes'] / 1e9:.0f} GB; Headway "
        f"{here['version']} with kernel set `{here['kernels']}`.\n"
        f"Peers from PyPI: {packages}. Model: SmolLM2-135M-Instruct, Q4_1 file; Headway holds it in int8.\n"
    )


def _table(results: Results) -> Iterator[str]:
    yield "## Against peers\n"
    yield "| work | peer | ours | peer's | ratio | wanted | |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for one in verdicts(results):
        target = one.target
        unit = "tok/s" if target.is_rate else "ms"
        yield (
            f"| {target.what} | {WORDS[target.peer]} | {one.ours.value:,.0f} {unit} | {one.theirs.value:,.0f} {unit} "
            f"| **{one.ratio.value:.2f}** [{one.ratio.low:.2f} – {one.ratio.high:.2f}], rounds: {one.ratio.size} "
            f"| ≥ {target.factor:g} | {'yes' if one.is_met else 'missed'} |"
        )
    yield "\nThe ratio says how many times better ours is: tokens a second by division, times the other way round.\n"


def _own(own: dict[str, Any]) -> Iterator[str]:
    yield "## Headway alone\n"
    yield "| what | measured | spread | wanted | |"
    yield "|---|---:|---|---|---|"
    for row in own.get("rows", []):
        verdict = "" if row["is_met"] is None else "yes" if row["is_met"] else "missed"
        spread = f"{row['low']:.4g} – {row['high']:.4g}, {row['size']} runs"
        yield f"| {row['what']} | {row['value']:.4g} {row['unit']} | {spread} | {row['wanted']} | {verdict} |"
    yield ""


def _chart(results: Results) -> Chart:
    series = []
    for system in ("headway", Q8, Q4, OPENVINO):
        found: dict[int, Spread] = {}
        for at_once in AT_ONCE:
            if spread := results.spread(f"serving{at_once}", system, "output_tok_s"):
                found[at_once] = spread
        name = WORDS.get(system, "Headway")
        series.append(Series(name=name, x=list(found), y=[one.value for one in found.values()]))
    return Chart(
        title="Serving: 152 prompt + 64 output tokens, two cores",
        x_label="requests at once",
        y_label="output tokens/s",
        series=[one for one in series if len(one.x)],
    )
