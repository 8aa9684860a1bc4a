"""Prompts: exact token counts, equal ids for equal prefixes, the same by seed."""

import pytest
import tokenizers

from headway.errors import BadSetting
from headway.workload import IdMaker, PromptMaker, WorkItem, continues


class LocalTokenizer:
    """A tokenizer file without special tokens."""

    def __init__(self, path):
        self._backend = tokenizers.Tokenizer.from_file(str(path))

    def encode_text(self, text):
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self._backend.decode(list(ids), skip_special_tokens=False)


class ByteTokenizer:
    """One token per byte: no word is one token."""

    def encode_text(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def tokenizer(shared_data):
    return LocalTokenizer(shared_data / "tokenizer_smollm2" / "tokenizer.json")


def item(num_prompt, **fields):
    return WorkItem(id="x", num_prompt=num_prompt, num_output=1, max_output=1, **fields)


@pytest.mark.parametrize("num_prompt", [1, 2, 15, 16, 17, 333, 5000])
def test_made_up_text_has_exactly_the_tokens_asked_for(tokenizer, num_prompt):
    """The text read by the tokenizer gives num_prompt ids, and they are those of `ids`."""
    maker = PromptMaker(tokenizer)
    work = item(num_prompt, prefix=(5, 6), prefix_block=8, seed=num_prompt)
    assert tokenizer.encode_text(maker.text(work)) == maker.ids(work)
    assert len(maker.ids(work)) == num_prompt


def test_parts_and_overhead(tokenizer):
    """A text may leave out what was said before, and what the target adds by itself."""
    maker = PromptMaker(tokenizer)
    work = item(100, seed=1)
    assert len(tokenizer.encode_text(maker.text(work, start=40))) == 60
    assert len(tokenizer.encode_text(maker.text(work, overhead=9))) == 91
    assert maker.text(work).endswith(maker.text(work, start=40))


@pytest.mark.parametrize("make", [IdMaker, None])
def test_equal_blocks_are_equal_and_the_rest_is_not(tokenizer, make):
    """Items that share two blocks share exactly their tokens; their own parts differ."""
    maker = IdMaker(30_000) if make else PromptMaker(tokenizer)
    one = maker.ids(item(100, prefix=(1, 2, 3), prefix_block=16, seed=1))
    two = maker.ids(item(100, prefix=(1, 2, 9), prefix_block=16, seed=2))
    assert one[:32] == two[:32]
    assert one[32:48] != two[32:48]
    assert one[48:] != two[48:]
    assert maker.ids(item(20, prefix=(1, 2), prefix_block=16)) == one[:20]


def test_a_salt_makes_everything_new_and_the_seed_makes_it_the_same(tokenizer):
    """Two runs with one salt send the same prompts, with another none of them: no cache of an earlier run helps."""
    work = item(64, prefix=(1,), prefix_block=32, seed=4)
    assert PromptMaker(tokenizer, salt=1).ids(work) == PromptMaker(tokenizer, salt=1).ids(work)
    assert PromptMaker(tokenizer, salt=1).ids(work)[:4] != PromptMaker(tokenizer, salt=2).ids(work)[:4]


def test_history_stands_in_for_what_was_really_said(tokenizer):
    """The ids of earlier turns replace as many made-up ones; the count stays."""
    maker = PromptMaker(tokenizer)
    work = item(50, prefix=(1, 2, 3, 4), prefix_block=16)
    assert maker.ids(work, [7] * 20)[:21] == [7] * 20 + [maker.ids(work)[20]]
    assert len(maker.ids(work, [7] * 20)) == 50


def test_continues_tells_a_session_from_a_coincidence():
    """A later turn continues an earlier one if it resends its whole prompt."""
    first = item(20, prefix=(1, 2), prefix_block=16, session="s")
    second = item(60, prefix=(1, 2, 3, 4), prefix_block=16, session="s", turn=1)
    assert continues(first, second)
    assert not continues(second, first)
    assert not continues(first, item(60, prefix=(1, 9, 3, 4), prefix_block=16, session="s", turn=1))
    assert not continues(item(90, prefix=(1, 2), prefix_block=16, session="s"), second)
    assert not continues(item(20, session="s"), item(60, session="s", turn=1))


def test_texts_of_a_file_are_cut_to_length(tokenizer):
    """Natural text is cut, or continued with the next, to exactly the tokens asked for; whole texts are untouched."""
    texts = ["A naïve café — déjà vu! 你好，世界。 " * 3, "def f(x):\n    return x ** 2\n" * 20]
    maker = PromptMaker(tokenizer, texts=texts)
    for num_prompt in range(1, 300, 7):
        work = item(num_prompt, text_row=num_prompt)
        assert len(tokenizer.encode_text(maker.text(work))) == num_prompt
    assert maker.text(item(10, text_row=1)).startswith("def f(x)")
    assert PromptMaker(tokenizer, texts=texts, fit="whole").text(item(10, text_row=3)) == texts[1]


def test_a_tokenizer_without_words_is_refused():
    """Where common words are several tokens, exact made-up text is impossible, and the message says what to do."""
    with pytest.raises(BadSetting, match="send texts from a file instead"):
        PromptMaker(ByteTokenizer())
