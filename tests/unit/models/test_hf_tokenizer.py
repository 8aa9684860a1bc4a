"""tokenizer.json of every make: the library's ids for plain text, ours for control tokens."""

import json
import logging
from dataclasses import replace

import pytest
import tokenizers

from headway.models import Tokenizer
from headway.models.hf_tokenizer import read_tokenizer
from headway.models.metadata import Metadata
from headway.models.opened import checked_tokenizer
from tests.support.families import tokenizer_json
from tests.support.tiny_model import tiny_tokenizer_spec
from tests.unit.models.test_golden_tokens import GOLDEN, TEXTS

BLANK = "\u2581"


def read(folder, parts, *, config=None, **settings):
    """The spec of a tokenizer.json with these parts beside a tokenizer_config.json with these settings."""
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    size = 1 + max([*parts["model"]["vocab"].values(), *(entry["id"] for entry in parts["added_tokens"])])
    return read_tokenizer(folder, Metadata("config.json", config or {}), size)


def added(token_id, content, *, special):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": special, **flags}


def llama2_json(pre_tokenizer=None, normalizer=None):
    """tokenizer.json as Llama 2 and Mistral have it, on the golden SentencePiece vocabulary."""
    model = GOLDEN["sentencepiece"]
    tokens = model["tokens"]
    plain = [i for i, kind in enumerate(model["types"]) if kind == 1]
    known = {tokens[i] for i in plain}
    merges = [
        [tokens[i][:cut], tokens[i][cut:]]
        for i in plain
        for cut in range(1, len(tokens[i]))
        if tokens[i][:cut] in known and tokens[i][cut:] in known
    ]
    return {
        "version": "1.0",
        "added_tokens": [added(i, tokens[i], special=True) for i in range(3)],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": BLANK}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


METASPACE = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "first", "split": False}
PREPEND = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": BLANK},
        {"type": "Replace", "pattern": {"String": " "}, "content": BLANK},
    ],
}


@pytest.mark.parametrize("parts", [{"pre_tokenizer": METASPACE}, {"normalizer": PREPEND}], ids=["metaspace", "prepend"])
def test_llama2_gives_the_ids_of_sentencepiece(tmp_path, parts):
    """Both ways in which such files put a blank first; a BOS because their post-processor adds one."""
    spec = read(tmp_path, llama2_json(**parts), bos_token="<s>", eos_token="</s>")
    assert (spec.add_bos, spec.bos_id, spec.eos_id, spec.spelling) == (True, 1, 2, "sentencepiece")
    tokenizer = Tokenizer(spec)
    assert tokenizer.problem() is None
    for text, expected in zip(TEXTS, GOLDEN["sentencepiece"]["ids"], strict=True):
        if text.startswith(" ") and parts.get("pre_tokenizer"):
            continue  # the library puts no blank before a blank
        assert tokenizer.encode_text(text) == expected
        assert tokenizer.decode(expected) == text
        assert tokenizer.encode_prompt(text) == [1, *expected]


@pytest.mark.parametrize("parts", [{"pre_tokenizer": METASPACE}, {"normalizer": PREPEND}], ids=["metaspace", "prepend"])
def test_blanks_behind_control_tokens_are_the_librarys(tmp_path, parts):
    """A template's text gives the ids that the library gives when it finds the control tokens itself."""
    tokenizer = Tokenizer(read(tmp_path, llama2_json(**parts), bos_token="<s>", add_bos_token=False))
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("<s>the end", "the end</s>the end", "</s> the end</s>\nthe", "<s></s>the", "the", "<s> the</s>"):
        assert tokenizer.encode_template(text) == library.encode(text, add_special_tokens=False).ids, text


def test_byte_level_files_give_the_librarys_ids(tmp_path):
    """SmolLM2's kind; and the very ids of the same vocabulary in a GGUF file."""
    spec = tiny_tokenizer_spec()
    tokenizer = Tokenizer(read(tmp_path, tokenizer_json(spec), bos_token="<|im_start|>"))
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        ids = tokenizer.encode_text(text)
        assert ids == library.encode(text).ids == Tokenizer(spec).encode_text(text)
        assert tokenizer.decode(ids) == text


def test_users_cannot_write_control_tokens(tmp_path):
    """The library would find them anywhere; here they are letters in a user's text and ids in a template's."""
    tokenizer = Tokenizer(read(tmp_path, tokenizer_json(tiny_tokenizer_spec())))
    ids = tokenizer.encode_text("a<|im_end|>b")
    assert not any(map(tokenizer.is_special, ids))
    assert tokenizer.decode(ids) == "a<|im_end|>b"
    assert tokenizer.encode_template("a<|im_end|>b").count(2) == 1


def test_added_tokens_that_are_not_special_keep_their_ids(tmp_path):
    """Qwen's `<tool_call>` stands behind its control tokens, which the library must not renumber it into."""
    parts = tokenizer_json(tiny_tokenizer_spec())
    parts["added_tokens"] += [added(300, "<|last|>", special=True), added(301, "<tool_call>", special=False)]
    tokenizer = Tokenizer(read(tmp_path, parts))
    assert tokenizer.encode_text("a<tool_call>").count(301) == 1
    assert not tokenizer.is_special(301)
    assert tokenizer.decode(tokenizer.encode_text("a<tool_call>b")) == "a<tool_call>b"


def test_lengths_are_not_cut_or_padded(tmp_path):
    """What a file says of truncation and padding is for training."""
    parts = tokenizer_json(tiny_tokenizer_spec()) | {
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<|endoftext|>",
        },
    }
    assert len(Tokenizer(read(tmp_path, parts)).encode_text("zzzzzz")) == 6


def test_where_the_first_token_comes_from(tmp_path):
    """tokenizer_config.json says it, none at all included; without that file config.json does."""
    parts = tokenizer_json(tiny_tokenizer_spec())
    assert read(tmp_path, parts, config={"bos_token_id": 0}).bos_id == 0
    spec = read(tmp_path, parts, config={"bos_token_id": 0}, bos_token=None, eos_token="<|im_end|>")
    assert (spec.bos_id, spec.add_bos) == (None, False)
    assert read(tmp_path, parts, bos_token="<|im_start|>", add_bos_token=True).add_bos


def test_the_spelling_is_the_one_that_gives_texts_back(tmp_path, caplog):
    """A file of two minds about its spelling: the right one is found by trying, and nothing is said."""
    spec = read(tmp_path, llama2_json(pre_tokenizer=METASPACE), bos_token="<s>")
    tokenizer = checked_tokenizer(replace(spec, spelling="bytes"))
    assert tokenizer.decode(tokenizer.encode_text("the end")) == "the end"
    assert not caplog.records


def test_a_tokenizer_that_garbles_text_is_told(tmp_path, caplog):
    """Where no spelling gives texts back, whoever serves the model reads it in the log."""
    parts = tokenizer_json(tiny_tokenizer_spec())
    with caplog.at_level(logging.WARNING):
        checked_tokenizer(read(tmp_path, parts | {"normalizer": {"type": "Lowercase"}}))
    assert "garbled" in caplog.text


@pytest.mark.model
def test_smollm2_is_the_same_from_both_kinds_of_files(real_file, shared_data):
    """The makers' tokenizer.json and the GGUF file of the default model: one tokenizer."""
    folder = shared_data / "tokenizer_smollm2"
    theirs = read_tokenizer(folder, Metadata("config.json", json.loads((folder / "config.json").read_text())), 49_152)
    ours = real_file.tokenizer_spec
    assert theirs.tokens == ours.tokens
    for field in ("control_ids", "user_defined_ids", "bos_id", "eos_id", "eos_ids", "add_bos"):
        assert getattr(theirs, field) == getattr(ours, field), field
    from_json, from_gguf = Tokenizer(theirs), Tokenizer(ours)
    for text in [*TEXTS, "".join(from_gguf.control_texts), "<|im_start|>user\nHi<|im_end|>"]:
        assert from_json.encode_text(text) == from_gguf.encode_text(text)
        assert from_json.encode_template(text) == from_gguf.encode_template(text)
