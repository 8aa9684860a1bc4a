"""Where the time of a step goes: the real engine stepped by hand, its native stages timed from inside.

A decode step is profiled with every sequence at about the wanted context, a prefill as all steps of one prompt. What a
stage achieved stands beside two yardsticks measured in the same process: the kernel set's own product step on registers
alone, and what all threads together read from memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from headway.core import Event, Request, SamplingParams, TokenEmitted
from headway.engine import Engine
from headway.errors import BadSetting
from headway.executor.native import NativeExecutor, StepTimes
from headway.kernels.native import product_peak, read_peak, stage_names

MATRICES = ("qkv", "output", "gate_up", "down", "head")
_LEAST_CHUNK = 16
_MANY_ROWS = 64
"""Steps of so many rows compute only needed ones behind the last layer's keys and values (`kRowChunk`)."""
_KV_BYTES = {"float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds of one step (or one prompt), its multiply-accumulates and the bytes that it has to read at least once."""

    name: str
    seconds: float
    products: float = 0.0
    num_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The stages of one kind of work; `seconds` is the wall time of a step (or prompt), `num_tokens` what it computes.

    `num_timed` of the `num_run` steps are averaged: the faster half, because a shared machine only ever takes away.
    """

    work: str
    num_tokens: int
    seconds: float
    num_timed: int
    num_run: int
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardsticks:
    """Multiply-accumulates per second of the weights' format and of floats, and bytes per second, of all threads."""

    weight_products: float
    float_products: float
    read_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What a layer does: `rows` attend to `seen` tokens in all, `read` of them at least come from memory.

    Its weights are read `passes` times.
    """

    rows: int
    seen: int
    read: int
    passes: int


@dataclass(frozen=True, slots=True)
class _Timed:
    wall_s: float
    times: StepTimes


def yardsticks(engine: Engine) -> Yardsticks:
    """Measure what this machine could do at most, in half a second."""
    kernels, threads = engine.compute.kernels, engine.compute.threads or 1
    return Yardsticks(
        weight_products=product_peak(kernels, engine.compute.weights == "int8", threads),
        float_products=product_peak(kernels, False, threads),
        read_bytes=read_peak(threads),
    )


class StepProfiler:
    """Steps an engine that nobody else uses, with requests of random tokens that end by length alone.

    Raises `BadSetting` for an executor without stages and for lengths that a sequence cannot have.
    """

    def __init__(self, engine: Engine) -> None:
        if not isinstance(engine.core.executor, NativeExecutor):
            raise BadSetting("only the native executor can be profiled")
        self._engine = engine
        self._executor = engine.core.executor
        self._random = random.Random(0)
        self._waiting: set[str] = set()  # requests without a token yet
        engine.core.listen(self._on_events)

    def decode(self, num_seqs: int, context: int, num_steps: int) -> Profile:
        """Steps in which `num_seqs` sequences decode one token each at about `context` tokens."""
        num_prompt = context - num_steps // 2
        if num_prompt < 1:
            raise BadSetting(f"a context of {context} has no room for {num_steps} steps, half of them before it")
        # The first to be prefilled decodes while the others are: it must not end before the last.
        # A policy may grant a prompt few tokens a step beside others' decodes; none grants fewer than these.
        spare = num_seqs * (num_prompt // _LEAST_CHUNK + 4)
        room = max(0, self._engine.limits.max_model_len - num_prompt - num_steps)
        ids = [self._submit(num_prompt, num_steps + min(spare, room)) for _ in range(num_seqs)]
        for _ in range(spare):
            if not self._waiting:
                break
            self._step()
        if self._waiting:
            raise BadSetting(f"the engine does not run {num_seqs} sequences of {context} tokens at once; take fewer")
        found = [self._timed(self._step) for _ in range(num_steps)]
        for request_id in ids:
            self._engine.core.abort(request_id)
        self._engine.core.flush_events()
        work = _Work(rows=num_seqs, seen=num_seqs * context, read=num_seqs * context, passes=1)
        sizes = _sizes(self._engine, work, last=work, sampled=num_seqs)
        return _profile(f"decode of {num_seqs} at context {context}", num_seqs, found, sizes)

    def prefill(self, num_tokens: int, repeats: int) -> Profile:
        """All steps of one prompt, with its first token."""
        found = [self._timed(lambda: self._run_prompt(num_tokens)) for _ in range(repeats)]
        budget = self._engine.config.max_num_batched_tokens
        chunks = [range(start, min(start + budget, num_tokens)) for start in range(0, num_tokens, budget)]
        last = [chunk if len(chunk) < _MANY_ROWS else chunk[num_tokens - 1 - chunk.start :] for chunk in chunks]
        sizes = _sizes(self._engine, _work_of(chunks), last=_work_of(last), sampled=1)
        return _profile(f"prefill of {num_tokens}", num_tokens, found, sizes)

    def _submit(self, num_prompt: int, num_output: int) -> str:
        wanted, most = num_prompt + num_output, self._engine.limits.max_model_len
        if wanted > most:
            raise BadSetting(f"{num_prompt} + {num_output} tokens are wanted; a sequence holds at most {most}")
        request_id = f"profile-{self._random.getrandbits(64):x}"
        vocab = self._engine.model.vocab_size
        prompt_ids = tuple(self._random.randrange(vocab) for _ in range(num_prompt))
        params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True)
        self._waiting.add(request_id)
        self._engine.core.submit(Request(id=request_id, prompt_ids=prompt_ids, max_output=num_output, params=params))
        return request_id

    def _run_prompt(self, num_tokens: int) -> None:
        self._submit(num_tokens, 1)
        while self._engine.core.has_work:
            self._step()

    def _step(self) -> None:
        assert self._engine.core.step(), "nothing was left to compute"

    def _timed(self, work: Callable[[], None]) -> _Timed:
        times = StepTimes()
        self._executor.time_into(times)
        begin_s = time.perf_counter()
        work()
        wall_s = time.perf_counter() - begin_s
        self._executor.time_into(None)
        return _Timed(wall_s, times)

    def _on_events(self, events: list[Event]) -> None:
        self._waiting -= {event.request_id for event in events if isinstance(event, TokenEmitted)}


def _work_of(chunks: list[range]) -> _Work:
    """The positions of a prompt that its steps compute; no work is done for an empty chunk."""
    some = [chunk for chunk in chunks if chunk]
    return _Work(
        rows=sum(map(len, some)),
        seen=sum(position + 1 for chunk in some for position in chunk),
        read=sum(chunk.stop for chunk in some),
        passes=len(some),
    )


def _sizes(engine: Engine, work: _Work, *, last: _Work, sampled: int) -> dict[str, tuple[float, float]]:
    """Products and bytes by stage; of the last layer's rows only `last` go on behind its keys and values.

    `sampled` rows need logits.
    """
    model = engine.model
    width, query, kv = model.hidden_size, model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    item = 1 if engine.compute.weights == "int8" else 4
    others = model.num_layers - 1

    def matrix(size: int, end: _Work) -> tuple[float, float]:
        rows, passes = others * work.rows + end.rows, others * work.passes + end.passes
        return float(size * rows), float(size * passes * item)

    token_bytes = 2 * kv * _KV_BYTES[engine.compute.kv_dtype]
    head = model.vocab_size * width
    return {
        "qkv": matrix(width * (query + 2 * kv), work),
        "attend": (
            2.0 * query * (others * work.seen + last.seen),
            float(token_bytes * (others * work.read + last.read)),
        ),
        "output": matrix(width * query, last),
        "gate_up": matrix(2 * width * model.ffn_size, last),
        "down": matrix(width * model.ffn_size, last),
        "head": (float(sampled * head), float(head * item)),
    }


def _profile(work: str, num_tokens: int, found: list[_Timed], sizes: dict[str, tuple[float, float]]) -> Profile:
    best = sorted(found, key=lambda timed: timed.wall_s)[: (len(found) + 1) // 2]

    def mean(value: Callable[[_Timed], float]) -> float:
        return fmean(value(timed) for timed in best)

    stages_N = np.mean([timed.times.stages_N for timed in best], axis=0).tolist()
    inside: dict[str, float] = dict(zip(stage_names(), stages_N, strict=True))
    call_s = mean(lambda timed: timed.times.call_s)
    pack_s = mean(lambda timed: timed.times.pack_s)
    sample_s = mean(lambda timed: timed.times.sample_s)
    wall_s = mean(lambda timed: timed.wall_s)
    outside = {
        "call": call_s - sum(inside.values()),
        "pack": pack_s,
        "sample": sample_s,
        "schedule": wall_s - call_s - pack_s - sample_s,
    }
    stages = tuple(Stage(name, seconds, *sizes.get(name, (0.0, 0.0))) for name, seconds in (inside | outside).items())
    return Profile(
        work=work, num_tokens=num_tokens, seconds=wall_s, num_timed=len(best), num_run=len(found), stages=stages
    )
