import pytest

from headway.core import SamplingParams
from headway.core.sampling import MAX_STOP_CHARS
from headway.errors import InvalidRequest


def test_a_stop_string_is_bounded():
    """From Python as over HTTP: the limit itself passes, one more is refused with both numbers."""
    assert SamplingParams(stop=("x" * MAX_STOP_CHARS,)).stop
    with pytest.raises(InvalidRequest, match=f"{MAX_STOP_CHARS + 1}.*{MAX_STOP_CHARS}"):
        SamplingParams(stop=("a", "x" * (MAX_STOP_CHARS + 1)))
