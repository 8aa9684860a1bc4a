"""The default model in compiled code: another implementation's logits, a known answer, and what int8 costs."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from headway.core import Batch, Draw, Lane, SamplingParams
from headway.executor.native_loader import NativeLoader
from headway.executor.registry import ExecutorOptions, PoolSize
from headway.models import open_model

ROOT = Path(__file__).parents[2]
BLOCKS = list(range(40))

pytestmark = [pytest.mark.model, pytest.mark.native, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def opened(model_path):
    return open_model(str(model_path))


def load(opened, weights, kv_dtype):
    loader = NativeLoader(ExecutorOptions(weights=weights, kv_dtype=kv_dtype))
    return loader.load(opened.file, PoolSize(num_blocks=len(BLOCKS), block_size=16))


@pytest.mark.parametrize("number", range(4))
def test_float32_logits_equal_another_implementation(opened, number):
    """Float32 logits are within 0.001 of those in `tests/golden`, in two chunks."""
    golden = np.load(ROOT / "tests" / "golden" / "logits_smollm2_135m.npz")
    ids, cut = golden[f"ids_{number}"].tolist(), len(golden[f"ids_{number}"]) // 3
    executor = load(opened, "float32", "float32")
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


def test_int8_costs_little_perplexity(opened, shared_data):
    """On a short slice of both texts int8 weights and cache stay within 2 % of float32's perplexity.

    `benchmarks/quality.py` measures the promise itself, 1 % on eight windows of each text.
    """
    spec = importlib.util.spec_from_file_location("quality", ROOT / "benchmarks" / "quality.py")
    quality = sys.modules["quality"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quality)
    texts = {
        name: [window[:512] for window in quality.windows(opened, text, 0, 1)]
        for name, text in quality.read_texts(shared_data / "prompts").items()
    }
    exact_model, model = quality.load(opened, "float32"), quality.load(opened, "int8")
    for name, windows in texts.items():
        exact, score = (quality.evaluate(m, dtype, windows) for m, dtype in ((exact_model, "float32"), (model, "int8")))
        assert np.exp(score.loss - exact.loss) < 1.02, name
        assert (score.best == exact.best).mean() > 0.9, name
