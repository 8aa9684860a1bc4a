import dataclasses
import json
import random
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import BadModelFile
from headway.models import Tokenizer
from tests.support.tiny_model import CONTROL_TOKENS, tiny_tokenizer_spec

# Bytes that SmolLM2's vocabulary has no token for: six control characters, and bytes that UTF-8 never or hardly uses.
WITHOUT_TOKEN = "\x04\x06\x13\x14\x16\x1d"

TORTURE = [
    "",
    " ",
    "a",
    "Hello, world!",
    "I'm you're we'll they've he'd it's DON'T I'M 'tis '' '",
    "0 1 12 123 1234 12345 3.14159 1,000,000 -7 0x1F 1e-9 ½ ² ٣٤٥ 四 Ⅷ ৪৫",
    "a  b   c    d     e\t\tf\n\n\ng\r\nh\r\n\r\ni \n j\v\f\x85\xa0\u2003\u3000k  ",
    "   leading and trailing   ",
    "def f(x):\n    if x > 0:\n\t\treturn {'a': [1, 2], \"b\": x ** 2}  # why?\n\n",
    "漢字かな交じり文。한국어 문장입니다. 中文，没有空格",
    "مرحبا بالعالم שלום עולם \u202eabc\u202c हिन्दी ไทย",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 😀😃😄 ❤️ ✈",
    "e\u0301 \u00e9 n\u0303 \u1e9b\u0323 \ufb01 \u212b Å",
    "Z̸̡̛a̵l̷g̶o̴",
    "\x00\x01\x02\x03\x05\x07\x08\x0b\x0c\x0e\x1b\x7f\x80\x9f\ufeff\ufffe\uffff\u200b\u2028\u2029",
    "\U0001f9ff\U0002a6a5\U000e0001\U000fffff\U0010ffff",
    WITHOUT_TOKEN + "a" + WITHOUT_TOKEN,
    "<|im_end", "<|im_|>", "|im_end|>", "< |im_end|>", "<<|>>",
    "https://example.org/a?b=c&d=%20#e user@example.org C:\\dir\\file.txt",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β)",
    "x" * 1000,
    " " * 1000,
    "\n" * 333,
    "9" * 500,
    "ab" * 700,
]  # fmt: skip


def random_texts(num, *, seed):
    """Texts of characters drawn from every script, with runs, joins and neighbours that a rule could treat together."""
    rng = random.Random(seed)
    blocks = [
        (0x20, 0x7F), (0x20, 0x7F), (0x09, 0x0E), (0x00, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600),
        (0x590, 0x700), (0x900, 0xE00), (0x2000, 0x2070), (0x2070, 0x2400), (0x3000, 0x3100), (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A4), (0x1F300, 0x1FAFF), (0x20000, 0x2A000), (0xE000, 0xE100), (0x660, 0x66A), (0x2150, 0x2190),
    ]  # fmt: skip
    for _ in range(num):
        pieces = []
        for _ in range(rng.randrange(1, 30)):
            low, high = rng.choice(blocks)
            run = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 6)))
            pieces.append(rng.choice([run, run, run * 3, " " + run, "1" + run, "\u200d" + run, run.upper()]))
        yield "".join(pieces)


@pytest.mark.model
class TestSmolLM2:
    """The default model's tokenizer, made from its GGUF metadata, is the one its makers published."""

    def same(self, ours, reference, text):
        expected = reference.encode(text, add_special_tokens=False).ids
        assert ours.encode_text(text) == expected, text[:200]
        assert ours.encode_template(text) == expected, text[:200]
        return expected

    @pytest.mark.parametrize("text", TORTURE, ids=range(len(TORTURE)))
    def test_hard_texts(self, real_tokenizer, reference_tokenizer, text):
        """Digits, contractions, runs of blanks, scripts, emoji, control characters."""
        self.same(real_tokenizer, reference_tokenizer, text)

    def test_prose_and_code(self, real_tokenizer, reference_tokenizer, shared_data):
        """Hundreds of kilobytes of plays, by line and as a whole, and every text of HumanEval."""
        plays = (shared_data / "prompts" / "shakespeare_first400kB.txt").read_text("utf-8")
        code = (shared_data / "prompts" / "HumanEval.jsonl").read_text("utf-8").splitlines()
        texts = [plays, *plays.split("\n\n"), *code, *(v for line in code for v in json.loads(line).values())]
        assert len(texts) > 900
        for text in texts:
            self.same(real_tokenizer, reference_tokenizer, text)

    def test_two_thousand_mixtures_of_scripts(self, real_tokenizer, reference_tokenizer):
        """Random texts of nineteen kinds of characters."""
        for text in random_texts(2000, seed=11):
            self.same(real_tokenizer, reference_tokenizer, text)

    def test_every_character_of_unicode(self, real_tokenizer, reference_tokenizer):
        """Each assigned character between two letters, which shows how it is classed."""
        kept = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
        for start in range(0, len(kept), 500):
            self.same(real_tokenizer, reference_tokenizer, "".join(f"a{c}b {c}" for c in kept[start : start + 500]))

    def test_every_token_decodes_as_in_the_reference(self, real_tokenizer, reference_tokenizer):
        """`decode` of each single id equals the library's, control tokens included."""
        for token_id in range(real_tokenizer.vocab_size):
            expected = reference_tokenizer.decode([token_id], skip_special_tokens=False)
            assert real_tokenizer.decode([token_id]) == expected, token_id

    def test_every_text_comes_back_but_for_six_characters(self, real_tokenizer):
        """decode(encode_text(s)) is s without the characters that the vocabulary has no token for."""
        for text in [*TORTURE, *random_texts(500, seed=12)]:
            kept = text.translate(dict.fromkeys(map(ord, WITHOUT_TOKEN)))
            if not any(0x40000 <= ord(char) < 0xC0000 for char in kept):
                assert real_tokenizer.decode(real_tokenizer.encode_text(text)) == kept

    def test_control_tokens_in_a_template_are_those_of_the_reference(self, real_tokenizer, reference_tokenizer):
        """All 17 control tokens, alone, in a row and inside text, equal to the reference, which always honours them."""
        assert len(real_tokenizer.control_texts) == 17
        joined = "".join(real_tokenizer.control_texts)
        for text in (
            *real_tokenizer.control_texts,
            joined,
            " ".join(real_tokenizer.control_texts),
            f"a{joined}b\n{joined}",
        ):
            assert (
                real_tokenizer.encode_template(text) == reference_tokenizer.encode(text, add_special_tokens=False).ids
            )

    def test_control_tokens_in_a_users_text_are_letters(self, real_tokenizer):
        """No control id for any control token's text, which comes back literally."""
        for name in real_tokenizer.control_texts:
            ids = real_tokenizer.encode_text(f"a{name}b")
            assert not any(map(real_tokenizer.is_special, ids))
            assert real_tokenizer.decode(ids) == f"a{name}b"

    def test_ends_and_beginnings(self, real_tokenizer):
        """Both end tokens count; the file asks for no BOS."""
        assert {real_tokenizer.token_text(i) for i in real_tokenizer.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
        assert real_tokenizer.bos_id == 1
        assert real_tokenizer.encode_prompt("Hi") == real_tokenizer.encode_text("Hi")


def bos_tokenizer(*, add_bos):
    return Tokenizer(dataclasses.replace(tiny_tokenizer_spec(), add_bos=add_bos))


@pytest.mark.parametrize("written", ["<|im_start|>", ""])
@pytest.mark.parametrize("add_bos", [True, False])
def test_there_is_never_more_than_one_bos(add_bos, written):
    """Whoever writes the BOS, template or file, there is one if either does; elsewhere none."""
    tokenizer = bos_tokenizer(add_bos=add_bos)
    ids = tokenizer.encode_template(written + "Hi")
    assert ids.count(tokenizer.bos_id) == (1 if written or add_bos else 0)
    assert ids[-2:] == tokenizer.encode_text("Hi")


def test_a_prompt_gets_the_bos_that_the_file_asks_for():
    """Also when the user's text begins with its name, which stays text."""
    tokenizer = bos_tokenizer(add_bos=True)
    assert tokenizer.encode_prompt("Hi") == [1, *tokenizer.encode_text("Hi")]
    assert tokenizer.encode_prompt("<|im_start|>").count(1) == 1
    assert tokenizer.decode(tokenizer.encode_prompt("<|im_start|>")) == "<|im_start|>" * 2


@given(text=st.text())
def test_bytes_of_tokens_add_up_to_the_text(tiny_tokenizer, text):
    """Any text round-trips, and the bytes of its tokens, one after another, are its UTF-8."""
    ids = tiny_tokenizer.encode_text(text)
    assert tiny_tokenizer.decode(ids) == text
    assert b"".join(map(tiny_tokenizer.token_bytes, ids)) == text.encode()


@given(ids=st.lists(st.integers(0, len(tiny_tokenizer_spec().tokens) - 1)))
def test_any_ids_decode(tiny_tokenizer, ids):
    """Half characters become U+FFFD; nothing raises."""
    assert isinstance(tiny_tokenizer.decode(ids), str)


def test_every_byte_has_its_token(tiny_tokenizer):
    """The byte alphabet is a one-to-one map of the 256 bytes."""
    num = len(CONTROL_TOKENS)
    assert [tiny_tokenizer.token_bytes(num + byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]


def test_control_tokens(tiny_tokenizer):
    """Their text is their name, and only they are special."""
    assert [tiny_tokenizer.token_bytes(i).decode() for i in range(3)] == list(CONTROL_TOKENS)
    assert [i for i in range(tiny_tokenizer.vocab_size) if tiny_tokenizer.is_special(i)] == [0, 1, 2]
    assert tiny_tokenizer.eos_ids == {0, 2}
    assert (tiny_tokenizer.bos_text, tiny_tokenizer.eos_text) == ("<|im_start|>", "<|im_end|>")


def test_ids_outside_the_vocabulary(tiny_tokenizer):
    """Neither -1 nor vocab_size is silently another token."""
    for token_id in (-1, tiny_tokenizer.vocab_size):
        with pytest.raises(IndexError, match=str(token_id)):
            tiny_tokenizer.token_bytes(token_id)


def test_lone_surrogates_become_replacement_characters(tiny_tokenizer):
    """Half of a UTF-16 pair has no bytes; it cannot reach the library, which would fail on it."""
    assert tiny_tokenizer.decode(tiny_tokenizer.encode_text("a\ud83d")) == "a\ufffd"


def test_the_longer_of_two_control_tokens_wins():
    """`<a>` is not found inside `<a>b>`, whichever id is smaller."""
    spec = tiny_tokenizer_spec()
    tokens = ("<a>", "<a>b>", *spec.tokens[2:])
    assert Tokenizer(dataclasses.replace(spec, tokens=tokens)).encode_template("<a>b><a>") == [1, 0]


def test_user_defined_tokens_are_found_in_any_text():
    """Tokens that a model's maker added for texts (not control) are one id wherever they stand."""
    spec = tiny_tokenizer_spec()
    spec = dataclasses.replace(spec, tokens=(*spec.tokens, "<think>"), user_defined_ids=frozenset({len(spec.tokens)}))
    tokenizer = Tokenizer(spec)
    ids = tokenizer.encode_text("a<think>b")
    assert ids == [*tokenizer.encode_text("a"), len(spec.tokens) - 1, *tokenizer.encode_text("b")]
    assert tokenizer.decode(ids) == "a<think>b"
    assert not tokenizer.is_special(ids[1])


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "default", "llama-bpe", "qwen2"])
def test_every_known_pre_tokenizer_round_trips(pre):
    """No rule loses a character."""
    tokenizer = Tokenizer(dataclasses.replace(tiny_tokenizer_spec(), pre=pre))
    for text in [*TORTURE, *random_texts(100, seed=13)]:
        # Qwen2's own tokenizer composes characters first.
        expected = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode_text(text)) == expected


def test_digits_are_split_as_the_rule_says():
    """One by one for SmolLM and Qwen2, by threes for Llama 3, as a whole for GPT-2."""
    spec = tiny_tokenizer_spec()
    numbers = ("12", "123", "1234")
    spec = dataclasses.replace(spec, tokens=(*spec.tokens, *numbers), merges=(*spec.merges, "1 2", "12 3", "123 4"))

    def pieces(pre):
        tokenizer = Tokenizer(dataclasses.replace(spec, pre=pre))
        return [tokenizer.token_text(i) for i in tokenizer.encode_text("1234")]

    assert pieces("smollm") == pieces("qwen2") == ["1", "2", "3", "4"]
    assert pieces("llama-bpe") == ["123", "4"]
    assert pieces("gpt-2") == ["1234"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"pre": "tekken"}, "model.gguf: pre-tokenizer 'tekken' is not supported"),
        ({"merges": ("no such",)}, "merges do not fit"),
        ({"merges": ("nospace",)}, "merges do not fit"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, what):
    """An unknown splitting rule would give wrong ids without a word, so it is not replaced by another."""
    with pytest.raises(BadModelFile, match=what):
        Tokenizer(dataclasses.replace(tiny_tokenizer_spec(), origin="model.gguf", **changes))
