"""A whole compiled step against the reference executor, and what it refuses."""

import os

import numpy as np
import pytest

from headway import _native
from headway.core import Batch, Draw, Lane, SamplingParams
from headway.errors import ExecutorFault
from headway.executor.reference import ReferenceExecutor
from headway.kernels.native import NativeModel, StepArrays
from headway.models import random_weights
from tests.support.native_models import native_executor, native_model
from tests.support.tiny_model import tiny_config

pytestmark = pytest.mark.native

SETS = _native.runnable_kernel_sets()
SHAPES = {
    "tiny": {},
    "odd": {
        "hidden_size": 50,
        "num_heads": 3,
        "num_kv_heads": 1,
        "head_dim": 10,
        "ffn_size": 33,
        "vocab_size": 101,
        "tied_embeddings": False,
    },
    "wide": {"hidden_size": 576, "num_heads": 9, "num_kv_heads": 3, "head_dim": 64, "ffn_size": 1024, "num_layers": 1},
    "no sharing": {"num_heads": 4, "num_kv_heads": 4, "head_dim": 8, "vocab_size": 49, "ffn_size": 512},
}


def prompt(vocab_size, length, seed=0):
    return np.random.default_rng(seed).integers(0, vocab_size, length).tolist()


def mixed_batch(vocab_size):
    """A long prompt, a short one, and padding behind them."""
    long, short = prompt(vocab_size, 83), prompt(vocab_size, 9, seed=1)
    return Batch(0, [Lane("a", long, 0, [5, 0, 9, 7, 2, 11]), Lane("b", short, 0, [3])], num_wasted_rows=2)


def relative_error(found, exact):
    return np.abs(found - exact).max() / np.abs(exact).max()


def reference_logits(weights, batch):
    return ReferenceExecutor(weights, weights.config, num_blocks=12, block_size=16).logits(batch)


@pytest.mark.parametrize("kernel_set", SETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_float32_equals_the_reference(kernel_set, shape):
    """Float32 weights and cache give the reference's logits to 1e-4 of the largest, for any shape."""
    weights = random_weights(tiny_config(**SHAPES[shape]), seed=1)
    executor = native_executor(native_model(weights, kernel_set=kernel_set, num_threads=2), num_blocks=12)
    batch = mixed_batch(weights.config.vocab_size)
    assert relative_error(executor.logits(batch), reference_logits(weights, batch)) < 1e-4


@pytest.mark.parametrize("kernel_set", SETS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["int8", "float32"])
def test_rounded_forms_are_near_the_reference(kernel_set, shape, form):
    """int8 weights are a rotation and a rounding away from the reference: a few per cent on random weights.

    A rounded cache costs float32 weights a part of that.
    """
    weights = random_weights(tiny_config(**SHAPES[shape]), seed=1)
    model = native_model(weights, form=form, kernel_set=kernel_set, num_threads=2)
    batch = mixed_batch(weights.config.vocab_size)
    exact = reference_logits(weights, batch)
    for kv_dtype, allowed in (("float32", 1e-4), ("float16", 2e-3), ("int8", 0.06)):
        executor = native_executor(model, kv_dtype=kv_dtype, num_blocks=12)
        assert relative_error(executor.logits(batch), exact) < (allowed if form == "float32" else 0.06), kv_dtype


def test_decoding_draws_the_reference_tokens():
    """Prompt, then one token a step: the drawn tokens and their log probabilities are the reference's."""
    weights = random_weights(tiny_config(), seed=2)
    params = SamplingParams(temperature=0.0, max_tokens=64, logprobs=3)
    ids = prompt(weights.config.vocab_size, 20)
    executors = (
        ReferenceExecutor(weights, weights.config, num_blocks=8, block_size=16),
        native_executor(native_model(weights), num_blocks=8),
    )
    known = [list(ids), list(ids)]
    start = 0
    for _ in range(30):
        results = []
        for executor, token_ids in zip(executors, known, strict=True):
            draw = Draw("a", params, 7, 0, token_ids, len(ids), frozenset())
            lane = Lane("a", token_ids[start:], start, [4, 1, 6, 3], (draw,), prompt_logprobs=1)
            results.append(executor.launch(Batch(0, [lane])).result())
        start = len(known[0])
        expected, found = (result.tokens["a"][0] for result in results)
        assert found.token_id == expected.token_id
        assert found.logprobs.logprob == pytest.approx(expected.logprobs.logprob, abs=1e-4)
        scores = [[entry.logprob for entry in result.prompt_logprobs["a"]] for result in results]
        assert scores[1] == pytest.approx(scores[0], abs=1e-4)
        for token_ids in known:
            token_ids.append(found.token_id)


def test_blocks_move_with_their_tokens():
    """A sequence goes on from copied, swapped-out and swapped-in blocks as if nothing had happened."""
    weights = random_weights(tiny_config(), seed=2)
    ids = prompt(weights.config.vocab_size, 40)
    for kv_dtype in ("float32", "float16", "int8"):
        model = native_model(weights)
        executor = native_executor(model, kv_dtype=kv_dtype, num_blocks=12, num_host_blocks=3)
        whole = executor.logits(Batch(0, [Lane("a", ids, 0, [1, 2, 3])]))
        executor.copy_blocks([(1, 4), (2, 5)])
        executor.swap_out([(1, 2), (2, 0)])
        executor.cache.poison([1, 2])
        executor.swap_in([(2, 7), (0, 8)])
        for table in ([4, 5, 6], [7, 8, 9]):
            rest = executor.logits(Batch(0, [Lane("a", ids[32:], 32, table)]))
            assert np.array_equal(rest, whole[32:])


def arrays(**changes):
    names = {
        "token_ids_T": [1, 2, 3],
        "cu_seqlens_S1": [0, 3],
        "contexts_S": [3],
        "block_tables_SB": [[0]],
        "needed_rows_N": [2],
    }
    return StepArrays(**{name: np.array(value, np.int32) for name, value in (names | changes).items()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids_T": [1, -2, 3]}, "token id -2 of row 1"),
        ({"token_ids_T": [1, 2, 10**6]}, "token id 1000000 of row 2"),
        ({"block_tables_SB": [[8]]}, "lane 0 uses block 8; there are 8"),
        ({"block_tables_SB": [[-1]]}, "lane 0 uses block -1"),
        ({"contexts_S": [17]}, "1 blocks do not cover 17 tokens"),
        ({"contexts_S": [2]}, "3 rows and a context of 2"),
        ({"contexts_S": [2**31 - 1]}, "lane 0 has 3 rows and a context of"),
        ({"cu_seqlens_S1": [0, 4]}, "cu_seqlens"),
        ({"cu_seqlens_S1": [1, 3]}, "cu_seqlens"),
        ({"cu_seqlens_S1": [0, 0], "contexts_S": [3]}, "lane 0 has no rows"),
        ({"needed_rows_N": [3]}, "row 3 is needed; the step has 3"),
        ({"cu_seqlens_S1": [0, 1, 3], "contexts_S": [1, 2], "block_tables_SB": [[0], [0]]}, "written twice"),
        ({"cu_seqlens_S1": [0, 1, 3]}, "one entry more than contexts"),
    ],
)
def test_bad_batches_are_refused(changes, message):
    """Nothing out of range reaches memory; the model works on."""
    model = native_model(random_weights(tiny_config(), seed=2))
    cache = model.new_cache(dtype="float16", block_size=16, num_blocks=8)
    before = model.run(cache, arrays(), num_logits=1).logits_RV.copy()
    with pytest.raises(ValueError, match=message):
        model.run(cache, arrays(**changes), num_logits=1)
    assert np.array_equal(model.run(cache, arrays(), num_logits=1).logits_RV, before)


def test_bad_arrays_are_refused():
    """Arrays of another type, order or shape are not guessed at."""
    model = native_model(random_weights(tiny_config(), seed=2))
    cache = model.new_cache(dtype="float16", block_size=16, num_blocks=8)
    with pytest.raises(TypeError):
        model.run(cache, StepArrays(**{n: np.int64(getattr(arrays(), n)) for n in StepArrays.__slots__}), num_logits=1)
    with pytest.raises(ValueError, match="logits of 2 rows"):
        model.run(cache, arrays(), num_logits=2)
    model.run(cache, arrays(), num_logits=0)
    with pytest.raises(ValueError, match="the last step kept 1"):
        model.logits(1, 1)


def test_bad_blocks_are_refused():
    """Copies name existing blocks of both tiers, or nothing is copied."""
    executor = native_executor(native_model(random_weights(tiny_config(), seed=2)), num_blocks=4, num_host_blocks=2)
    for move, pairs in [
        (executor.copy_blocks, [(0, 4)]),
        (executor.copy_blocks, [(-1, 0)]),
        (executor.swap_out, [(0, 2)]),
        (executor.swap_in, [(2, 0)]),
    ]:
        with pytest.raises(ValueError, match=r"block -?[0-9]+ does not exist"):
            move(pairs)
    assert isinstance(executor.launch(Batch(0, [Lane("a", [1], 0, [9])])).outcome, ExecutorFault)


def test_bad_models_are_refused():
    """Numbers that cannot be, memory that is not there, and tensors of another shape raise before anything runs."""
    weights = random_weights(tiny_config(), seed=2)
    with pytest.raises(ValueError, match="num_threads is 0; it must be 1 to 256"):
        native_model(weights, num_threads=0)
    config = _native.ModelConfig()
    with pytest.raises(ValueError, match="vocab_size is 0"):
        NativeModel(config)
    model = native_model(weights)
    with pytest.raises(MemoryError):
        model.new_cache(dtype="float32", block_size=1 << 16, num_blocks=1 << 26)
    with pytest.raises(ValueError, match="block_size is 0"):
        model.new_cache(dtype="float32", block_size=0, num_blocks=1)
    with pytest.raises(ValueError, match="unknown kv dtype 'fp8'"):
        model.new_cache(dtype="fp8", block_size=1, num_blocks=1)
    with pytest.raises(ValueError, match="no more tensors"):
        model.set_tensor("norm", weights.norm_D)


def test_tensors_are_checked_one_by_one():
    """Names, layers, shapes, order and completeness."""
    from headway.executor.native_loader import native_config

    weights = random_weights(tiny_config(), seed=2)
    model = NativeModel(native_config(weights.config), weights="int8")
    norm = weights.norm_D
    with pytest.raises(ValueError, match="its norm must be given first"):
        model.set_tensor("embedding", weights.embedding_VD)
    with pytest.raises(ValueError, match="no such tensor"):
        model.set_tensor("rope", norm)
    with pytest.raises(ValueError, match="the model has 2 layers"):
        model.set_tensor("attn_norm", norm, layer=2)
    with pytest.raises(ValueError, match="norm is 1 x 63; it must be 1 x 64"):
        model.set_tensor("norm", norm[1:])
    model.set_tensor("norm", norm)
    with pytest.raises(ValueError, match="norm was given twice"):
        model.set_tensor("norm", norm)
    with pytest.raises(ValueError, match="embedding was not given"):
        model.finish()
    with pytest.raises(ValueError, match="not finished"):
        model.run(model.new_cache(dtype="int8", block_size=1, num_blocks=8), arrays(), num_logits=1)


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer needs all addresses itself")
def test_a_thread_that_cannot_start_is_an_error():
    """Where the system refuses a thread, the model is not made, and no thread is left behind."""
    import subprocess
    import sys

    program = """
import resource
from headway import _native
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
config = _native.ModelConfig()
for name in ("vocab_size", "hidden_size", "ffn_size", "num_layers", "num_heads", "num_kv_heads"):
    setattr(config, name, 1)
config.head_dim = 2
config.rope_frequencies = [1.0]
try:
    _native.Model(config, weights="int8", kernel_set="auto", num_threads=256)
except RuntimeError as error:
    print("refused:", error)
_native.Model(config, weights="int8", kernel_set="auto", num_threads=2)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("refused:")
