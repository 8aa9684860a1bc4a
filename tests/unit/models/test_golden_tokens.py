"""Ids of 200 hard texts against those of other implementations (tests/golden/README.md)."""

import json
from pathlib import Path

import pytest

from headway.models import Tokenizer, TokenizerSpec
from headway.models.tokenizer_spec import spec_from_gguf

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "tokens.json").read_text("utf-8"))
TEXTS = GOLDEN["texts"]


def bpe_tokenizer(pre):
    """The golden vocabulary; a token may be made of any two others, the first of the list first."""
    tokens = GOLDEN["bpe"]["tokens"]
    known = set(tokens)
    merges = [
        f"{token[:cut]} {token[cut:]}"
        for token in tokens
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return Tokenizer(TokenizerSpec(tokens=tuple(tokens), merges=tuple(merges), pre=pre))


def sentencepiece_metadata(**changes):
    model = GOLDEN["sentencepiece"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": model["tokens"],
        "tokenizer.ggml.scores": model["scores"],
        "tokenizer.ggml.token_type": model["types"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


def sentencepiece_tokenizer(**changes):
    return Tokenizer(spec_from_gguf(Path("model.gguf"), sentencepiece_metadata(**changes)))


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_every_splitting_rule_gives_the_other_implementations_ids(pre):
    """Digits, contractions, runs of blanks, scripts, control characters: tiktoken splits and merges them alike."""
    tokenizer = bpe_tokenizer(pre)
    for text, expected in zip(TEXTS, GOLDEN["bpe"]["ids"][pre], strict=True):
        assert tokenizer.encode_text(text) == expected, text


def test_sentencepiece_gives_its_own_ids():
    """Best score first, bytes for what has no token, one blank before the text."""
    tokenizer = sentencepiece_tokenizer()
    for text, expected in zip(TEXTS, GOLDEN["sentencepiece"]["ids"], strict=True):
        assert tokenizer.encode_text(text) == expected, text
        assert tokenizer.decode(expected) == text
        assert tokenizer.encode_prompt(text) == [1, *expected]
    assert tokenizer.problem() is None


def test_a_blank_is_put_before_the_first_text_alone():
    """Behind a BOS it is the first text; behind another control token, or a text, it is not."""
    tokenizer = sentencepiece_tokenizer()
    without = sentencepiece_tokenizer(add_space_prefix=False)
    with_blank, plain = tokenizer.encode_text("the end"), without.encode_text("the end")
    assert with_blank == without.encode_text(" the end") != plain
    assert tokenizer.encode_template("<s>the end") == tokenizer.encode_template("the end") == [1, *with_blank]
    assert tokenizer.encode_template("the end</s>the end") == [1, *with_blank, 2, *plain]
    assert tokenizer.encode_template("</s> the end") == [1, 2, *with_blank]
    assert tokenizer.encode_template("</s>\nthe") == [1, 2, *without.encode_text("\nthe")]
    assert tokenizer.decode([1, *with_blank]) == "<s>the end"
    assert without.decode(plain) == "the end"


def test_pieces_add_up_to_the_text():
    """Token by token nothing is lost: the blank of the first piece is there for whoever continues a text."""
    tokenizer = sentencepiece_tokenizer()
    for text in TEXTS:
        raw = b"".join(map(tokenizer.token_bytes, tokenizer.encode_text(text)))
        assert raw == (b" " + text.encode() if text else b"")


def test_a_users_text_cannot_write_control_tokens():
    """Nor bytes by their names, which are letters."""
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer.encode_text("<s></s><0x41><unk>")
    assert not any(map(tokenizer.is_special, ids))
    assert tokenizer.decode(ids) == "<s></s><0x41><unk>"


def test_user_defined_pieces_are_found_first():
    """One id wherever they stand, blanks in them counted."""
    model = GOLDEN["sentencepiece"]
    tokenizer = sentencepiece_tokenizer(
        tokens=[*model["tokens"], "<a tool>"], scores=[*model["scores"], 0.0], token_type=[*model["types"], 4]
    )
    ids = tokenizer.encode_text("the<a tool>the")
    assert ids.count(len(model["tokens"])) == 1
    assert tokenizer.decode(ids) == "the<a tool>the"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"scores": [1.0]}, "one entry for each"),
        ({"scores": None}, "one entry for each"),
        ({"scores": ["a"] * len(GOLDEN["sentencepiece"]["tokens"])}, "not a real number"),
        ({"model": "bert"}, "'bert' is not supported; supported: 'gpt2' (BPE), 'llama' (SentencePiece)"),
    ],
)
def test_damaged_metadata_is_refused(changes, what):
    """Lists that do not fit the tokens, and kinds that are not written here."""
    from headway.errors import BadModelFile

    with pytest.raises(BadModelFile) as caught:
        sentencepiece_tokenizer(**changes)
    assert what in str(caught.value)


def test_a_tokenizer_that_garbles_text_is_noticed():
    """A vocabulary whose bytes were mixed up does not come back from its ids, and says so when it is opened."""
    model = GOLDEN["sentencepiece"]
    kinds = [1 if kind == 6 else kind for kind in model["types"]]
    assert "garbled" in sentencepiece_tokenizer(token_type=kinds).problem()
    assert sentencepiece_tokenizer().problem() is None
