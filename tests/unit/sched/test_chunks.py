"""Sharing a token budget among prompts."""

from headway.sched.parts.chunks import equal_progress, first_come


def test_first_come_cuts_to_whole_units():
    """The prompt that the budget does not hold gets whole units; a later one may use what is left, whole."""
    assert first_come({"a": 6, "b": 10}, 13, 4) == {"a": 6, "b": 4}
    assert first_come({"a": 10, "b": 1}, 6, 4) == {"a": 4, "b": 1}


def test_first_come_ends_at_the_first_that_gets_nothing():
    """Once a chunk rounds down to nothing, later prompts wait, even one that would fit."""
    assert first_come({"a": 6, "b": 4, "c": 1}, 8, 4) == {"a": 6}
    assert first_come({}, 8, 4) == {}


def test_equal_progress_goes_round():
    """A unit to each in turn; last pieces may be shorter, others are never cut."""
    assert equal_progress({"a": 6, "b": 4}, 8, 4) == {"a": 4, "b": 4}
    assert equal_progress({"a": 6, "b": 12, "c": 4}, 18, 4) == {"a": 6, "b": 8, "c": 4}
    assert equal_progress({"a": 9}, 3, 4) == {"a": 0}


def test_without_pressure_nobody_is_cut():
    """When all fit, both give everybody everything."""
    wanted = {"a": 6, "b": 4, "c": 9}
    assert first_come(wanted, 19, 4) == equal_progress(wanted, 19, 4) == wanted
