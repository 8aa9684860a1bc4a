"""What is to be reached, and the rows of the table that say whether it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.results import Results
from headway.report import Spread

Q8, Q4, OPENVINO, OPENVINO_64 = "llama.cpp Q8_0", "llama.cpp Q4_0", "openvino", "openvino 64"
WORDS = {
    Q8: "llama.cpp Q8_0",
    Q4: "llama.cpp Q4_0",
    OPENVINO: "OpenVINO GenAI, budget 256",
    OPENVINO_64: "OpenVINO GenAI, budget 64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure of ours against a peer's; `factor` times better is the least that counts as reached."""

    what: str
    work: str
    peer: str
    figure: str
    factor: float
    ours: str = "headway"

    @property
    def is_rate(self) -> bool:
        """Whether more is better; of times, less is."""
        return self.figure.endswith("_s") and "tok" in self.figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target with what was measured; `ratio` says how many times better ours is."""

    target: Target
    ours: Spread
    theirs: Spread
    ratio: Spread

    @property
    def is_met(self) -> bool:
        """Whether the median of the ratio reaches the target."""
        return self.ratio.value >= self.target.factor


def _against(what: str, work: str, figure: str, factors: dict[str, float], ours: str = "headway") -> list[Target]:
    return [
        Target(what=what, work=work, peer=peer, figure=figure, factor=factor, ours=ours)
        for peer, factor in factors.items()
    ]


def _interference(target_ms: int, peer: str, times: float) -> list[Target]:
    """Both sides of a latency target: gaps of the short streams, `times` shorter, and first tokens of long prompts."""
    what, ours = f"interference, target {target_ms} ms", f"headway itl {target_ms}"
    return [
        *_against(f"{what}: P99 gap of short streams", "interference", "itl_p99_ms", {peer: times}, ours),
        *_against(f"{what}: first token of long prompts", "interference", "long_ttft_ms", {peer: 1.0}, ours),
    ]


TARGETS = [
    *_against("serving, 16 at once", "serving16", "output_tok_s", {Q8: 5.0, Q4: 1.0, OPENVINO: 2.5}),
    *_against("serving, 32 at once", "serving32", "output_tok_s", {Q8: 1.0, Q4: 1.0, OPENVINO: 1.0}),
    *_against("serving, 64 at once", "serving64", "output_tok_s", {Q8: 1.0, Q4: 1.0, OPENVINO: 1.0}),
    *_against("one stream", "stream", "output_tok_s", {Q8: 1.7, Q4: 1.2, OPENVINO: 1.0}),
    *_against("prefill of 512", "prefill512", "prompt_tok_s", {Q8: 8.0, Q4: 1.0, OPENVINO: 3.0}),
    *_against("prefill of 2,048", "prefill2048", "prompt_tok_s", {Q8: 8.0, Q4: 1.0, OPENVINO: 3.0}),
    *_interference(60, Q8, 30.0),
    *_interference(150, OPENVINO_64, 1.0),
    *_interference(300, OPENVINO, 1.0),
]


def verdicts(results: Results) -> Iterator[Verdict]:
    """All targets for which a round has both systems."""
    for target in TARGETS:
        figure = target.figure
        ours = results.spread(target.work, target.ours, figure)
        theirs = results.spread(target.work, target.peer, figure)
        over, under = (target.ours, target.peer) if target.is_rate else (target.peer, target.ours)
        ratio = results.ratio(target.work, over, under, figure)
        if ours is not None and theirs is not None and ratio is not None:
            yield Verdict(target=target, ours=ours, theirs=theirs, ratio=ratio)
