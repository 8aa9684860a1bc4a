"""What is counted, and how events count. One writer; values only grow."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core import Admitted, Event, Finished, FinishReason, Preempted, Rejected, StepRecord, TokenEmitted
from headway.obs.histogram import (
    LATENCY_S,
    NUM_CHOICES,
    STEP_TOKENS,
    TOKEN_S,
    TTFT_S,
    Histogram,
    one_two_five,
)
from headway.obs.latency import LatencyTracker, Lifetime

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "prompt_tokens": ("Prompt tokens of requests that got their first token, cached ones included.", ()),
    "generation_tokens": ("Tokens generated.", ()),
    "prefix_cache_queries": ("Prompt tokens looked up in the prefix cache, at first admission.", ()),
    "prefix_cache_hits": ("Prompt tokens found in the prefix cache, at first admission.", ()),
    "prefix_cache_recovered": ("Tokens found in the prefix cache by requests that return from a preemption.", ()),
    "num_preemptions": ("Times a running request lost its place.", ()),
    "request_success": ("Requests that ended, by reason.", ("finished_reason",)),
    "requests_rejected": ("Requests that were refused after they had been queued.", ()),
}
"""Name to (help, labels beside model_name). The exposition appends `_total`."""

_TOKENS = one_two_five(1_000_000)

HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "time_to_first_token_seconds": ("Arrival to first token.", TTFT_S),
    "inter_token_latency_seconds": ("Gaps between a choice's tokens.", TOKEN_S),
    "request_time_per_output_token_seconds": ("(last − first token) ÷ (tokens − 1), per request.", TOKEN_S),
    "e2e_request_latency_seconds": ("Arrival to last token.", LATENCY_S),
    "request_queue_time_seconds": ("Arrival to first scheduled.", LATENCY_S),
    "request_inference_time_seconds": ("First scheduled to last token.", LATENCY_S),
    "request_prefill_time_seconds": ("First scheduled to first token.", LATENCY_S),
    "request_decode_time_seconds": ("First token to last token.", LATENCY_S),
    "request_prompt_tokens": ("Prompt tokens per finished request.", _TOKENS),
    "request_generation_tokens": ("Generated tokens per finished request.", _TOKENS),
    "request_max_num_generation_tokens": ("Tokens of the longest choice per finished request.", _TOKENS),
    "request_params_n": ("Parameter n per finished request.", NUM_CHOICES),
    "request_params_max_tokens": ("Parameter max_tokens per finished request that set it.", _TOKENS),
    "iteration_tokens_total": ("Tokens computed per step.", STEP_TOKENS),
}
"""Name to (help, bucket edges)."""

_COMPLETE = (FinishReason.STOP, FinishReason.LENGTH)


class Tally:
    """Counters by name and label values, and histograms by name."""

    def __init__(self) -> None:
        self.histograms = {name: Histogram(edges) for name, (_, edges) in HISTOGRAMS.items()}
        self.counters: dict[str, dict[tuple[str, ...], int]] = {
            name: {} if labels else {(): 0} for name, (_, labels) in COUNTERS.items()
        }
        self.counters["request_success"] = {(reason.value,): 0 for reason in FinishReason}
        self._tracker = LatencyTracker(
            on_scheduled=self._admit,
            on_first=self._begin,
            on_gap=self.histograms["inter_token_latency_seconds"].add,
            on_end=self._end,
        )

    @property
    def num_live(self) -> int:
        """Requests that have arrived and not ended."""
        return self._tracker.num_live

    def add(self, events: Sequence[Event]) -> None:
        """Count what happened in one step."""
        num_tokens = 0
        for event in events:
            match event:
                case TokenEmitted():
                    num_tokens += 1
                case Admitted():
                    if not event.is_first:
                        self._count("prefix_cache_recovered", event.num_cached)
                case Preempted():
                    self._count("num_preemptions", 1)
                case Finished():
                    self.counters["request_success"][event.reason.value,] += 1
                case Rejected():
                    self._count("requests_rejected", 1)
                case StepRecord():
                    self.histograms["iteration_tokens_total"].add(sum(event.grants.values()))
                case _:
                    pass
            self._tracker.on_event(event)
        self._count("generation_tokens", num_tokens)

    def _count(self, name: str, increase: int) -> None:
        assert increase >= 0, f"counter {name} cannot fall by {-increase}"
        self.counters[name][()] += increase

    def _admit(self, life: Lifetime) -> None:
        self._count("prefix_cache_queries", life.request.num_prompt)
        self._count("prefix_cache_hits", life.num_cached)

    def _begin(self, life: Lifetime) -> None:
        self._observe("time_to_first_token_seconds", life.ttft_s)
        self._count("prompt_tokens", life.request.num_prompt)

    def _end(self, life: Lifetime) -> None:
        if life.reason not in _COMPLETE:
            return  # a latency that the client cut short says nothing about us
        self._observe("e2e_request_latency_seconds", life.e2e_s)
        self._observe("request_queue_time_seconds", life.queue_s)
        self._observe("request_inference_time_seconds", life.inference_s)
        self._observe("request_prefill_time_seconds", life.prefill_s)
        self._observe("request_decode_time_seconds", life.decode_s)
        self._observe("request_time_per_output_token_seconds", life.tpot_s)
        self._observe("request_prompt_tokens", life.request.num_prompt)
        self._observe("request_generation_tokens", life.num_output)
        longest = max((choice.num_tokens for choice in life.choices.values()), default=0)
        self._observe("request_max_num_generation_tokens", longest)
        self._observe("request_params_n", life.request.params.n)
        self._observe("request_params_max_tokens", life.request.params.max_tokens)

    def _observe(self, name: str, value: float | None) -> None:
        if value is not None:
            self.histograms[name].add(value)
