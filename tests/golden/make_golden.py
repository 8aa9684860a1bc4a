"""Make `logits_smollm2_135m.npz`: logits of the default model by an implementation that is not ours.

Needs torch, transformers and accelerate; run once, by hand, with a model file and the folder of its tokenizer.json:

    python make_golden.py SmolLM2-135M-Instruct.Q4_1.gguf tokenizer_smollm2 logits_smollm2_135m.npz

Prompts are stored as token ids. Of each prompt some rows are kept, of each row every 24th logit, the 32 largest with
their ids, and the logarithm of the sum of all exponentials, which no wrong logit escapes.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)
CODE = (
    "def fibonacci(count: int) -> list[int]:\n"
    '    """The first numbers of the sequence."""\n'
    "    numbers = [0, 1]\n"
    "    while len(numbers) < count:\n        numbers.append("
)
LIST = (
    "".join(f"{i}. The square of {i} is {i * i}, and its cube is {i**3}.\n" for i in range(1, 24)) + "24. The square of"
)
OTHER = "Ä quick test: 日本語, emoji 🙂, and a few numbers 3.14159 — what comes next"


def main(model_path: Path, tokenizer_folder: Path, out: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_path.parent, gguf_file=model_path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_folder / "tokenizer.json"))
    arrays: dict[str, np.ndarray] = {}
    for number, text in enumerate((CHAT, CODE, LIST, OTHER)):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        rows = np.unique(np.linspace(0, len(ids) - 1, 6).astype(int))
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, rows]
        top = logits.topk(32)
        arrays |= {
            f"ids_{number}": np.array(ids, np.int32),
            f"rows_{number}": rows.astype(np.int32),
            f"sample_{number}": logits[:, ::24].numpy(),
            f"top_ids_{number}": top.indices.numpy().astype(np.int32),
            f"top_{number}": top.values.numpy(),
            f"logsumexp_{number}": logits.double().logsumexp(-1).numpy(),
        }
        print(len(ids), "tokens,", repr(tokenizer.decode(top.indices[-1, :1])))
    np.savez_compressed(out, **arrays)
    print("torch", torch.__version__, "transformers", transformers.__version__)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
