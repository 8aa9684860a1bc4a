"""Detokenizer and StopMatcher against the plain definition on the whole text, for any cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from headway.engine.detokenize import Detokenizer, InclusiveStopMatcher, StopMatcher

# Lead and continuation bytes side by side, so that broken and overlong characters are common.
rough_bytes = st.lists(
    st.one_of(
        st.sampled_from([b"a", b"\x80", b"\xbf", b"\xc3", b"\xe2", b"\xe2\x82", b"\xf0\x9f", b"\xed\xa0", b"\xf4\x90"]),
        st.characters().filter(lambda char: not 0xD800 <= ord(char) < 0xE000).map(str.encode),
        st.binary(max_size=3),
    ),
    max_size=30,
).map(b"".join)


@st.composite
def cut(draw, whole):
    """`whole` in pieces, some of them empty."""
    marks = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    return [whole[a:b] for a, b in zip([0, *marks], [*marks, len(whole)], strict=True)]


@given(rough_bytes.flatmap(cut))
def test_pieces_equal_the_whole(pieces):
    """Joined pieces and flush are the bytes decoded at once, and at most 3 bytes are ever held back."""
    texts = Detokenizer(pieces.__getitem__, lambda token_id: False)
    shown = ""
    for token_id in range(len(pieces)):
        shown += texts.push(token_id)
        so_far = b"".join(pieces[: token_id + 1])
        assert any(shown == so_far[: len(so_far) - held].decode("utf-8", "replace") for held in range(4))
    assert shown + texts.flush() == b"".join(pieces).decode("utf-8", "replace")


@given(st.text(max_size=20).flatmap(lambda text: cut(text.encode())))
def test_valid_text_never_shows_a_replacement(pieces):
    """A character made of several tokens comes whole: no delta has U+FFFD unless the text has it."""
    texts = Detokenizer(pieces.__getitem__, lambda token_id: False)
    deltas = [texts.push(token_id) for token_id in range(len(pieces))]
    assert "".join(deltas) == b"".join(pieces).decode()
    assert texts.flush() == ""


def first_end(text, stops):
    """The plain definition: (length up to the end, stop string) of the first completed one, the longest of several."""
    for end in range(1, len(text) + 1):
        if done := [stop for stop in stops if text[:end].endswith(stop)]:
            return end, max(done, key=len)
    return None


def longest_beginning(text, stops):
    """Length of the longest end of `text` that is a proper beginning of a stop string."""
    return max((n for n in range(1, len(text) + 1) for stop in stops if stop[:-1].startswith(text[-n:])), default=0)


few_letters = st.text(alphabet="ab", max_size=24)
stop_tuples = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)


@given(few_letters.flatmap(cut), stop_tuples)
def test_the_first_completed_stop_wins(pieces, stops):
    """Whatever the cut: the same hit and text; before it exactly the longest possible beginning is held back."""
    found = first_end("".join(pieces), stops)
    matcher, shown, seen = StopMatcher(stops), "", ""
    for piece in pieces:
        safe, hit = matcher.push(piece)
        shown, seen = shown + safe, seen + piece
        if hit is not None:
            assert found is not None
            end, stop = found
            assert (hit, shown) == (stop, seen[: end - len(stop)])
            assert not any(stop in shown for stop in stops)
            assert matcher.flush() == ""
            return
        assert shown == seen[: len(seen) - longest_beginning(seen, stops)]
    assert found is None
    assert shown + matcher.flush() == seen


@given(few_letters.flatmap(cut), stop_tuples)
def test_inclusive_shows_the_stop_and_holds_nothing(pieces, stops):
    """With the stop string in the output each piece is shown at once, up to the end of the stop string."""
    matcher, shown, seen = InclusiveStopMatcher(stops), "", ""
    for piece in pieces:
        safe, hit = matcher.push(piece)
        shown, seen = shown + safe, seen + piece
        if hit is not None:
            assert (len(shown), hit) == first_end(seen, stops)
            assert seen.startswith(shown)
            return
        assert shown == seen
    assert first_end(seen, stops) is None


@given(few_letters.flatmap(cut), few_letters.flatmap(cut), stop_tuples)
def test_passed_text_counts_only_as_the_beginning_of_a_later_stop(early, late, stops):
    """A stop string ends nothing where it is completed in passed-by text, and does where it is completed after."""
    matcher, shown = StopMatcher(stops), ""
    for piece in early:
        shown += matcher.pass_by(piece)
    passed = "".join(early)
    assert shown == passed[: len(passed) - longest_beginning(passed, stops)]
    text = passed + "".join(late)
    ends = (e for e in range(len(passed) + 1, len(text) + 1) if any(text[:e].endswith(stop) for stop in stops))
    end = next(ends, None)
    for piece in late:
        safe, hit = matcher.push(piece)
        shown += safe
        if hit is not None:
            assert text[:end].endswith(hit)
            assert shown == text[: end - len(hit)]
            return
    assert end is None
    assert shown + matcher.flush() == text


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=64).map(tuple))
def test_many_stops_over_any_text(text, stops):
    """64 stop strings over any characters find what the plain definition finds, one character at a time."""
    matcher, shown, hit = StopMatcher(stops), "", None
    for char in text:
        safe, hit = matcher.push(char)
        shown += safe
        if hit is not None:
            break
    found = first_end(text, stops)
    assert hit == (found and found[1])
    assert shown + matcher.flush() == (text if found is None else text[: found[0] - len(found[1])])
