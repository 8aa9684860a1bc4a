"""The default model in compiled code: another implementation's logits, a known answer, and what int8 costs."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from headway.core import Batch, Draw, Lane, SamplingParams
from headway.executor.native_loader import NativeLoader
from headway.executor.registry import ExecutorOptions, PoolSize
from headway.kernels.native import runnable_kernel_sets
from headway.models import open_model

ROOT = Path(__file__).parents[2]
FAST_SETS = [name for name in runnable_kernel_sets() if name != "scalar"] or ["scalar"]
MOST_RATIO = 1.02
LEAST_SAME = {"Shakespeare": 0.9, "HumanEval": 0.95}
BLOCKS = list(range(40))

pytestmark = [pytest.mark.model, pytest.mark.native, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def opened(model_path):
    return open_model(str(model_path))


def load(opened, weights, kv_dtype, kernels=None):
    loader = NativeLoader(ExecutorOptions(weights=weights, kv_dtype=kv_dtype, kernels=kernels))
    return loader.load(opened.file, PoolSize(num_blocks=len(BLOCKS), block_size=16))


@pytest.mark.parametrize("kernels", FAST_SETS)
@pytest.mark.parametrize("number", range(4))
def test_float32_logits_equal_another_implementation(opened, number, kernels):
    """Float32 logits are within 0.001 of those in `tests/golden`, in two chunks."""
    golden = np.load(ROOT / "tests" / "golden" / "logits_smollm2_135m.npz")
    ids, cut = golden[f"ids_{number}"].tolist(), len(golden[f"ids_{number}"]) // 3
    executor = load(opened, "float32", "float32", kernels)
    parts = [executor.logits(Batch(0, [Lane("a", ids[a:b], a, BLOCKS)])) for a, b in ((0, cut), (cut, len(ids)))]
    logits = np.concatenate(parts)[golden[f"rows_{number}"]]
    assert np.abs(logits[:, ::24] - golden[f"sample_{number}"]).max() < 1e-3
    assert np.array_equal(logits.argmax(axis=1), golden[f"top_ids_{number}"][:, 0])


@pytest.mark.parametrize("kv_dtype", ["float16", "int8"])
def test_capital_of_france(opened, kv_dtype):
    """The greedy answer survives int8 weights and a small cache."""
    executor = load(opened, "int8", kv_dtype)
    ids = opened.prompts.encode([{"role": "user", "content": "What is the capital of France?"}])
    num_prompt, start, eos_ids = len(ids), 0, opened.tokenizer.eos_ids
    draw = Draw("a", SamplingParams(temperature=0.0), 0, 0, ids, num_prompt, eos_ids)
    while ids[-1] not in eos_ids or len(ids) == num_prompt:
        step = executor.launch(Batch(0, [Lane("a", ids[start:], start, BLOCKS, (draw,))]))
        start = len(ids)
        ids.append(step.result().tokens["a"][0].token_id)
        assert len(ids) < num_prompt + 20
    assert opened.tokenizer.decode(ids[num_prompt:-1]) == "The capital of France is Paris."


@pytest.fixture(scope="module")
def quality():
    spec = importlib.util.spec_from_file_location("quality", ROOT / "benchmarks" / "quality.py")
    module = sys.modules["quality"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def slices(quality, opened, shared_data):
    """512 tokens of each text, with float32's loss and likeliest tokens."""
    model = quality.load(opened, "float32")
    found = {}
    for name, text in quality.read_texts(shared_data / "prompts").items():
        windows = [window[:512] for window in quality.windows(opened, text, 0, 1)]
        found[name] = windows, quality.evaluate(model, "float32", windows)
    return found


@pytest.mark.parametrize("kernels", FAST_SETS)
def test_quantisation_costs_little(quality, opened, slices, kernels):
    """On a short slice of both texts int8 weights keep float32's perplexity and most of its choices, with any cache.

    `make quality` measures the promise itself on eight windows of each text. These bounds leave room for the noise of
    one short window; without the rotation of activations a set with 127 levels breaks them.
    """
    model = quality.load(opened, "int8", kernels)
    for name, (windows, exact) in slices.items():
        for kv_dtype in ("float16", "int8", "float32"):
            score = quality.evaluate(model, kv_dtype, windows)
            assert np.exp(score.loss - exact.loss) < MOST_RATIO, (name, kv_dtype)
            assert (score.best == exact.best).mean() > LEAST_SAME[name], (name, kv_dtype)


@pytest.mark.parametrize("kernels", FAST_SETS)
def test_a_rounded_cache_costs_float32_next_to_nothing(quality, opened, slices, kernels):
    """float32 weights over a float16 cache choose what float32 chooses, and over an int8 cache nearly so."""
    model = quality.load(opened, "float32", kernels)
    windows, exact = slices["HumanEval"]
    for kv_dtype, least in (("float32", 0.998), ("float16", 0.995), ("int8", 0.98)):
        score = quality.evaluate(model, kv_dtype, windows)
        assert abs(score.loss - exact.loss) < 0.01, kv_dtype
        assert (score.best == exact.best).mean() > least, kv_dtype
