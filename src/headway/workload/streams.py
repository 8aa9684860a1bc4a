"""One kind of traffic, a class of a tenant: what each of its visits asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.core import Slo
from headway.workload.behaviour import Behaviour, Habits
from headway.workload.item import WorkItem
from headway.workload.pairs import Pairs
from headway.workload.seeds import stream
from headway.workload.sessions import SessionRule, Turn
from headway.workload.shared import SystemPrompts, context_ids, mix, named

DEFAULT_BLOCK = 16  # tokens; what most engines share by


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Who asks, and what they were promised."""

    tenant: str = ""
    traffic_class: str = ""
    priority: int = 0
    deadline_s: float | None = None
    slo: Slo = field(default_factory=Slo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The traffic of one profile. `share` is its weight among the streams that one arrival process feeds.

    `text_rows` are rows of the file of prompts with their own lengths, taken in turn; without, text is made up.
    """

    profile: Profile
    pairs: Pairs
    share: float = 1.0
    max_output: int = 0
    system: SystemPrompts | None = None
    sessions: SessionRule | None = None
    behaviour: Behaviour = field(default_factory=Behaviour)
    prefix_block: int = DEFAULT_BLOCK
    num_texts: int = 0

    @property
    def name(self) -> str:
        """Its name among the random streams."""
        return f"{self.profile.tenant}/{self.profile.traffic_class}"


class Visits:
    """A stream's visits, one after the other: each is one request, or the requests of one session.

    The items have neither id nor time yet; a later turn has `think_s`.
    """

    def __init__(self, traffic: Stream, seed: int) -> None:
        self._traffic = traffic
        self._origin = mix(seed, named(traffic.name))
        self._of_system = stream(seed, "system", traffic.name)
        self._of_habits = stream(seed, "behaviour", traffic.name)
        self._of_think = stream(seed, "think", traffic.name)
        self._pairs = traffic.pairs.pairs(stream(seed, "lengths", traffic.name))
        rule = traffic.sessions
        self._talks = rule.conversations.conversations(stream(seed, "sessions", traffic.name)) if rule else None
        self._num_visits = 0

    def next(self) -> list[WorkItem]:
        """The next visit's items, in the order of their turns."""
        self._num_visits += 1
        system = self._traffic.system.draw(self._of_system) if self._traffic.system else ()
        if self._talks is not None:
            return list(self._session(next(self._talks), system))
        num_prompt, num_output = next(self._pairs)
        return [self._item(num_prompt + len(system) * self._traffic.prefix_block, num_output, system)]

    def _session(self, turns: Sequence[Turn], system: tuple[int, ...]) -> Iterator[WorkItem]:
        rule, block = self._traffic.sessions, self._traffic.prefix_block
        assert rule is not None
        context = mix(self._origin, self._num_visits)
        said = len(system) * block
        for turn, (num_new, num_output) in enumerate(turns):
            num_prompt = said + num_new
            if turn and rule.max_context is not None and num_prompt + num_output > rule.max_context:
                return
            num_blocks = -(-num_prompt // block)
            prefix = system + context_ids(context, len(system), num_blocks)
            think_s = rule.think.draw(self._of_think) if turn and rule.think else 0.0
            yield self._item(num_prompt, num_output, prefix, turn=turn, think_s=think_s)
            said = num_prompt + num_output

    def _item(
        self, num_prompt: int, num_output: int, prefix: tuple[int, ...], *, turn: int = 0, think_s: float = 0.0
    ) -> WorkItem:
        traffic, who = self._traffic, self._traffic.profile
        habits: Habits = traffic.behaviour.draw(self._of_habits)
        return WorkItem(
            id="",
            num_prompt=num_prompt,
            num_output=num_output,
            max_output=max(num_output, traffic.max_output),
            prefix=prefix,
            prefix_block=traffic.prefix_block if prefix else 0,
            turn=turn,
            think_s=think_s,
            tenant=who.tenant,
            traffic_class=who.traffic_class,
            priority=who.priority,
            deadline_s=who.deadline_s,
            slo=who.slo,
            cancel_tokens=habits.cancel_tokens,
            cancel_s=habits.cancel_s,
            read_tokens_s=habits.read_tokens_s,
            retries=traffic.behaviour.retries,
            backoff_s=traffic.behaviour.backoff_s,
            text_row=(self._num_visits - 1) % traffic.num_texts if traffic.num_texts else None,
            seed=mix(self._origin, self._num_visits, turn),
        )
