"""TextStage: stop rule and deltas, played as a scheduler would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import (
    Arrived,
    FinishReason,
    Logprobs,
    Request,
    SamplingParams,
    Sequence,
    SequenceFinished,
    TokenEmitted,
)
from headway.engine.text import TextStage

EOS = 0
STOP, LENGTH, ABORT = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT


class Words:
    """A vocabulary of the given byte strings from id 1 on; id 0 is a control token."""

    def __init__(self, *words: bytes) -> None:
        self.words = (b"<end>", *words)

    def token_bytes(self, token_id):
        return self.words[token_id]

    def is_special(self, token_id):
        return token_id == EOS


class Player:
    """Feeds tokens to a stage, one step each, as commit does."""

    def __init__(self, words, *, max_output=50, **params) -> None:
        self.stage = TextStage(words)
        request = Request(
            id="r",
            prompt_ids=(1,),
            max_output=max_output,
            eos_ids=frozenset({EOS}),
            params=SamplingParams(max_tokens=None, **params),
        )
        self.seq = Sequence(request)

    def step(self, *token_ids):
        """The delta of one step with these tokens, or None."""
        events = []
        for token_id in token_ids:
            self.seq.token_ids.append(token_id)
            logprobs = Logprobs(-float(token_id), 1)
            events.append(TokenEmitted("r", "r", 0, self.seq.num_output - 1, token_id, 0.0, logprobs))
            if (reason := self.stage(self.seq)) is not None:
                events.append(SequenceFinished("r", "r", 0, reason, 0.0))
                break
        return self.collect(events)

    def abort(self):
        return self.collect([SequenceFinished("r", "r", 0, ABORT, 0.0)])

    def collect(self, events):
        match self.stage.deltas(events):
            case []:
                return None
            case [("r", delta)]:
                assert len(delta.logprobs) == len(delta.token_ids)
                return delta
            case other:
                pytest.fail(f"more than one delta: {other}")

    def run(self, *token_ids):
        """Text, ids, reason and stop reason of all steps up to the end."""
        text, ids = "", []
        for token_id in token_ids:
            if (delta := self.step(token_id)) is None:
                continue
            text, ids = text + delta.text, ids + delta.token_ids
            if delta.finish_reason is not None:
                return text, ids, delta.finish_reason, delta.stop_reason
        return text, ids, None, None


ABC = Words(b"a", b"b", b"c", b"abc")


def test_every_plain_token_has_its_delta_at_once():
    """ASCII text without stop strings never waits."""
    player = Player(ABC)
    assert [player.step(i).text for i in (1, 2, 3, 4)] == ["a", "b", "c", "abc"]


def test_eos_ends_without_text_and_counts():
    """The EOS token is among the ids, not in the text, and is no stop reason."""
    assert Player(ABC).run(1, EOS) == ("a", [1, EOS], STOP, None)


def test_ignored_eos_is_silent():
    """With ignore_eos the sequence goes on, and the EOS has no text."""
    assert Player(ABC, ignore_eos=True, max_output=3).run(1, EOS, 2) == ("ab", [1, EOS, 2], LENGTH, None)


def test_eos_without_being_special_is_silent_too():
    """An end-of-text token that the tokenizer does not mark as special is not shown either."""
    words = Words(b"a")
    words.is_special = lambda token_id: False
    assert Player(words, ignore_eos=True, max_output=2).run(EOS, 1) == ("a", [EOS, 1], LENGTH, None)


@pytest.mark.parametrize(("shows", "text"), [(False, "a"), (True, "ab")])
def test_stop_token(shows, text):
    """A stop token names itself as the stop reason; its text is shown only on request."""
    player = Player(ABC, stop_token_ids=(2,), include_stop_str_in_output=shows)
    assert player.run(1, 2) == (text, [1, 2], STOP, 2)


@pytest.mark.parametrize(("shows", "text"), [(False, "a"), (True, "abc")])
def test_stop_string_across_tokens(shows, text):
    """A stop string made of several tokens cuts the text before it, or behind it on request."""
    player = Player(ABC, stop=("bc",), include_stop_str_in_output=shows)
    assert player.run(1, 2, 3) == (text, [1, 2, 3], STOP, "bc")


def test_nothing_behind_the_stop_string_is_shown():
    """The tail of the token in which a stop string ends is dropped, and the token counts."""
    assert Player(ABC, stop=("b",)).run(4) == ("a", [4], STOP, "b")
    assert Player(ABC, stop=("b",), include_stop_str_in_output=True).run(4) == ("ab", [4], STOP, "b")


def test_held_text_keeps_its_ids():
    """While text is undecided its token and logprobs wait with it; then they come together."""
    player = Player(ABC, stop=("bb",))
    assert player.step(2) is None
    delta = player.step(1)
    assert (delta.text, delta.token_ids) == ("ba", [2, 1])
    assert [entry.logprob for entry in delta.logprobs] == [-2.0, -1.0]


def test_held_text_comes_once_before_the_end():
    """Text that looked like a stop string is shown when the sequence ends otherwise."""
    assert Player(ABC, stop=("bca",)).run(1, 2, 3, EOS) == ("abc", [1, 2, 3, EOS], STOP, None)
    assert Player(ABC, stop=("bca",), max_output=3).run(1, 2, 3) == ("abc", [1, 2, 3], LENGTH, None)


def test_stop_string_at_the_last_token_is_a_stop():
    """A stop string completed by the last possible token counts before the length."""
    assert Player(ABC, stop=("bc",), max_output=3).run(1, 2, 3) == ("a", [1, 2, 3], STOP, "bc")


def test_min_tokens_lets_stop_strings_pass():
    """A stop string completed before min_tokens is plain text; one completed later ends, even if begun before."""
    assert Player(ABC, stop=("b",), min_tokens=2).run(2, 1, 2) == ("ba", [2, 1, 2], STOP, "b")
    assert Player(ABC, stop=("bc",), min_tokens=2).run(1, 2, 3) == ("a", [1, 2, 3], STOP, "bc")
    assert Player(ABC, stop=("b",), min_tokens=9, max_output=2).run(2, 2) == ("bb", [2, 2], LENGTH, None)


def test_unfinished_character_at_the_end():
    """Bytes of a character that never came whole end as one U+FFFD, and that mark can be a stop string as well."""
    words = Words(b"a", b"\xf0\x9f")
    assert Player(words).run(1, 2, EOS) == ("a\ufffd", [1, 2, EOS], STOP, None)
    assert Player(words, max_output=2).run(1, 2) == ("a\ufffd", [1, 2], LENGTH, None)
    assert Player(words, max_output=2, stop=("\ufffd",)).run(1, 2) == ("a", [1, 2], STOP, "\ufffd")
    assert Player(words, stop=("\ufffd",)).run(1, 2, EOS) == ("a", [1, 2, EOS], STOP, None)


def test_abort_shows_only_what_was_safe():
    """An abort drops undecided text, and still has the finish delta with all ids."""
    player = Player(ABC, stop=("bc",))
    assert player.step(1).text == "a"
    assert player.step(2) is None
    delta = player.abort()
    assert (delta.text, delta.token_ids, delta.finish_reason, delta.stop_reason) == ("", [2], ABORT, None)


def test_abort_before_the_first_token():
    """A sequence that never had a token gets its finish delta as well."""
    delta = Player(ABC).abort()
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("", [], ABORT)


def test_several_tokens_in_one_step_are_one_delta():
    """A step with speculation adds one delta, cut where the sequence ended."""
    delta = Player(ABC, stop=("c",)).step(1, 2, 3, 1)
    assert (delta.text, delta.token_ids, delta.finish_reason, delta.stop_reason) == ("ab", [1, 2, 3], STOP, "c")


def test_choices_are_apart_and_ordered():
    """Each choice has its own text; deltas follow the events, and other events are passed over."""
    stage = TextStage(ABC)
    request = Request(id="r", prompt_ids=(1,), max_output=5, params=SamplingParams(n=2, stop=("ab",)))
    seqs = [Sequence(request, choice=choice) for choice in (1, 0)]
    events = [Arrived(request, 0.0)]
    for seq, token_id in zip(seqs, (1, 2), strict=True):
        seq.token_ids.append(token_id)
        assert stage(seq) is None
        events.append(TokenEmitted(seq.id, "r", seq.choice, 0, token_id, 0.0))
    assert [(delta.choice, delta.text) for _, delta in stage.deltas(events)] == [(0, "b")]
    seqs[0].token_ids.append(3)
    assert stage(seqs[0]) is None
    [(request_id, delta)] = stage.deltas([TokenEmitted(seqs[0].id, "r", 1, 1, 3, 0.0)])
    assert (request_id, delta.choice, delta.text, delta.token_ids) == ("r", 1, "ac", [1, 3])


def test_forgets():
    """A finished sequence leaves nothing behind, and forgetting an unknown one is fine."""
    player = Player(ABC)
    player.run(1, EOS)
    player.stage.forget("r")
    assert not player.stage._tracks


@given(st.text(alphabet="abé🙂", max_size=20), st.data())
def test_streamed_is_the_same_as_at_once(text, data):
    """A stop string taken from any (start, end) of the text gives the same text for every cut into tokens."""
    raw = text.encode()
    marks = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=8)) - {0, len(raw)})
    pieces = [raw[a:b] for a, b in zip([0, *marks], [*marks, len(raw)], strict=True)]
    start = data.draw(st.integers(0, max(0, len(text) - 1)))
    stop = text[start : start + data.draw(st.integers(1, 4))]
    if not stop:
        return
    streamed = Player(Words(*pieces), stop=(stop,)).run(*range(1, len(pieces) + 1))
    assert streamed[0] == text[: text.index(stop)]
    assert streamed[2:] == (STOP, stop)
    assert Player(Words(raw), stop=(stop,)).run(1)[0] == streamed[0]
