from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.bench.sse import EventParser, read_event
from headway.bench.target import Broken

STREAM = (
    ': a comment\r\n\r\ndata: {"a": 1}\r\n\r\nevent: x\ndata: first\ndata: second\n\ndata:tight\n\n'
    "data: größer\n\ndata: [DONE]\n\n"
).encode()
EVENTS = ['{"a": 1}', "first\nsecond", "tight", "größer", "[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_wherever_the_network_cuts(cuts):
    """A stream gives the same events for every way of cutting it, inside a character or a line end too."""
    places = [0, *sorted(cuts), len(STREAM)]
    parser = EventParser()
    found = [data for start, stop in pairwise(places) for data in parser.feed(STREAM[start:stop])]
    assert [*found, *parser.finish()] == EVENTS


def test_a_last_event_without_its_empty_line_is_not_lost():
    """The end of the body ends the event."""
    parser = EventParser()
    assert [*parser.feed(b"data: [DONE]"), *parser.finish()] == ["[DONE]"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('{"choices": [{"text": "a"}]}', "a"),
        ('{"choices": [{"delta": {"role": "assistant"}}]}', ""),
        ('{"choices": [{"delta": {"role": "assistant", "content": ""}}]}', ""),
        ('{"choices": [{"delta": {"content": "b"}}]}', "b"),
        ('{"choices": [{"delta": {"reasoning_content": "c"}}]}', "c"),
        ('{"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]}', "f{}"),
        ('{"choices": [], "usage": {"completion_tokens": 1}}', ""),
    ],
)
def test_what_the_model_said_is_content_reasoning_or_a_tool_call_but_no_role(data, text):
    """Only what the model wrote counts as text."""
    assert read_event(data).text == text


def test_listed_tokens_are_counted():
    """Ids or log probabilities say how many tokens a chunk holds."""
    assert read_event('{"choices": [{"text": "ab", "token_ids": [1, 2]}]}').num_tokens == 2
    assert read_event('{"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b", "c"]}}]}').num_tokens == 3
    assert read_event('{"choices": [{"delta": {"content": "a"}, "logprobs": null}]}').num_tokens is None


@pytest.mark.parametrize("data", ["no json", "[1]", '{"error": {"message": "out of memory", "code": 500}}'])
def test_what_is_no_event_breaks_the_answer(data):
    """Garbage and errors in the stream raise, in words."""
    with pytest.raises(Broken, match=r"no JSON|no event|out of memory"):
        read_event(data)
