"""The five stages: baseline, concurrency, budgets, the traffic as it is, guardrails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway.errors import BadSetting
from headway.tune.guards import Guards
from headway.tune.lab import Lab, Sample, ranked, unlike_first
from headway.tune.outcome import REAL, Outcome, Stage
from headway.tune.setting import Setting, known_knobs
from headway.tune.slo import USAGE
from headway.tune.traffic import Traffic

_BEYOND = (1.1, 1.25, 1.5, 2.0)
_LEAST_KV = 0.05
_MARGIN = 0.85
"""Share of the best rate in virtual time at which settings are verified: closer to it queues are chance."""

QUICK_CONCURRENCY, QUICK_BUDGETS = (32, 96, 256), (128, 512, 2048)
"""For a first look."""

Verify = Callable[[Sample, Guards], Sample]
"""Runs a sample's setting live, at its factor, behind its guards."""

OnProgress = Callable[[str, int, int], None]
"""Called with a stage, the settings tried and those to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many budgets go from the simplified traffic to the real one, and how many settings then run live.

    `concurrency` are the numbers of sequences to try, the baseline's among them, and `budgets` those of tokens.
    """

    num_finalists: int = 5
    num_verified: int = 3
    concurrency: tuple[int, ...] = (8, 16, 32, 48, 64, 96, 128, 192, 256)
    budgets: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096)


def tune(
    lab: Lab,
    traffic: Traffic,
    *,
    policy: str,
    effort: Effort,
    on_progress: OnProgress,
    verify: Verify | None = None,
) -> Outcome:
    """Search for the setting that keeps the promises at the highest rate. `verify` None: virtual time alone.

    Interrupted, it says what it knows by then. Raises `BadSetting` for a policy that cannot be tuned.
    """
    knobs = known_knobs(policy)
    kv_limit = lab.slo.limits.get(USAGE, 1.0) if "kv_cache_utilization_limit" in knobs else 1.0
    search = _Search(lab, traffic, on_progress, Setting(policy=policy, kv_limit=max(_LEAST_KV, kv_limit)), effort)
    try:
        finals = unlike_first(search.run(knobs))
    except KeyboardInterrupt:
        if not lab.samples:
            raise
        return _cut_short(lab, traffic, search.stages)
    guards = Guards.of(lab.slo, traffic, finals[0])
    live, is_complete = list[Sample](), True
    if verify is not None:
        margin = _MARGIN if traffic.scales else 1.0
        live, is_complete = _verified(finals[: effort.num_verified], margin, verify, guards, on_progress)
    chosen = _best_live(finals, live) if live else finals[0]
    search.stages.append(Stage(name="guardrails", text=guards.text(), samples=live))
    return Outcome(
        stages=search.stages,
        chosen=chosen,
        guards=guards,
        live=live,
        beyond=_beyond(lab, traffic, chosen) if traffic.scales and is_complete and not chosen.is_burst else [],
        samples=[*lab.samples, *live],
        rate=traffic.rate,
        slo=lab.slo,
        is_complete=is_complete,
    )


def _cut_short(lab: Lab, traffic: Traffic, stages: Sequence[Stage]) -> Outcome:
    """What is known of an interrupted search: the best run so far, of the real traffic where that was reached."""
    told = {id(one) for stage in stages for one in stage.samples}
    rest = [one for one in lab.samples if id(one) not in told]
    chosen = ranked([one for one in lab.samples if one.stage == REAL] or lab.samples)[0]
    text = "The search was interrupted; these are the runs that no finished stage tells of."
    return Outcome(
        stages=[*stages, Stage(name="interrupted", text=text, samples=rest)],
        chosen=chosen,
        guards=Guards.of(lab.slo, traffic, chosen),
        live=[],
        beyond=[],
        samples=lab.samples,
        rate=traffic.rate,
        slo=lab.slo,
        is_complete=False,
    )


def _verified(
    finals: Sequence[Sample], margin: float, verify: Verify, guards: Guards, on_progress: OnProgress
) -> tuple[list[Sample], bool]:
    """The best settings, live, at `margin` times their rates: closer to the limit, queues are chance.

    And whether all of them ran: interrupted, those that ran whole stay.
    """
    live = []
    try:
        for number, final in enumerate(finals):
            on_progress("live", number, len(finals))
            live.append(verify(replace(final, factor=final.factor * margin), guards))
    except KeyboardInterrupt:
        return live, False
    return live, True


def _best_live(finals: Sequence[Sample], live: Sequence[Sample]) -> Sample:
    """The final whose live run is best; a run that broke a promise counts behind all that did not."""
    best = ranked(live)[0]
    return next(final for final, one in zip(finals, live, strict=False) if one is best)


def _beyond(lab: Lab, traffic: Traffic, chosen: Sample) -> list[Sample]:
    """The chosen setting under more and more traffic, up to the first rate at which something breaks, and one more."""
    found: list[Sample] = []
    for times in _BEYOND:
        found.append(lab.sample("beyond", chosen.setting, traffic, chosen.factor * times))
        if len(found) > 1 and not found[-2].keeps:
            break
    return found


class _Search:
    """The stages that search; each adds its evidence."""

    def __init__(self, lab: Lab, traffic: Traffic, on_progress: OnProgress, base: Setting, effort: Effort) -> None:
        self._lab, self._traffic, self._on_progress = lab, traffic, on_progress
        self._steady = traffic.steady()
        self._base, self._effort = base, effort
        self.stages: list[Stage] = []

    def run(self, knobs: Mapping[str, object]) -> list[Sample]:
        """All stages; the settings that were tried on the real traffic, the best first."""
        baseline = self.baseline()
        shaped = self.budgets(self.concurrency(baseline), knobs)
        return self.real_traffic([baseline, *shaped], knobs)

    def baseline(self) -> Sample:
        """32 sequences, 4096 tokens, on steady traffic of mean lengths."""
        found = self._try("baseline", [self._base], self._steady)
        self.stages.append(Stage(name="baseline", text="Steady traffic of mean lengths.", samples=found))
        return found[0]

    def concurrency(self, baseline: Sample) -> Sample:
        """More sequences at once while that pays, and fewer where it does."""
        own = baseline.setting.max_num_seqs
        found = [baseline]
        for step in (1, -1):
            num_worse = 0
            at = self._effort.concurrency.index(own) + step
            while 0 <= at < len(self._effort.concurrency) and num_worse < 2:
                setting = replace(baseline.setting, max_num_seqs=self._effort.concurrency[at])
                before = ranked(found)[0]
                [made] = self._try("concurrency", [setting], self._steady, before.factor)
                found.append(made)
                num_worse = num_worse + 1 if ranked([before, made])[0] is before else 0
                at += step
        text = "Sequences at once, raised while the promises hold at a higher rate, and lowered likewise."
        self.stages.append(Stage(name="concurrency", text=text, samples=found[1:]))
        return ranked(found)[0]

    def budgets(self, wide: Sample, knobs: Mapping[str, object]) -> list[Sample]:
        """Tokens of a step, the cap on one prompt's share of it, the policy's own target."""
        budgets = [replace(wide.setting, max_num_batched_tokens=budget) for budget in self._effort.budgets]
        found = [wide, *self._try("budget", budgets, self._steady, wide.factor)]
        best = ranked(found)[0]
        found += self._try("budget", self._shapes(best.setting, knobs), self._steady, best.factor)
        text = "Token budgets; then, on the best, caps on one prompt's chunk and targets for the policy to keep."
        self.stages.append(Stage(name="budget", text=text, samples=found[1:]))
        return ranked(found)

    def _shapes(self, best: Setting, knobs: Mapping[str, object]) -> list[Setting]:
        """Ways to cut prompts within the budget of a setting."""
        made: list[Setting] = []
        if "long_prefill_token_threshold" in knobs:
            made += [replace(best, chunk=best.max_num_batched_tokens // part) for part in (2, 4)]
        limit_s = self._lab.slo.limit_s("itl", "tpot")
        if "itl_target_ms" in knobs and limit_s is not None:
            made += [replace(best, itl_ms=round(limit_s * 1e3 * share, 1)) for share in (0.5, 0.8)]
        return made

    def real_traffic(self, candidates: Sequence[Sample], knobs: Mapping[str, object]) -> list[Sample]:
        """The best of each budget under the workload's own lengths, bursts and cancellations, and cuts of the winner.

        `candidates` begin with the baseline. Steady traffic hides what long prompts do to short ones, so that
        whatever it could not tell apart is tried again here.
        """
        baseline, *others = candidates
        by_budget: dict[int, Setting] = {}
        for sample in others:
            by_budget.setdefault(sample.setting.max_num_batched_tokens, sample.setting)
        finalists = list(
            dict.fromkeys(
                [*list(by_budget.values())[: self._effort.num_finalists], others[0].setting, baseline.setting]
            )
        )
        found = self._try(REAL, finalists, self._traffic, others[0].factor)
        best = ranked(found)[0]
        shapes = [one for one in self._shapes(best.setting, knobs) if one not in finalists]
        found += self._try(REAL, shapes, self._traffic, best.factor)
        text = "The workload's own lengths, bursts, prefixes and clients that give up."
        self.stages.append(Stage(name=REAL, text=text, samples=found))
        return ranked(found)

    def _try(self, stage: str, settings: Sequence[Setting], traffic: Traffic, guess: float = 1.0) -> list[Sample]:
        found = []
        for number, setting in enumerate(settings):
            self._on_progress(stage, number, len(settings))
            try:
                found.append(self._lab.best_rate(stage, setting, traffic, guess))
            except BadSetting:
                if len(settings) == 1:
                    raise  # the only one there is; among many, one that cannot run is one fewer
        self._on_progress(stage, len(settings), len(settings))
        return found
