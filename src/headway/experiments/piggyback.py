"""`sarathi`: decodes that ride along with chunks of prompts, on one device and through a pipeline (SARATHI, v1)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.experiments.demand import request
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio, Row
from headway.experiments.probing import answered, run
from headway.report import Chart, Grid, Limit, Mark, Series
from headway.sim import CostModel, HardwareCard, Load, Overheads, Parallel, Plant, Site, hardware_card, model_card
from headway.workload import WorkItem

CHUNK, LENGTH = 256, 1024
SHARES = (4, 8, 15, 28, 60)
"""Prompt ÷ answer tokens of a sequence of `LENGTH` tokens."""

ROUNDS = 10
NUM_PIPELINED = 600
ZIPF = 0.4
STAGES, TENSOR = 8, 8
PIPE_ROWS, SINGLE_ROWS = 27, 11


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on one device, the rows that fit, and the paper's two gains: of decodes, and of everything."""

    name: str
    model: str
    device: str
    rows: int
    decode_gain: float
    gain: float


SMALL = Deployment("LLaMA-13B on an A6000", "Llama-2-13B", "A6000", 18, 10.0, 1.33)
LARGE = Deployment("LLaMA-33B on an A100-80", "Llama-33B", "A100-80", 10, 4.25, 1.25)


@dataclass(slots=True)
class Counted(CostModel):
    """A cost model that adds up what it predicted: the seconds in which one stage was busy."""

    cost: CostModel
    busy_s: float = field(default=0.0)

    def predict(self, load: Load) -> float:
        """Seconds of a step, counted."""
        seconds = self.cost.predict(load)
        self.busy_s += seconds
        return seconds


@dataclass(frozen=True, slots=True)
class Passage:
    """How long all requests took, and the share of it in which a stage had nothing to do."""

    duration_s: float
    idle: float


def reproduce(effort: Effort) -> Finding:
    """Gains of decodes and of everything on one device, and bubbles of a pipeline."""
    gains = {}
    for site in (SMALL, LARGE):
        effort.tell(site.name)
        gains[site] = {share: _gains(site, share, effort.num(ROUNDS, 1)) for share in SHARES}
    effort.tell("a pipeline of 8 stages")
    pipes = _pipes(_pipelined(effort))
    return Finding(
        name="sarathi",
        title="Decode-maximal batches",
        source="Agrawal et al., SARATHI, arXiv 2308.16369, §5: fixed prompt-to-answer ratios, GPT-3 on a pipeline",
        setup=(
            f"Sequences of {LENGTH} tokens, all of them waiting: LLaMA-13B on an A6000 with {SMALL.rows} rows and "
            f"LLaMA-33B on an A100-80 with {LARGE.rows}, chunks of {CHUNK} with their decodes in tiles of 128; against "
            "static batches, and against Orca with as many rows, which are at different places from the start. GPT-3 "
            f"175B on 64 A100-80 (tensor 8, pipeline 8): {NUM_PIPELINED} requests of 1K–4K tokens (Zipf {ZIPF}), ten "
            f"prompt tokens to one of the answer; {PIPE_ROWS} rows in each of 8 batches in flight, against Orca's "
            f"batches and 8 replicas without a pipeline, {SINGLE_ROWS} rows each."
        ),
        ratios=[*_device_ratios(gains), *_pipe_ratios(pipes)],
        tables=[_decode_table(), _share_table(gains), _pipe_table(pipes)],
        chart=_chart(gains),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "A decode beside a chunk costs its attention and nothing else as long as the tile has room for it: its gain is "
        "a ratio with almost nothing below the line, and says little. What is left of it end to end is bounded by the "
        "share of time that decodes took before."
    ),
    (
        "The gain end to end peaks where chunks and decodes run out together, at about chunk ÷ (rows − 1) prompt "
        "tokens to one of the answer."
    ),
    (
        "Bubbles are idle time of a stage as a share of all time, filling and draining the pipeline included; the "
        "paper takes the median over requests."
    ),
)


def _card(name: str) -> HardwareCard:
    """A device; an A6000 is an A40 with faster memory."""
    if name == "A6000":
        return replace(hardware_card("A40"), name=name, bandwidth=0.768e12)
    return hardware_card(name)


def _plant(site: Deployment) -> Plant:
    return Site(
        model=model_card(site.model),
        hardware=_card(site.device),
        overheads=Overheads(step_s=2e-3, layer_s=0.1e-3, seq_s=0.05e-3),
        num_blocks=(site.rows + 1) * LENGTH // 16,
        prefix_cache="none",
        context=2048,
    ).plant()


def decode_gain(site: Deployment) -> float:
    """Seconds of a decode in a batch of decodes ÷ what it adds to a chunk."""
    cost, num = _plant(site).cost, site.rows - 1
    context = num * LENGTH
    alone = cost.predict(Load(num_tokens=num, num_drawn=num, num_decodes=num, decode_context=context))
    chunk = CHUNK - num
    prefill = Load(num_tokens=chunk, prefills=[(chunk, LENGTH // 2)])
    both = replace(prefill, num_tokens=CHUNK, num_drawn=num, num_decodes=num, decode_context=context)
    return alone / (cost.predict(both) - cost.predict(prefill))


def _gains(site: Deployment, share: int, rounds: int) -> tuple[float, float]:
    """How much sooner SARATHI is done than static batches, and than Orca."""
    num_output = max(1, round(LENGTH / (share + 1)))
    plant, rows = _plant(site), site.rows
    equal = [request(at, LENGTH - num_output, num_output, 0.0) for at in range(rounds * rows)]
    # Orca's best case: batches in which the rows are at different places, so that their prompts come one by one.
    spread = [replace(item, num_output=-(-num_output * (at + 1) // rows)) for at, item in enumerate(equal[:rows])]
    seconds = []
    for items, policy in ((equal, "static"), ([*spread, *equal[rows:]], "orca")):
        ours = run(items, plant, "sarathi", chunk_size=CHUNK, tile_size=128, max_num_seqs=rows).duration_s
        seconds.append(run(items, plant, policy, max_batch_size=rows).duration_s / ours)
    return seconds[0], seconds[1]


def _pipelined(effort: Effort) -> list[WorkItem]:
    """Total lengths by Zipf's law over 1024 … 4096."""
    rng = random.Random(effort.seed)
    totals = range(LENGTH, 4 * LENGTH + 1, 16)
    weights = [(at + 1) ** -ZIPF for at in range(len(totals))]
    drawn = rng.choices(totals, weights, k=effort.num(NUM_PIPELINED, 24))
    return [request(at, total - total // 11, total // 11, 0.0) for at, total in enumerate(drawn)]


def _pipes(items: Sequence[WorkItem]) -> Mapping[str, Passage]:
    piped = _pipe(STAGES)
    single, rows = _pipe(1), {"max_batch_size": SINGLE_ROWS}
    shares = [items[at::STAGES] for at in range(STAGES)]
    alone = [_pass(part, single, "orca", rows) for part in shares]
    return {
        "SARATHI": _pass(items, piped, "sarathi", _rows(CHUNK)),
        "SARATHI, chunks of 512": _pass(items, piped, "sarathi", _rows(2 * CHUNK)),
        "Orca": _pass(items, piped, "orca", {"max_batch_size": PIPE_ROWS, "num_workers": STAGES}),
        "8 replicas": Passage(max(one.duration_s for one in alone), 0.0),
    }


def _rows(chunk: int) -> Mapping[str, object]:
    return {"chunk_size": chunk, "tile_size": 128, "max_num_seqs": PIPE_ROWS * STAGES}


def _pipe(stages: int) -> Plant:
    return Site(
        model=model_card("GPT-175B"),
        hardware=hardware_card("A100-80"),
        parallel=Parallel(tensor=TENSOR, pipeline=stages),
        overheads=Overheads(step_s=1e-3, layer_s=0.05e-3, seq_s=0.01e-3),
        prefix_cache="none",
        context=8192,
    ).plant()


def _pass(items: Sequence[WorkItem], plant: Plant, policy: str, settings: Mapping[str, object]) -> Passage:
    counted = Counted(plant.cost)
    record = run(items, replace(plant, cost=counted), policy, **settings)
    answered(record)
    return Passage(record.duration_s, 1.0 - counted.busy_s / record.duration_s)


def _balanced(site: Deployment) -> int:
    """The share at which chunks and decodes run out together, of those that were run."""
    return min(SHARES, key=lambda share: abs(share - CHUNK / (site.rows - 1)))


Gains = Mapping[Deployment, Mapping[int, tuple[float, float]]]


def _device_ratios(gains: Gains) -> list[Ratio]:
    ratios = []
    for site in (SMALL, LARGE):
        static, _ = gains[site][_balanced(site)]
        ratios += [
            Ratio(
                name=f"{site.name}: decodes",
                ours=decode_gain(site),
                paper=(site.decode_gain, site.decode_gain),
                why="the paper's largest, over lengths and batches; what a decode reads of its context bounds it here",
            ),
            Ratio(
                name=f"{site.name}: end to end ÷ static batches",
                ours=static,
                paper=(site.gain, site.gain),
                why="the share of time that decodes take alone depends on the engine's host time and rows",
            ),
        ]
    ratios.append(
        Ratio(
            name=f"{SMALL.name}: end to end ÷ Orca",
            ours=gains[SMALL][_balanced(SMALL)][1],
            paper=(1.23, 1.27),
            why="whole prompts beside decodes fill the device as chunks do: what is left is the even size of steps",
        )
    )
    return ratios


def _pipe_ratios(pipes: Mapping[str, Passage]) -> list[Ratio]:
    ours, orca, single = pipes["SARATHI"], pipes["Orca"], pipes["8 replicas"]
    why = "it moves with the size of the chunk and with what an all-reduce of eight devices costs: see the table"
    return [
        Ratio(
            name="pipeline: bubbles, Orca ÷ SARATHI",
            ours=orca.idle / ours.idle if ours.idle else float("inf"),
            paper=(6.29, 6.29),
            why="see the table; bubbles here include the filling and the draining of the pipeline",
        ),
        *(
            Ratio(
                name=f"pipeline: end to end ÷ {name}",
                ours=other.duration_s / ours.duration_s,
                paper=(paper, paper),
                why=why,
            )
            for name, other, paper in (("Orca", orca, 1.91), ("8 replicas without", single, 1.48))
        ),
    ]


def _decode_table() -> Grid:
    rows: list[Row] = [(site.name, decode_gain(site), site.decode_gain) for site in (SMALL, LARGE)]
    return Grid(title="A decode alone ÷ what it adds to a chunk", columns=("", "ours", "paper"), rows=rows)


def _share_table(gains: Gains) -> Grid:
    rows: list[Row] = [
        (f"{share} prompt tokens to one", *(value for site in (SMALL, LARGE) for value in gains[site][share]))
        for share in SHARES
    ]
    columns = [f"{site.name.split(' ')[0]} ÷ {other}" for site in (SMALL, LARGE) for other in ("static", "Orca")]
    return Grid(title="End to end, by prompt-to-answer ratio", columns=("", *columns), rows=rows)


def _pipe_table(pipes: Mapping[str, Passage]) -> Grid:
    ours = pipes["SARATHI"].duration_s
    rows: list[Row] = [
        (name, one.duration_s, one.duration_s / ours, None if name == "8 replicas" else one.idle)
        for name, one in pipes.items()
    ]
    return Grid(
        title="GPT-3 175B on 64 devices",
        columns=("", "seconds for all", "÷ SARATHI", "share of time a stage is idle"),
        rows=rows,
    )


def _chart(gains: Gains) -> Chart:
    series = [
        Series(
            name=f"{site.name}, ÷ {other}",
            x=list(SHARES),
            y=[gains[site][share][at] for share in SHARES],
            mark=Mark.LINE,
        )
        for site in (SMALL, LARGE)
        for at, other in enumerate(("static batches", "Orca"))
    ]
    return Chart(
        title="Decode-maximal batches: gain end to end",
        x_label="prompt tokens to one of the answer",
        y_label="times as fast",
        series=series,
        limits=[Limit(name="no gain", y=1.0)],
    )
