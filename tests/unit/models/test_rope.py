import math

import numpy as np
import pytest

from headway.errors import BadModelFile
from headway.models import DividedRope, LinearRope, Llama3Rope, rope_frequencies

LLAMA31 = Llama3Rope(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=8192)


def llama3_by_hand(frequency, scaling):
    """Llama 3.1's rule for one pair of features, as its makers wrote it: by wavelengths."""
    wavelength = 2 * math.pi / frequency
    longest = scaling.original_context_length / scaling.low_freq_factor
    shortest = scaling.original_context_length / scaling.high_freq_factor
    if wavelength < shortest:
        return frequency
    if wavelength > longest:
        return frequency / scaling.factor
    smooth = (scaling.original_context_length / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


def test_no_scaling_is_a_geometric_series():
    """From one radian a position downwards, by the same ratio from pair to pair."""
    found = rope_frequencies(8, 10_000.0, None)
    np.testing.assert_allclose(found, [1.0, 0.1, 0.01, 0.001])


def test_linear_divides_every_angle():
    """Position p under factor f turns as far as position p / f did."""
    np.testing.assert_allclose(
        rope_frequencies(64, 1e4, LinearRope(4.0)), rope_frequencies(64, 1e4, None) / 4.0, rtol=1e-15
    )


def test_llama3_keeps_fast_angles_and_slows_slow_ones():
    """Each of Llama 3.1's 64 pairs is what the published rule gives, and all three of its cases occur."""
    plain = rope_frequencies(128, 500_000.0, None)
    found = rope_frequencies(128, 500_000.0, LLAMA31)
    np.testing.assert_allclose(found, [llama3_by_hand(frequency, LLAMA31) for frequency in plain], rtol=1e-12)
    divisors = plain / found
    assert divisors[0] == 1.0
    assert divisors[-1] == pytest.approx(8.0)
    assert ((divisors > 1.01) & (divisors < 7.99)).any()


def test_divisors_are_applied_one_by_one():
    """GGUF's form of the same scaling."""
    np.testing.assert_allclose(rope_frequencies(4, 100.0, DividedRope((1.0, 8.0))), [1.0, 0.1 / 8.0])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: LinearRope(0.0), "factor is 0.0"),
        (lambda: LinearRope(float("nan")), "factor is nan"),
        (lambda: Llama3Rope(8.0, 4.0, 4.0, 8192), "low_freq_factor 4.0 is not below high_freq_factor 4.0"),
        (lambda: Llama3Rope(8.0, 1.0, 4.0, 0), "original_max_position_embeddings is 0"),
        (lambda: DividedRope((1.0, -1.0)), "a divisor is -1.0"),
        (lambda: rope_frequencies(8, 1e4, DividedRope((1.0,))), "1 divisors for 4 pairs"),
    ],
)
def test_impossible_scalings_are_refused(make, what):
    """Numbers that no model has are shown."""
    with pytest.raises(BadModelFile, match=what):
        make()
