"""Dynamic batch size, by memory and by latency, around another policy (ALGORITHMS §13)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core import Arrived, Event, Finished, FinishReason, Sequence, StepPlan, StepRecord
from headway.errors import BadSetting
from headway.sched.params import at_least, between, param
from headway.sched.parts.batchsize import Bounds, LatencySearch, LengthEstimate, memory_batch, safety_tokens
from headway.sched.parts.meter import load_of
from headway.sched.policy import Axes, Policy, Wrapper
from headway.sched.view import View


class Memory(StrEnum):
    """How the memory rule counts."""

    LENGTHS = "lengths"  # Alg. 1: expected prompt + output of a sequence, with a safety buffer
    USAGE = "usage"  # the authors' adaptation to vLLM: blocks that a running sequence holds now
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatchParams:
    """Parameters of `dynamic_batch`; others go to its base. Times are seconds, in a tape units."""

    base: str = param("vllm", "the policy that it wraps")
    memory: Memory = param(
        Memory.LENGTHS, "lengths (expected lengths and a safety buffer), usage (blocks now held), off"
    )
    tbt_target: float = param(0.05, "mean time of a decode step to keep to; 0 = none (as in a tape)")
    deadband: float = param(0.002, "tbt_target is met within this")
    batchsize_lower: int = param(1, "least batch size")
    batchsize_upper: int = param(256, "greatest batch size")
    batchsize_start: int = param(64, "batch size before anything was measured")
    width: int = param(16, "least width of the search interval (α)")
    slack: int = param(4, "relaxation of the search interval (δ)")
    memory_overflow: float = param(0.05, "probability that memory runs out, for the safety buffer")
    memory_factor: float = param(0.95, "share of all blocks that memory=usage fills")
    interval: int = param(10, "steps with decodes between two decisions by latency")

    def __post_init__(self) -> None:
        """Check the bounds."""
        at_least("tbt_target", self.tbt_target, 0.0)
        at_least("deadband", self.deadband, 0.0)
        at_least("batchsize_lower", self.batchsize_lower, 1)
        at_least("batchsize_upper", self.batchsize_upper, self.batchsize_lower)
        between("batchsize_start", self.batchsize_start, 1, 65_536)
        at_least("width", self.width, 1)
        at_least("slack", self.slack, 0)
        between("memory_overflow", self.memory_overflow, 1e-6, 0.5)
        between("memory_factor", self.memory_factor, 0.05, 1.0)
        at_least("interval", self.interval, 1)
        if self.memory == Memory.OFF and not self.tbt_target and self.batchsize_start < self.batchsize_upper:
            raise BadSetting("memory is off and tbt_target is 0: nothing would ever change the batch size; set one")


class DynamicBatch(Wrapper):
    """Lets its base admit up to a batch size that follows memory and decode latency; never below what runs."""

    Params = DynamicBatchParams
    axes = Axes(
        order="as its base",
        sharing="as its base, up to a batch size that is measured",
        reservation="expected prompt + output of all, with a safety buffer",
        shortage="as its base",
    )
    source = "Memory-aware and SLA-constrained dynamic batching, arXiv 2503.05248"

    def __init__(self, params: DynamicBatchParams, base: Policy) -> None:
        super().__init__(base)
        self._params = params
        self._bounds = Bounds(
            least=params.batchsize_lower, most=params.batchsize_upper, width=params.width, slack=params.slack
        )
        self._search = LatencySearch(self._bounds, params.tbt_target, params.deadband)
        start = int(self._bounds.clamp(params.batchsize_start))
        self._by_memory = self._bounds.most if params.memory == Memory.OFF else start
        self._by_latency = start if params.tbt_target else self._bounds.most
        self._lengths = LengthEstimate()
        self._window: list[tuple[float, int]] = []
        self._num_decodes = 0

    @property
    def batch_size(self) -> int:
        """Sequences that may run at once, as things stand."""
        return min(self._by_memory, self._by_latency)

    def plan(self, view: View) -> StepPlan:
        """The base's, with as many waiting ones as the batch size leaves room for."""
        num_running = view.num_running + sum(seq.num_branches for seq in view.swapped)
        if view.waiting and num_running:
            self._by_memory = self._memory_rule(view, num_running)
        shown = _first(view.waiting, self.batch_size - num_running)
        if not (shown or num_running):
            shown = list(view.waiting)[:1]  # more choices than the batch size: it has to run all the same
        plan = self.base.plan(replace(view, waiting=shown))
        _, self._num_decodes = load_of(plan)
        return plan

    def on_event(self, event: Event) -> None:
        """Learn lengths and latencies."""
        match event:
            case Arrived(request=request):
                self._lengths.arrived(request.num_prompt, request.max_output)
            case Finished(request=request, reason=FinishReason.STOP | FinishReason.LENGTH, num_output=num_output):
                self._lengths.ended(num_output / request.params.n)
            case StepRecord(start_s=start_s, end_s=end_s, queued=queued) if self._num_decodes and not event.lost:
                self._measured(end_s - start_s, queued.num_running)
            case _:
                pass
        self.base.on_event(event)

    def _memory_rule(self, view: View, num_running: int) -> int:
        ledger = view.ledger
        match self._params.memory:
            case Memory.OFF:
                return self._bounds.most
            case Memory.USAGE:
                num_used = max(1, ledger.num_blocks - ledger.num_free)
                size = int(ledger.num_blocks * self._params.memory_factor * num_running / num_used)
            case _:
                capacity = float(ledger.num_blocks * ledger.block_size)
                mean, variance = self._lengths.total
                size = memory_batch(
                    capacity, safety_tokens(capacity, mean, variance, self._params.memory_overflow), mean
                )
        return int(self._bounds.clamp(max(size, num_running)))

    def _measured(self, seconds: float, num_running: int) -> None:
        if not self._params.tbt_target:
            return
        self._window.append((seconds, num_running))
        if len(self._window) < self._params.interval:
            return
        latency = sum(entry[0] for entry in self._window) / len(self._window)
        size = sum(entry[1] for entry in self._window) / len(self._window)
        self._window.clear()
        self._by_latency = max(1, self._search.update(latency, size))


def _first(waiting: Iterable[Sequence], room: int) -> list[Sequence]:
    """As many of the waiting, from the front, as `room` sequences allow."""
    shown: list[Sequence] = []
    for seq in waiting:
        room -= seq.num_branches
        if room < 0:
            break
        shown.append(seq)
    return shown
