"""How much an ordinary run does of what only a full one does whole: same facts, fewer cases."""

import pytest
from hypothesis import settings

MOST_IN_ORDINARY_RUN = 100


def few(num_examples):
    """At most so many examples in an ordinary run; as many as the profile says in a full one."""
    is_ordinary = settings.default.max_examples <= MOST_IN_ORDINARY_RUN
    return settings(max_examples=min(num_examples, settings.default.max_examples)) if is_ordinary else settings()


def sample(cases, every):
    """Parameters of which every so-many-th runs always, the others in a full run.

    Of tuples, each value in each place must stay: choose `every` prime to the lengths of the lists that were combined.
    """
    cases = list(cases)
    if all(isinstance(case, tuple) for case in cases):
        for every_value, kept in zip(zip(*cases, strict=True), zip(*cases[::every], strict=True), strict=True):
            assert set(every_value) == set(kept), f"with every={every} these values never run: {every_value}"
    return [case if at % every == 0 else _slow(case) for at, case in enumerate(cases)]


def _slow(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
