"""What quantisation costs: perplexity of each weight format and KV dtype, divided by float32's, on two texts.

    python benchmarks/quality.py [--data DATA] [--first 120000 50000] [--weights int8] [--kv-dtype int8] [--check]

Method: a text's characters from `first` on, 40,000 of them, tokenised without BOS, cut into windows of 1,024 tokens,
the first 8, each evaluated alone; mean negative log-likelihood of tokens 2 to 1,024. "same" is the share of positions
with float32's arg max. HumanEval is prompt + canonical_solution of each task, joined by blank lines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.executor.native_loader import fill_from_file, native_config, physical_cores
from headway.kernels.native import KV_DTYPES, WEIGHT_FORMATS, NativeModel, StepArrays
from headway.models import OpenedModel, open_model

WINDOW = 1024
NUM_WINDOWS = 8
NUM_CHARACTERS = 40_000
CHUNK = 256
BLOCK_SIZE = 32
MOST_RATIO = 1.01
LEAST_SAME = {"Shakespeare": 0.92, "HumanEval": 0.965}
DATA = Path(os.environ.get("HEADWAY_SHARED", Path(__file__).parents[2] / "shared")) / "data"


@dataclass(frozen=True, slots=True)
class Score:
    """One format on one text: mean negative log-likelihood, and the likeliest token at every position."""

    loss: float
    best: NDArray[np.int32]


def read_texts(folder: Path) -> dict[str, str]:
    """The two texts, whole."""
    tasks = [json.loads(line) for line in (folder / "HumanEval.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "Shakespeare": (folder / "shakespeare_first400kB.txt").read_text(encoding="utf-8"),
        "HumanEval": "\n\n".join(task["prompt"] + task["canonical_solution"] for task in tasks),
    }


def windows(opened: OpenedModel, text: str, first: int, count: int = NUM_WINDOWS) -> list[NDArray[np.int32]]:
    """The first `count` whole windows of 40,000 characters of a text."""
    ids = np.array(opened.tokenizer.encode_text(text[first : first + NUM_CHARACTERS]), np.int32)
    return [ids[at : at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, WINDOW)][:count]


def load(opened: OpenedModel, weights: str, kernel_set: str = "auto") -> NativeModel:
    """The model in one weight format."""
    config = native_config(opened.file.config)
    model = NativeModel(config, weights=weights, kernel_set=kernel_set, num_threads=physical_cores())
    fill_from_file(model, opened.file)
    return model


def evaluate(model: NativeModel, kv_dtype: str, texts: list[NDArray[np.int32]]) -> Score:
    """Loss and likeliest tokens over all windows."""
    losses, best = [], []
    for ids in texts:
        for logits_RV, targets_R in _chunks(model, kv_dtype, ids):
            top_R1 = logits_RV.max(axis=1, keepdims=True)
            total_R = np.exp(logits_RV - top_R1).sum(axis=1, dtype=np.float64)
            losses.append(np.log(total_R) + top_R1[:, 0] - logits_RV[np.arange(len(targets_R)), targets_R])
            best.append(logits_RV.argmax(axis=1).astype(np.int32))
    return Score(float(np.concatenate(losses).mean()), np.concatenate(best))


def _chunks(
    model: NativeModel, kv_dtype: str, ids: NDArray[np.int32]
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Logits of each position but the last, and the token that follows it."""
    num_blocks = WINDOW // BLOCK_SIZE
    cache = model.new_cache(dtype=kv_dtype, block_size=BLOCK_SIZE, num_blocks=num_blocks)
    for start in range(0, len(ids), CHUNK):
        stop = min(start + CHUNK, len(ids))
        rows = np.arange(min(stop, len(ids) - 1) - start, dtype=np.int32)
        step = StepArrays(
            token_ids_T=ids[start:stop],
            cu_seqlens_S1=np.array([0, stop - start], np.int32),
            contexts_S=np.array([stop], np.int32),
            block_tables_SB=np.arange(num_blocks, dtype=np.int32)[None],
            needed_rows_N=rows,
        )
        yield model.run(cache, step, num_logits=len(rows)).logits_RV, ids[start + 1 : start + 1 + len(rows)]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with prompts/")
    parser.add_argument("--model", default=None, help="a .gguf file; the default model without")
    parser.add_argument("--first", type=int, nargs=2, default=[0, 0], help="first character of each text")
    parser.add_argument("--weights", nargs="+", default=list(WEIGHT_FORMATS), choices=WEIGHT_FORMATS)
    parser.add_argument("--kv-dtype", nargs="+", default=list(KV_DTYPES), choices=KV_DTYPES)
    parser.add_argument("--kernel-set", default="auto")
    parser.add_argument("--windows", type=int, default=NUM_WINDOWS)
    parser.add_argument("--check", action="store_true", help="end with 1 where a ratio or a share breaks the promise")
    return parser.parse_args()


def main() -> None:
    """Print one line per text and format."""
    args = arguments()
    opened = open_model(args.model)
    texts = {
        name: windows(opened, text, first, args.windows)
        for (name, text), first in zip(read_texts(args.data / "prompts").items(), args.first, strict=True)
    }
    exact_model = load(opened, "float32")
    exact = {name: evaluate(exact_model, "float32", ids) for name, ids in texts.items()}
    del exact_model
    for name, score in exact.items():
        print(f"{name:12} float32 / float32: loss {score.loss:.4f}, perplexity {np.exp(score.loss):.3f}")
    num_broken = 0
    for weights in args.weights:
        model = load(opened, weights, args.kernel_set)
        for kv_dtype in args.kv_dtype:
            for name, ids in texts.items():
                score = evaluate(model, kv_dtype, ids)
                ratio, same = np.exp(score.loss - exact[name].loss), (score.best == exact[name].best).mean()
                kept = ratio <= MOST_RATIO and same >= LEAST_SAME[name]
                num_broken += not kept
                print(
                    f"{name:12} {model.kernel_set} {weights} / {kv_dtype}: ratio {ratio:.4f}, same {same:.4f}"
                    f"{'' if kept else '  BROKEN'}",
                    flush=True,
                )
    sys.exit(1 if args.check and num_broken else 0)


if __name__ == "__main__":
    main()
