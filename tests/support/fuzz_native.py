"""Throws random nonsense at the compiled module's face.

As a script, since a mistake there would end the process:

    python -m tests.support.fuzz_native SEED NUM_CALLS

Prints how many calls were refused and how many went through. Ends with 0 unless a refusal was no exception of the
known kinds, or changed what a sound step computes.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from headway import _native
from headway.executor.native_loader import native_config
from headway.models import random_weights
from tests.support.native_models import native_model
from tests.support.tiny_model import tiny_config

REFUSALS = (TypeError, ValueError, RuntimeError, MemoryError)  # OverflowError is an ArithmeticError: not expected
NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 16, 64, 257, 4095, 65537, 10**6, 2**26, 2**31 - 1, 2**31, 2**64)
OTHERS = (None, "int8", b"x", 1.5, float("nan"), [], [1], (1, 2), {}, object())
SHAPES = ((), (0,), (1,), (3,), (1 << 40, 0), (1, 1), (2, 3), (0, 5), (1, 2, 3), (3, 0, 3))
NAMES = ("norm", "q", "o", "head", "embedding", "q_bias", "down", "", "attn_norm\0")
MEMORY_LIMIT = 6 << 30  # of addresses: no nonsense may make the machine swap

Call = tuple[str, Callable[..., object], tuple[object, ...], dict[str, object]]


class Fuzz:
    """A tiny model, a sound step on it, and ways to spoil a call."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        weights = random_weights(tiny_config(), seed=2)
        self.config = native_config(weights.config)
        self.model = native_model(weights, form="int8", num_threads=2)._model
        self.cache = self.model.new_cache(dtype="int8", block_size=4, num_blocks=6, num_host_blocks=2)
        odd = native_config(random_weights(tiny_config(num_kv_heads=1), seed=2).config)
        self.other = _native.Model(odd, weights="int8", kernel_set="auto", num_threads=1)
        self.ops = [_native.Ops(name) for name in _native.runnable_kernel_sets()]

    def sound_step(self) -> dict[str, object]:
        """Two lanes of 5 and 2 tokens."""
        ints = {
            "token_ids": [5, 6, 7, 8, 9, 1, 2],
            "cu_seqlens": [0, 5, 7],
            "contexts": [5, 2],
            "block_tables": [[3, 1], [0, -1]],
            "needed_rows": [4, 6],
        }
        arrays: dict[str, object] = {name: np.array(value, np.int32) for name, value in ints.items()}
        seconds = np.zeros(len(_native.stage_names()))
        room = np.empty((2, self.config.vocab_size), np.float32)
        return {"cache": self.cache, **arrays, "logits": room, "best": np.empty(2, np.int32), "stage_seconds": seconds}

    def answer(self) -> bytes:
        """The bits of the sound step."""
        step = self.sound_step()
        self.model.run(**step)
        return step["logits"].tobytes()

    def number(self) -> object:
        """A whole number, far out or not, or something else altogether."""
        return self.rng.choice(NUMBERS if self.rng.random() < 0.8 else OTHERS)

    def array(self) -> object:
        """An array of some type and shape, with anything in it."""
        dtype = self.rng.choice(["f4", "f8", "i4", "i8", ">i4", "u1", "O", "f2"])
        shape = self.rng.choice(SHAPES)
        if self.rng.random() < 0.1:
            return self.rng.choice(OTHERS)
        return np.full(shape, self.rng.choice([0, 1, 3] if dtype == "u1" else [-1, 0, 1, 3]), dtype)

    def spoilt(self, array: np.ndarray) -> object:
        """The array with one thing wrong with it, or nothing."""
        rng = self.rng
        changed = array.copy()
        if array.size and array.dtype == np.int32:
            changed.flat[rng.randrange(array.size)] = rng.choice([n for n in NUMBERS if -(2**31) <= n < 2**31])
        read_only = array.copy()
        read_only.flags.writeable = False
        return rng.choice(
            [
                *(changed, changed, changed, array, array[:-1], array[:0], array[::-1], array[..., None]),
                *(array.astype(np.int64), array.astype(np.float64), array.astype(">i4"), read_only),
                *(
                    np.asfortranarray(np.stack([array, array])),
                    np.repeat(array, 2, axis=0),
                    array.tolist(),
                    self.array(),
                ),
            ]
        )

    def pairs(self) -> object:
        """Block pairs, most of which do not exist."""
        return [tuple(self.rng.choice([-1, 0, 1, 5, 6, 2**31 - 1, 2**40]) for _ in range(2)) for _ in range(3)]

    def call(self) -> Call:
        """One call of the face, with its arguments."""
        makers = (
            self._run,
            self._run,
            self._run,
            self._logits,
            self._move,
            self._tensor,
            self._config,
            self._cache,
            self._op,
        )
        return self.rng.choice(makers)()

    def _run(self) -> Call:
        step = self.sound_step()
        for name in self.rng.sample(sorted(step), self.rng.choice([1, 1, 2, 3])):
            value = step[name]
            other = self.rng.choice([None, self.other.new_cache(dtype="int8", block_size=4, num_blocks=6)])
            step[name] = self.spoilt(value) if isinstance(value, np.ndarray) else other
        return "run", self.model.run, (), step

    def _logits(self) -> Call:
        num_rows = self.rng.choice([0, 1, 2, 3])
        room = np.empty((num_rows, self.config.vocab_size), np.float32), np.empty(num_rows, np.int32)
        return "logits", self.model.logits, (self.number(), self.spoilt(room[0]), self.spoilt(room[1])), {}

    def _move(self) -> Call:
        kind = self.rng.choice(["copy", "swap_out", "swap_in", "poison"])
        pairs = self.rng.choice([self.pairs(), [self.number()], self.number()])
        return kind, getattr(self.cache, kind), (pairs,), {}

    def _tensor(self) -> Call:
        model = self.rng.choice([self.model, self.other])
        return "set_tensor", model.set_tensor, (self.rng.choice(NAMES), self.number(), self.array()), {}

    def _config(self) -> Call:
        config = _native.ModelConfig()
        names = [name for name in dir(self.config) if not name.startswith("_")]
        for name in names:
            setattr(config, name, getattr(self.config, name))
        spoilt = self.rng.sample(names, 2)
        values = [self.rng.choice([self.number(), self.number(), [float("nan")], [1e308]]) for _ in spoilt]

        def build(**settings: object) -> object:
            for name, value in zip(spoilt, values, strict=True):
                setattr(config, name, value)
            _native.block_bytes(config, "int8", 16)
            return _native.Model(config, **settings)

        threads = self.rng.choice([1, 2, -1, 2**31 - 1, None])
        return "Model", build, (), {"weights": "int8", "kernel_set": "auto", "num_threads": threads}

    def _cache(self) -> Call:
        settings = {"dtype": self.rng.choice(["int8", "float16", "fp8", None])}
        settings |= {name: self.number() for name in ("block_size", "num_blocks", "num_host_blocks")}
        return "new_cache", self.model.new_cache, (), settings

    def _op(self) -> Call:
        ops, rng = self.rng.choice(self.ops), self.rng
        x, out = np.ones((2, 32), np.float32), np.empty((2, 32), np.float32)
        heads, table = np.ones((4, 2, 8), np.float32), np.array([0, 1], np.int32)
        sound = {
            "act_levels": (32,),
            "linear": (x, np.ones((32, 32), np.float32), np.ones(32, np.float32), True, 2, out),
            "rms_norm": (x, x[0], 1e-5, out),
            "quantize": (x, 100, out),
            "rms_norm_quantize": (x, 1e-5, 100, out),
            "silu_mul": (np.ones((2, 64), np.float32), out),
            "silu_mul_quantize": (np.ones((2, 64), np.float32), 2, 100, out),
            "attention": (heads, heads, heads, table, 2, 2, 0, 1, heads.copy()),
            "argmax": (x[0],),
        }
        kind = rng.choice(sorted(sound))
        arguments = list(sound[kind])
        for place in rng.sample(range(len(arguments)), min(len(arguments), rng.choice([1, 2]))):
            value = arguments[place]
            arguments[place] = self.spoilt(value) if isinstance(value, np.ndarray) else self.number()
        return f"Ops.{kind}", getattr(ops, kind), tuple(arguments), {}


def misuse(fuzz: Fuzz) -> None:
    """Objects that were never made, made twice, or of another class."""
    raw = _native.Model.__new__(_native.Model)
    attempts = [
        raw.finish,
        lambda: raw.num_threads,
        _native.KvCache,
        lambda: _native.Model(None, weights="int8", kernel_set="auto", num_threads=1),
        lambda: _native.Model.__init__(fuzz.model, fuzz.config, weights="int8", kernel_set="auto", num_threads=1),
        lambda: _native.Model.finish(fuzz.cache),
        lambda: _native.Ops("nonsense"),
        lambda: _native.product_peak("scalar", True, 0),
        lambda: _native.read_peak(-1),
        lambda: _native.block_bytes(fuzz.config, "int8", 0),
    ]
    for attempt in attempts:
        try:
            attempt()
        except REFUSALS:
            continue
        raise AssertionError("a misuse went through")


def main() -> None:
    """Fuzz, and compare the sound step's bits now and then."""
    seed, num_calls = int(sys.argv[1]), int(sys.argv[2])
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which needs terabytes of addresses, and has its own limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    fuzz = Fuzz(seed)
    before = fuzz.answer()
    counts = {"refused": 0, "done": 0}
    bounds = range(0, num_calls + 1, max(1, num_calls // 20))
    for first, last in pairwise(bounds):
        for _ in range(first, last):
            kind, call, arguments, named = fuzz.call()
            print(kind, file=sys.stderr)  # the last line names the culprit
            try:
                call(*arguments, **named)
                counts["done"] += 1
            except REFUSALS:
                counts["refused"] += 1
        assert fuzz.answer() == before, "a refused call left a trace"
    misuse(fuzz)
    assert fuzz.answer() == before, "a misuse left a trace"
    print(counts)


if __name__ == "__main__":
    main()
