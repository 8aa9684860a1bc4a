"""`sglang`: prompts that share their beginnings, with a radix cache and an order that suits it (RadixAttention)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.experiments.effort import Effort
from headway.experiments.finding import Finding, Ratio, Row
from headway.experiments.probing import answered, run, throughput
from headway.report import Chart, Grid, Mark, Series
from headway.sim import Plant, Site, hardware_card, model_card, overheads
from headway.workload import WorkItem

BLOCK = 16
NUM_SESSIONS = 96
SUBJECTS = "MMLU, 5 examples"
SYSTEMS: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "vLLM": ("none", "vllm_v0", {"mode": "prefill_first"}),
    "first come": ("radix", "sglang", {"order": "fcfs"}),
    "SGLang": ("radix", "sglang", {"order": "lpm"}),
}
"""Prefix cache, policy and settings: no cache, a cache with arrival order, a cache with longest prefix first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Sessions of `turns` turns. The first prompt starts with one of `num_groups` texts of `shared` tokens.

    Every turn adds `own` tokens of its own and gets an answer; the next one resends all of it. Lengths are whole blocks
    where a session has several turns.
    """

    num_groups: int
    shared: int
    own: int
    answer: int
    turns: int = 1
    sessions: float = 1.0  # of NUM_SESSIONS

    @property
    def reusable(self) -> float:
        """The share of all prompt tokens that somebody sent before, but for the first of each group."""
        total = sum(self.length(turn) for turn in range(self.turns))
        fresh = self.own * self.turns
        return 1.0 - fresh / total

    def length(self, turn: int) -> int:
        """Prompt tokens of a turn."""
        return self.shared + self.own * (turn + 1) + self.answer * turn


TASKS: Mapping[str, Task] = {
    SUBJECTS: Task(num_groups=12, shared=704, own=96, answer=1, sessions=2.0),
    "HellaSwag, 20 examples": Task(num_groups=1, shared=1536, own=96, answer=1, sessions=2.0),
    "ReAct agents": Task(num_groups=1, shared=1024, own=96, answer=64, turns=4, sessions=0.5),
    "tree of thought": Task(num_groups=12, shared=512, own=48, answer=64),
    "chat, short answers": Task(num_groups=NUM_SESSIONS, shared=0, own=384, answer=16, turns=4, sessions=0.5),
    "chat, long answers": Task(num_groups=NUM_SESSIONS, shared=0, own=384, answer=384, turns=3, sessions=0.25),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Requests per second, and the share of prompt tokens found in the cache."""

    rate: float
    hit: float


def reproduce(effort: Effort) -> Finding:
    """Every task on all systems, and the shared examples on caches of several sizes."""
    found = {}
    for name, task in TASKS.items():
        effort.tell(name)
        items = requests(task, effort)
        found[name] = {system: _outcome(items, system, site()) for system in SYSTEMS}
    effort.tell("other sizes of the cache")
    items = requests(TASKS[SUBJECTS], effort)
    sizes = {
        tokens: {system: _outcome(items, system, site(tokens // BLOCK)) for system in ("first come", "SGLang")}
        for tokens in (3_000, 6_000, 12_000, 24_000)
    }
    return Finding(
        name="sglang",
        title="A radix cache of prefixes",
        source="Zheng et al., SGLang, arXiv 2312.07104, §6: Llama-7B on an A10G against systems without such a cache",
        setup=(
            f"Llama-2-7B on an A10G ({site().num_blocks * BLOCK:,} KV tokens); {NUM_SESSIONS // 4} to "
            f"{2 * NUM_SESSIONS} sessions that all wait at the start, in random order. vLLM of that time: prompts "
            "first, no prefix cache. The same cache with requests in order of arrival, and with the longest cached "
            "prefix first. Lengths follow the tasks' descriptions; answers of multiple choice are one token."
        ),
        ratios=_ratios(found, sizes),
        tables=[_table(found), _size_table(sizes)],
        chart=_chart(found),
        remarks=_REMARKS,
    )


_REMARKS = (
    (
        "1 ÷ (1 − share) is what reusing all that can be reused gives where nothing but prompts costs time; answers "
        "take their time with or without a cache, so that chats with long answers gain little, as in the paper."
    ),
    (
        "The order matters only where the texts in use do not fit into the cache together: with one set of examples, "
        "arrival order finds everything, too."
    ),
)


def site(num_blocks: int | None = None) -> Plant:
    """An A10G, with as much KV memory as fits unless said otherwise."""
    return Site(
        model=model_card("Llama-2-7B"),
        hardware=hardware_card("A10G"),
        overheads=overheads("cuda-graph"),
        num_blocks=num_blocks,
    ).plant()


def requests(task: Task, effort: Effort) -> list[WorkItem]:
    """All turns of all sessions; the sessions come in random order, each with a group drawn for it."""
    rng = random.Random(effort.seed)
    num = effort.num(round(NUM_SESSIONS * task.sessions), 4)
    groups = [at % task.num_groups for at in range(num)]
    rng.shuffle(groups)
    return [item for at, group in enumerate(groups) for item in _session(task, at, group)]


def _session(task: Task, number: int, group: int) -> list[WorkItem]:
    shared = [group * 1_000 + at for at in range(task.shared // BLOCK)]
    own_blocks = (task.length(task.turns - 1) - task.shared) // BLOCK if task.turns > 1 else 0
    blocks = [*shared, *(1_000_000 + number * 1_000 + at for at in range(own_blocks))]
    return [
        WorkItem(
            id=f"s{number}.{turn}",
            session=f"s{number}",
            turn=turn,
            num_prompt=task.length(turn),
            num_output=task.answer,
            max_output=task.answer,
            prefix=tuple(blocks[: task.length(turn) // BLOCK]),
            prefix_block=BLOCK,
        )
        for turn in range(task.turns)
    ]


def _outcome(items: list[WorkItem], system: str, plant: Plant) -> Outcome:
    cache, policy, settings = SYSTEMS[system]
    record = run(items, replace(plant, prefix_cache=cache), policy, **settings)
    answered(record)
    hit = sum(one.num_cached or 0 for one in record.requests) / sum(item.num_prompt for item in items)
    return Outcome(throughput(record), hit)


Outcomes = Mapping[str, Mapping[str, Outcome]]


def _gain(found: Mapping[str, Outcome]) -> float:
    return found["SGLang"].rate / found["vLLM"].rate


def _ratios(found: Outcomes, sizes: Mapping[int, Mapping[str, Outcome]]) -> list[Ratio]:
    best = max(found, key=lambda name: _gain(found[name]))
    tight = min(sizes)
    return [
        Ratio(
            name=f"÷ vLLM, the best task ({best})",
            ours=_gain(found[best]),
            paper=(6.4, 6.4),
            why="it grows without bound with the share of shared tokens: 6.4 is the largest of the tasks chosen",
        ),
        Ratio(
            name=f"÷ vLLM, {SUBJECTS}",
            ours=_gain(found[SUBJECTS]),
            paper=(1.0, 6.4),
            plausible=(5.0, 8.0),
            why="each of the texts has to be computed once, which in a run of this size is a part of the work",
        ),
        Ratio(
            name="÷ vLLM, chat, long answers",
            ours=_gain(found["chat, long answers"]),
            paper=(1.0, 1.0),
            why="what was said before is found again here: 'almost no gain' in the paper had shorter histories",
        ),
        Ratio(
            name=f"hits, ÷ the most possible, {SUBJECTS}",
            ours=found[SUBJECTS]["SGLang"].hit / _most_hits(),
            paper=(0.96, 0.96),
            why="the first request of each text cannot find it",
        ),
        Ratio(
            name=f"longest prefix first ÷ first come, cache of {tight:,} tokens",
            ours=sizes[tight]["SGLang"].rate / sizes[tight]["first come"].rate,
        ),
    ]


def _most_hits() -> float:
    """Of prompt tokens: all shared ones but those of the first request of each group."""
    task = TASKS[SUBJECTS]
    num = round(NUM_SESSIONS * task.sessions)
    return task.reusable * (1 - task.num_groups / num)


def _table(found: Outcomes) -> Grid:
    rows: list[Row] = [
        (
            name,
            task.reusable,
            1 / (1 - task.reusable),
            _gain(found[name]),
            found[name]["vLLM"].rate,
            found[name]["SGLang"].rate,
            found[name]["SGLang"].hit,
            found[name]["first come"].hit,
        )
        for name, task in TASKS.items()
    ]
    columns = (
        "",
        "share sent before",
        "1 ÷ (1 − share)",
        "SGLang ÷ vLLM",
        "vLLM, requests/s",
        "SGLang, requests/s",
        "found",
        "found, arrival order",
    )
    return Grid(title="By task", columns=columns, rows=rows)


def _size_table(sizes: Mapping[int, Mapping[str, Outcome]]) -> Grid:
    rows: list[Row] = [
        (f"{tokens:,} tokens", one["SGLang"].rate, one["first come"].rate, one["SGLang"].hit, one["first come"].hit)
        for tokens, one in sizes.items()
    ]
    columns = ("", "longest prefix first, requests/s", "arrival order", "found", "found, arrival order")
    return Grid(title=f"{SUBJECTS}, by KV memory", columns=columns, rows=rows)


def _chart(found: Outcomes) -> Chart:
    names = sorted(TASKS, key=lambda name: TASKS[name].reusable)
    x = [TASKS[name].reusable for name in names]
    series = [
        Series(name="SGLang ÷ vLLM", x=x, y=[_gain(found[name]) for name in names]),
        Series(name="1 ÷ (1 − share)", x=x, y=[1 / (1 - share) for share in x], mark=Mark.LINE),
    ]
    return Chart(
        title="Gain in throughput by the share of prompt tokens that were sent before",
        x_label="share of prompt tokens sent before",
        y_label="times the throughput of vLLM without a prefix cache",
        series=series,
    )
