"""Who runs against whom, in which order, and what came of it so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from headway.bench.maker import Maker
from headway.bench.mixed import MixedLoad
from headway.bench.plan import RunPlan
from headway.bench.score import Score, middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Who runs on what. `settings` are `--set` texts by policy; those under "" go to every policy that knows them.

    `factors` are arrival rates as shares of `base_rate`, which is what `vllm` sustains here where it is None.
    """

    policies: Sequence[str]
    load: MixedLoad = field(default_factory=MixedLoad)
    factors: Sequence[float] = (1.2, 0.8)
    repeats: int = 5
    base_rate: float | None = None
    timeout_s: float | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def within(self, context: int) -> Contest:
        """The same where a sequence has at most `context` tokens. Raises `BadSetting` if its lengths cannot be."""
        load = replace(self.load, context=context)
        load.workload(1.0, 0)
        return replace(self, load=load)

    def plan(self, rate: float, repeat: int) -> RunPlan:
        """A round's requests at `rate` requests per second, all at once where that is infinite."""
        return RunPlan.of(self.load.workload(rate, repeat), timeout_s=self.timeout_s)

    def salt(self, repeat: int) -> int:
        """What a round's prompts are made from."""
        return self.load.seed + repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What rates are multiples of, in requests per second, and what a look at the machine's speed took then.

    0 where nobody looked.
    """

    rate: float
    glance_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """One run of the contest: a policy, a share of the base rate, a round."""

    policy: str
    factor: float
    repeat: int
    number: int = 0
    num_heats: int = 0


class RunLog(Protocol):
    """Runs that were made before, and what their rates are multiples of; None until it was measured."""

    base: Base | None

    def find(self, heat: Heat) -> Score | None:
        """The score of a run that was made before."""
        ...

    def maker(self, heat: Heat) -> Maker:
        """Who made a run that is kept."""
        ...

    def add(self, heat: Heat, score: Score) -> None:
        """Keep a run that has ended."""
        ...

    def set_base(self, base: Base) -> None:
        """Keep what all rates are multiples of."""
        ...


@dataclass(slots=True)
class Standings:
    """Scores so far. `skipped` says why a policy could not run at all; `base_rate` is in requests per second.

    A list of scores begins with the first round and lacks none up to its end; `makers`, where a log is kept, are those
    of the same runs. Where time followed the machine's speed, figures are those of a speed of 1.
    """

    base_rate: float = 0.0
    follows_speed: bool = False
    scores: dict[tuple[float, str], list[Score]] = field(default_factory=dict)
    makers: dict[tuple[float, str], list[Maker]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False

    def at(self, factor: float) -> dict[str, list[Score]]:
        """Each policy's figures at one rate, in the rounds that all with any have finished: rounds differ."""
        num_rounds = min(map(len, self._begun(factor).values()), default=0)
        return {policy: scores[:num_rounds] for policy, scores in self._begun(factor).items()}

    def num_left_out(self, factor: float) -> int:
        """Runs at one rate whose round an interruption kept from others."""
        return sum(map(len, self._begun(factor).values())) - sum(map(len, self.at(factor).values()))

    def makers_at(self, factor: float) -> list[Maker]:
        """Who made the runs that are compared at one rate."""
        return [
            maker
            for policy, scores in self.at(factor).items()
            for maker in self.makers.get((factor, policy), ())[: len(scores)]
        ]

    def _begun(self, factor: float) -> dict[str, list[Score]]:
        return {policy: scores for (rate, policy), scores in self.scores.items() if rate == factor and scores}

    def middles(self, factor: float) -> dict[str, Score]:
        """The median of each policy's figures at one rate."""
        return {policy: middle(scores) for policy, scores in self.at(factor).items()}


def rounds(policies: Sequence[str], factors: Sequence[float], repeats: int) -> list[Heat]:
    """Heats in an order that spreads a machine's slow changes over all policies: each round begins with another."""
    heats: list[Heat] = []
    for repeat in range(repeats):
        for factor in factors:
            shift = repeat % max(1, len(policies))
            turn = [*policies[shift:], *policies[:shift]]
            heats += [Heat(policy=policy, factor=factor, repeat=repeat) for policy in turn]
    return heats
