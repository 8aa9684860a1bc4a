"""`distserve`: prompts and answers on separate replicas against both on each (OSDI'24)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headway.experiments.demand import Demand, LogNormal, demand, log_normal
from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio, Row
from headway.experiments.goodput import Measured, Task
from headway.report import Chart, Grid, Limit, RunRecord
from headway.sim import (
    HandOver,
    Link,
    Parallel,
    Plan,
    Pool,
    Site,
    decoding,
    decoding_plan,
    handed_over,
    hardware_card,
    model_card,
    overheads,
    simulate,
)

ATTAINMENT = 0.9
REPLICAS = 3
SCALES = (1.0, 1.5, 2.0)
ENGINES = ("eager", "cuda-graph")
"""Host times: what engines in Python had in 2024, and what they have since."""

NODE_LINK = Link(bandwidth=25e9 / 8, latency_s=50e-6)
"""25 Gb/s between nodes; within one the devices' own link is used."""


FIRST = Task(
    name="512 in, 64 out, OPT-13B",
    model="OPT-13B",
    tensor=1,
    prompt=LogNormal(512, 512, 512),
    output=LogNormal(64, 64, 64),
    ttft_s=0.4,
    tpot_s=0.04,
    num=120,
    gain=(2.1, 2.1),
    plausible=(2.0, 2.0),
)
CHAT = Task(
    name="chat, OPT-13B",
    model="OPT-13B",
    tensor=1,
    prompt=LogNormal(520, 1600, 1650),
    output=LogNormal(160, 380, 390),
    ttft_s=0.25,
    tpot_s=0.1,
    num=120,
    gain=(2.0, 4.6),
    plausible=(2.0, 2.0),
)
CODE = Task(
    name="code completion, OPT-66B",
    model="OPT-66B",
    tensor=4,
    prompt=LogNormal(155, 270, 600),
    output=LogNormal(80, 180, 400),
    ttft_s=0.125,
    tpot_s=0.2,
    num=160,
    gain=(5.7, 5.7),
)
TASKS = (FIRST, CHAT, CODE)
SPLITS = ("1 prompt + 2 answer replicas", "2 prompt + 1 answer replicas")
TOGETHER: Mapping[str, Plan] = {
    "vLLM": Plan(policy="vllm_v0", settings={"mode": "prefill_first"}),
    "chunked prompts": Plan(policy="vllm", settings={"max_num_batched_tokens": "512"}),
}


def reproduce(effort: Effort) -> Finding:
    """Goodput per device of each task, together and apart."""
    measured = {}
    rates = {}
    for task in TASKS:
        effort.tell(task.name)
        measured[task] = _deployments(task, effort, ENGINES[0])
        for name, one in measured[task].items():
            for scale in SCALES if task is FIRST else (1.0,):
                rates[task, name, scale] = _highest(task, one, effort, scale)
    return Finding(
        name="distserve",
        title="Prompts and answers apart",
        source="Zhong et al., DistServe, OSDI'24, §6: rate per device at which 90 % of requests meet both limits",
        setup=(
            f"{REPLICAS} replicas on A100-80, of one device for OPT-13B and four for OPT-66B, with equal engines (host "
            "times of an eager one). The paper's first figure (512 tokens in, 64 out; TTFT 0.4 s, TPOT 0.04 s), chat "
            "(log-normal, mean 700 in, 200 out; 0.25 s, 0.1 s), and code completion (170 in, 98 out; 0.125 s, 0.2 s); "
            "120 to 160 Poisson requests. Apart: one or two replicas compute prompts, the others answers, and KV moves "
            "over the devices' link. Together: each replica does both, as vLLM did (prompts first) or with prompts cut "
            "to steps of 512 tokens."
        ),
        ratios=[*_ratios(rates), _ratio_to_chunks(rates)],
        tables=[_table(rates), _scale_table(rates), _engine_table(rates, effort), _link_table(effort)],
        chart=_chart(measured[FIRST]),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "Everything hangs on how near the limit on TPOT is to the time of a decode step: with a slow engine (28 of the "
        "40 ms) any prompt between two tokens is too much, with a fast one (18 ms) there is room for several, and with "
        "limits twice as wide nothing is left of the gain."
    ),
    (
        "Cutting prompts, which the paper's vLLM could not, gives a good part of the gain without moving any KV. The "
        "paper also chooses tensor and pipeline parallelism apart for prompts and answers, and its task of summaries "
        "has limits that an idle engine is far from; neither is run here. A rate of 0: the longest tenth of the "
        "prompts misses the limit even alone."
    ),
)


def _highest(task: Task, one: Measured, effort: Effort, scale: float = 1.0) -> float:
    """Requests per second and device."""
    return one.curve(scale).highest(1 - ATTAINMENT, 6.0, effort.search) / _num_devices(task)


def _num_devices(task: Task) -> int:
    return REPLICAS * task.tensor


def _demand(task: Task, effort: Effort) -> Demand:
    return demand(log_normal(effort.num(task.num), task.prompt, task.output, effort.seed + 1), effort.seed)


def _site(task: Task, engine: str) -> Site:
    return Site(
        model=model_card(task.model),
        hardware=hardware_card("A100-80"),
        parallel=Parallel(tensor=task.tensor),
        overheads=overheads(engine),
        prefix_cache="none",
        context=2048,
    )


def _deployments(task: Task, effort: Effort, engine: str) -> dict[str, Measured]:
    site, asked = _site(task, engine), _demand(task, effort)
    link = handed_over(site.model, site.hardware.peer)
    found = {SPLITS[at]: Measured(task, SPLITS[at], apart(site, asked, at + 1, link)) for at in range(len(SPLITS))}
    return found | {name: Measured(task, name, _together(site, asked, plan)) for name, plan in TOGETHER.items()}


def apart(site: Site, asked: Demand, num_prompt_replicas: int, link: HandOver) -> Callable[[float], RunRecord]:
    """So many replicas for prompts, the rest for answers."""
    plant, plan = site.plant(), Plan(policy="vllm", settings={})
    prompts = Pool(plant=plant, plan=plan, num_replicas=num_prompt_replicas)
    answers = Pool(plant=decoding(plant), plan=decoding_plan(plan), num_replicas=REPLICAS - num_prompt_replicas)
    return lambda rate: simulate(asked.items(rate), prompts, decoders=answers, hand_over=link)


def _together(site: Site, asked: Demand, plan: Plan) -> Callable[[float], RunRecord]:
    pool = Pool(plant=site.plant(), plan=plan, num_replicas=REPLICAS)
    return lambda rate: simulate(asked.items(rate), pool)


Rates = Mapping[tuple[Task, str, float], float]


def _apart(rates: Rates, task: Task, scale: float = 1.0) -> float:
    return max(rates[task, name, scale] for name in SPLITS)


def _ratios(rates: Rates) -> list[Ratio]:
    return [
        Ratio(
            name=f"÷ vLLM, {task.name}",
            ours=_quotient(_apart(rates, task), rates[task, "vLLM", 1.0]),
            paper=task.gain,
            plausible=task.plausible,
            why=_WHY[task.name],
        )
        for task in TASKS
    ]


_WHY = {
    FIRST.name: "it follows from the engine's own time per step: see the table by engine",
    CHAT.name: (
        "the limit on TPOT is several times a decode step, so that nothing is gained by keeping prompts away from "
        "answers; the first token's limit decides, and for that three replicas that compute prompts are better than two"
    ),
    CODE.name: (
        "as with chat, the first token's limit decides, and three replicas for prompts beat two; the paper gives "
        "prompts more devices each, which is not searched here"
    ),
}


def _ratio_to_chunks(rates: Rates) -> Ratio:
    return Ratio(
        name=f"÷ chunked prompts, {FIRST.name}",
        ours=_quotient(_apart(rates, FIRST), rates[FIRST, "chunked prompts", 1.0]),
        plausible=(1.1, 1.4),
        why="cut prompts stop answers for less long, which is what the split is for",
    )


def _quotient(above: float, below: float) -> float:
    return above / below if below else float("inf")


def _table(rates: Rates) -> Grid:
    names = (*SPLITS, *TOGETHER)
    rows: list[Row] = [(task.name, *(rates[task, name, 1.0] for name in names)) for task in TASKS]
    return Grid(title="Requests per second and device, 90 % within both limits", columns=("", *names), rows=rows)


def _scale_table(rates: Rates) -> Grid:
    rows: list[Row] = [
        (
            f"limits × {scale:g}",
            _apart(rates, FIRST, scale),
            *(rates[FIRST, name, scale] for name in TOGETHER),
            _quotient(_apart(rates, FIRST, scale), rates[FIRST, "vLLM", scale]),
        )
        for scale in SCALES
    ]
    columns = ("", "apart", *TOGETHER, "apart ÷ vLLM")
    return Grid(
        title=f"{FIRST.name}, by how tight the limits are: requests per second and device", columns=columns, rows=rows
    )


def _engine_table(rates: Rates, effort: Effort) -> Grid:
    effort.tell("another engine, another link")
    found = {name: rates[FIRST, name, 1.0] for name in (*SPLITS, *TOGETHER)}
    light = {name: _highest(FIRST, one, effort) for name, one in _deployments(FIRST, effort, ENGINES[1]).items()}
    rows: list[Row] = [
        (
            engine,
            best := max(one[name] for name in SPLITS),
            *(one[name] for name in TOGETHER),
            _quotient(best, one["vLLM"]),
        )
        for engine, one in zip(ENGINES, (found, light), strict=True)
    ]
    return Grid(
        title=f"{FIRST.name}, by the engine's host time: requests per second and device",
        columns=("", "apart", *TOGETHER, "apart ÷ vLLM"),
        rows=rows,
        note="Paper: 1.6 together; 5.6 for prompts alone and 10 for answers alone, which makes 3.3 apart.",
    )


def _link_table(effort: Effort) -> Grid:
    site, asked = _site(FIRST, ENGINES[1]), _demand(FIRST, effort)
    rows: list[Row] = []
    for name, link in (("the devices' own link", site.hardware.peer), ("25 Gb/s between nodes", NODE_LINK)):
        one = Measured(FIRST, name, apart(site, asked, 2, handed_over(site.model, link)))
        rows.append((name, 1e3 * link.seconds(512 * site.model.token_kv_size), _highest(FIRST, one, effort)))
    return Grid(
        title=f"{FIRST.name}, {ENGINES[1]}, by the link between replicas: {SPLITS[1]}",
        columns=("", "ms to move 512 tokens", "requests per second and device"),
        rows=rows,
    )


def _chart(measured: Mapping[str, Measured]) -> Chart:
    curves = [one.curve() for one in measured.values()]
    for curve, one in zip(curves, measured.values(), strict=True):
        for rate in one.rates:
            curve.at(rate)
    return Chart(
        title="OPT-13B, 512 tokens in, 64 out: requests that miss a limit, by request rate",
        x_label="requests per second, three replicas",
        y_label="share of requests that miss a limit",
        series=[curve.series() for curve in curves],
        limits=[Limit(name="10 %", y=1 - ATTAINMENT)],
    )
