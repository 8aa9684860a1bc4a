"""Make `tokens.json`: ids of hard texts by tokenizer implementations that are not ours.

Needs tiktoken, sentencepiece, tokenizers and any English text to train on; run once, by hand, from the repository:

    python -m tests.golden.make_golden_tokens TEXT_FILE tests/golden/tokens.json

Two small vocabularies are trained: byte-level BPE without any splitting rule, so that merges cross every boundary that
a rule may draw, and SentencePiece's BPE with byte fallback. Ids under each splitting rule are tiktoken's, with the
expression that the models' makers publish; SentencePiece's are its own.
"""

import json
import random
import sys
import tempfile
import unicodedata
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

HAND_WRITTEN = [
    "",
    " ",
    "a",
    "Hello, world!",
    "I'm you're we'll they've he'd it's DON'T I'M 'tis '' '",
    "0 1 12 123 1234 12345 3.14159 1,000,000 -7 0x1F ½ ² ٣٤٥ 四 Ⅷ",
    "a  b   c    d     e\t\tf\n\n\ng\r\nh\r\n\r\ni \n j\v\f\x85\xa0\u2003\u3000k  ",
    "   leading and trailing   ",
    "def f(x):\n    if x > 0:\n\t\treturn {'a': [1, 2]}  # why?\n\n",
    "漢字かな交じり文。한국어 문장입니다.",
    "مرحبا בעולם हिन्दी ไทย",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 ❤️",
    "e\u0301 \u00e9 n\u0303 \ufb01 \u212b Å",
    "\x00\x01\x02\x07\x1b\x7f\x80\ufeff\uffff\u200b\u2028",
    "https://example.org/a?b=c&d=%20#e C:\\dir\\file.txt",
    "x" * 60,
    " " * 60,
    "\n" * 33,
    "9" * 50,
    "the the  the\nthe 'the' THE",
]
BLOCKS = [
    (0x20, 0x7F), (0x20, 0x7F), (0x09, 0x0E), (0x00, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600),
    (0x900, 0xE00), (0x2000, 0x2070), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0x1F300, 0x1FAFF),
    (0x660, 0x66A), (0x2150, 0x2190),
]  # fmt: skip


def texts(prose: str) -> list[str]:
    rng = random.Random(7)
    found = list(HAND_WRITTEN)
    while len(found) < 160:
        pieces = []
        for _ in range(rng.randrange(2, 7)):
            low, high = rng.choice(BLOCKS)
            run = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 5)))
            pieces.append(rng.choice([run, run * 2, " " + run, "1" + run, run.upper()]))
        found.append("".join(pieces))
    for _ in range(40):
        start = rng.randrange(len(prose) - 100)
        found.append(prose[start : start + 60])
    return found


def train_bpe(prose: str) -> list[str]:
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    numbers = " ".join(f"{i}, {i * i}\n" for i in range(500))
    backend.train_from_iterator([*prose[:60_000].split("\n\n"), numbers, *HAND_WRITTEN], trainer)
    vocab = backend.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


def tiktoken_ids(tokens: list[str], all_texts: list[str]) -> dict[str, list[list[int]]]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    byte_of = {chr(byte if byte in printable else next(spare)): byte for byte in range(256)}
    ranks = {bytes(byte_of[char] for char in token): rank for rank, token in enumerate(tokens)}
    coders = {
        name: tiktoken.Encoding(name, pat_str=rule, mergeable_ranks=ranks, special_tokens={})
        for name, rule in (("gpt-2", GPT2), ("llama-bpe", LLAMA3), ("qwen2", QWEN2))
    }

    def digits_apart(text: str) -> list[int]:
        ids: list[int] = []
        for is_digit, run in groupby(text, lambda char: unicodedata.category(char)[0] == "N"):
            for piece in run if is_digit else ["".join(run)]:
                ids += coders["gpt-2"].encode(piece)
        return ids

    found = {name: [coder.encode(text) for text in all_texts] for name, coder in coders.items()}
    found["qwen2"] = [coders["qwen2"].encode(unicodedata.normalize("NFC", text)) for text in all_texts]
    return {**found, "smollm": [digits_apart(text) for text in all_texts]}


def sentencepiece_ids(prose: str, all_texts: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(prose[:60_000].splitlines()),
            model_prefix=f"{folder}/tiny",
            vocab_size=520,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            minloglevel=2,
        )
        model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tiny.model")
    kinds = [
        2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1
        for i in range(len(model))
    ]
    return {
        "tokens": [model.id_to_piece(i) for i in range(len(model))],
        "scores": [model.get_score(i) for i in range(len(model))],
        "types": kinds,
        "ids": [model.encode(text) for text in all_texts],
    }


def main(prose_file: Path, out: Path) -> None:
    prose = prose_file.read_text("utf-8")
    all_texts = texts(prose)
    tokens = train_bpe(prose)
    golden = {
        "made_with": {name: version(name) for name in ("tiktoken", "sentencepiece", "tokenizers")},
        "texts": all_texts,
        "bpe": {"tokens": tokens, "ids": tiktoken_ids(tokens, all_texts)},
        "sentencepiece": sentencepiece_ids(prose, all_texts),
    }
    out.write_text(json.dumps(golden, separators=(",", ":")) + "\n", "utf-8")
    print(golden["made_with"])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
