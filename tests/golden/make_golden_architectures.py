"""Make `logits_families.npz`: logits of the tiny models of `tests/support/families.py` by an implementation not ours.

Needs torch and transformers; run once, by hand, on the folders that `python -m tests.support.families FOLDER` writes:

    python make_golden_architectures.py FOLDER logits_families.npz

Each model gets the same two prompts, whose ids are stored; of each prompt some rows of logits are kept, whole.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

LENGTHS = (5, 120)
VOCAB_SIZE = 271


def main(folder: Path, out: Path) -> None:
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, VOCAB_SIZE, length) for length in LENGTHS]
    arrays = {f"ids_{number}": ids.astype(np.int32) for number, ids in enumerate(prompts)}
    arrays |= {f"rows_{n}": np.unique(np.linspace(0, len(ids) - 1, 5).astype(int)) for n, ids in enumerate(prompts)}
    for path in sorted(folder.iterdir()):
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        assert not any(loading.values()), loading
        for number, ids in enumerate(prompts):
            with torch.inference_mode():
                logits = model.eval()(torch.tensor(ids[None])).logits[0, arrays[f"rows_{number}"]]
            arrays[f"{path.name}_{number}"] = logits.numpy()
        print(path.name, type(model).__name__, float(logits.abs().max()))
    np.savez_compressed(out, **arrays)
    print("torch", torch.__version__, "transformers", transformers.__version__)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
