from pathlib import Path

import numpy as np
import pytest

from headway.core import Batch, Draw, Lane, SamplingParams
from headway.executor.reference import ReferenceExecutor
from headway.models import ChatPrompts, ChatTemplate, GgufFile, Tokenizer, load_weights

GOLDEN = Path(__file__).parents[2] / "golden" / "logits_smollm2_135m.npz"
TOLERANCE = 1e-3
BLOCKS = list(range(40))

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def model(model_path):
    return GgufFile.open(model_path)


@pytest.fixture(scope="module")
def executor(model):
    return ReferenceExecutor(load_weights(model), model.config, num_blocks=len(BLOCKS), block_size=16)


@pytest.mark.parametrize("number", range(4))
def test_logits_equal_another_implementation(executor, number):
    """Logits are within 0.001 of those in `tests/golden`, also when the prompt is computed in two chunks."""
    golden = {
        name.removesuffix(f"_{number}"): array for name, array in np.load(GOLDEN).items() if name[-1] == f"{number}"
    }
    ids, cut = golden["ids"].tolist(), len(golden["ids"]) // 3
    executor.cache.poison(BLOCKS)
    parts = [executor.logits(Batch(0, [Lane("a", ids[a:b], a, BLOCKS)])) for a, b in ((0, cut), (cut, len(ids)))]
    logits = np.concatenate(parts)[golden["rows"]]
    assert np.abs(logits[:, ::24] - golden["sample"]).max() < TOLERANCE
    assert np.abs(np.take_along_axis(logits, golden["top_ids"], axis=1) - golden["top"]).max() < TOLERANCE
    assert np.array_equal(logits.argmax(axis=1), golden["top_ids"][:, 0])
    logsumexp = np.logaddexp.reduce(logits.astype(np.float64), axis=1)
    assert np.abs(logsumexp - golden["logsumexp"]).max() < TOLERANCE


def test_capital_of_france(executor, model):
    """The default model's greedy answer under its own chat template."""
    tokenizer = Tokenizer(model.tokenizer_spec)
    prompts = ChatPrompts(tokenizer, ChatTemplate(model.chat_template))
    ids = prompts.encode([{"role": "user", "content": "What is the capital of France?"}])
    num_prompt, start, eos_ids = len(ids), 0, model.tokenizer_spec.eos_ids
    draw = Draw("a", SamplingParams(temperature=0.0), 0, 0, ids, num_prompt, eos_ids)
    while ids[-1] not in eos_ids or len(ids) == num_prompt:
        step = executor.launch(Batch(0, [Lane("a", ids[start:], start, BLOCKS, (draw,))]))
        start = len(ids)
        ids.append(step.result().tokens["a"][0].token_id)
        assert len(ids) < num_prompt + 20
    assert tokenizer.decode(ids[num_prompt:-1]) == "The capital of France is Paris."
