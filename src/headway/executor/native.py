"""The default executor: a Llama-type model in compiled code, one call per step.

Bit for bit, a sequence's logits are those of its solo run, whatever shares its steps, however its prompt is cut,
whichever blocks and block size it has and however many threads run: see `headway.kernels.native`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headway.core import Batch, BlockPair, Logprobs, StepResult
from headway.errors import ExecutorFault
from headway.executor.base import Capacity
from headway.executor.finished import Finished, run_at_once
from headway.executor.pack import Packed, Scored, pack
from headway.executor.sampling import sample, score
from headway.kernels.native import Array, Ints, KvCache, NativeModel, StepArrays, stage_names

_SCORED_TILE = 64
"""Prompt rows whose logits exist at a time, when their log probabilities are asked for."""


@dataclass(slots=True)
class StepTimes:
    """Where the time of launches went, in seconds, summed: packing arrays, the native call and its stages, sampling.

    `stages_N` are in the order of `stage_names()`; what they lack of `call_s` is checks of the batch and the start and
    end of the threads' work.
    """

    pack_s: float = 0.0
    call_s: float = 0.0
    sample_s: float = 0.0
    stages_N: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(stage_names())))


class NativeExecutor:
    """Runs batches of any mix on a finished `NativeModel` over its own paged cache.

    A step that raised `ExecutorFault` may be launched again without its copies, which were done: it writes the same
    slots and draws the same tokens.
    """

    def __init__(
        self, model: NativeModel, *, kv_dtype: str, num_blocks: int, block_size: int, num_host_blocks: int = 0
    ) -> None:
        self._model: NativeModel | None = model
        self._capacity = Capacity(num_blocks=num_blocks, block_size=block_size, num_host_blocks=num_host_blocks)
        self._times: StepTimes | None = None
        self.cache: KvCache | None = model.new_cache(
            dtype=kv_dtype, block_size=block_size, num_blocks=num_blocks, num_host_blocks=num_host_blocks
        )

    def time_into(self, times: StepTimes | None) -> None:
        """Add the times of every later step to `times`; None ends it."""
        self._times = times

    def capacity(self) -> Capacity:
        """Blocks of the pool and of the host tier; one batch at a time."""
        return self._capacity

    def launch(self, batch: Batch) -> Finished:
        """Do the batch's copies and the whole step; what came of it waits in the returned object."""
        return run_at_once(self, batch, self._run)

    def swap_out(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks to host blocks: pairs of (device, host)."""
        if pairs:
            self._open()[1].swap_out(pairs)

    def swap_in(self, pairs: list[BlockPair]) -> None:
        """Copy host blocks to device blocks: pairs of (host, device)."""
        if pairs:
            self._open()[1].swap_in(pairs)

    def copy_blocks(self, pairs: list[BlockPair]) -> None:
        """Copy device blocks onto device blocks: pairs of (from, to), one after the other."""
        if pairs:
            self._open()[1].copy(pairs)

    def release(self, seq_ids: list[str]) -> None:
        """Nothing is kept between steps but the cache."""

    def close(self) -> None:
        """Give back threads, weights and cache; no step may be launched afterwards."""
        self._model = self.cache = None

    def logits(self, batch: Batch) -> Array:
        """Logits [T, V] of every row of the lanes, in their order: for tests and measurements. Writes the cache too."""
        model, cache = self._open()
        packed = pack(batch, self._capacity.block_size)
        num_rows = int(packed.cu_seqlens_S1[-1])
        step = _arrays(packed, np.arange(num_rows, dtype=np.int32))
        return model.run(cache, step, num_logits=num_rows).logits_RV.copy()

    def _open(self) -> tuple[NativeModel, KvCache]:
        assert self._model is not None, "the executor is closed"
        assert self.cache is not None, "the executor is closed"
        return self._model, self.cache

    def _run(self, batch: Batch) -> StepResult:
        model, cache = self._open()
        begin_s = time.perf_counter()
        packed = pack(batch, self._capacity.block_size)
        if not len(packed.token_ids_T):
            return StepResult()
        num_draws = len(packed.draw_rows_R)
        scored_rows = [scored.first_row + i for scored in packed.scored for i in range(len(scored.target_ids))]
        needed_N = np.concatenate([packed.draw_rows_R, np.array(scored_rows, np.int32)])
        times = self._times
        call_s = time.perf_counter()
        logits = model.run(
            cache,
            _arrays(packed, needed_N),
            num_logits=num_draws,
            stage_seconds_N=times.stages_N if times is not None else None,
        )
        sample_s = time.perf_counter()
        tokens = sample(packed.draws, packed.logit_rows, logits.logits_RV, logits.best_R)
        if times is not None:
            times.pack_s += call_s - begin_s
            times.call_s += sample_s - call_s
            times.sample_s += time.perf_counter() - sample_s
        scores: dict[str, list[Logprobs]] = {}
        first = num_draws
        for scored in packed.scored:
            scores[scored.seq_id] = _score(model, scored, first)
            first += len(scored.target_ids)
        return StepResult({draw.seq_id: [token] for draw, token in zip(packed.draws, tokens, strict=True)}, scores)


def _arrays(packed: Packed, needed_rows_N: Ints) -> StepArrays:
    return StepArrays(
        token_ids_T=packed.token_ids_T,
        cu_seqlens_S1=packed.cu_seqlens_S1,
        contexts_S=packed.context_S,
        block_tables_SB=packed.block_tables_SB,
        needed_rows_N=needed_rows_N,
    )


def _score(model: NativeModel, scored: Scored, first_needed: int) -> list[Logprobs]:
    """Log probabilities of the known next tokens of a lane's prompt rows, which are needed rows of the last step."""
    found: list[Logprobs] = []
    for first in range(0, len(scored.target_ids), _SCORED_TILE):
        target_ids = scored.target_ids[first : first + _SCORED_TILE]
        logits_RV = model.logits(first_needed + first, len(target_ids)).logits_RV
        if not np.isfinite(logits_RV.max(axis=1)).all():
            raise ExecutorFault(
                f"the model computed no usable logits for the prompt of {scored.seq_id}", seq_ids=(scored.seq_id,)
            )
        found += [
            score(logits_V, token_id, scored.num_top) for logits_V, token_id in zip(logits_RV, target_ids, strict=True)
        ]
    return found
