"""What an executor settled on."""

import pytest

from headway.errors import BadSetting
from headway.executor.registry import Compute


def compute(weights, weight_bytes):
    return Compute(weights=weights, kv_dtype="float16", kernels="avx2", threads=2, weight_bytes=weight_bytes)


def test_weights_that_do_not_fit_are_refused_before_they_are_read():
    """The system kills a process that takes more memory than there is: the user is told instead, with a way out."""
    assert compute("int8", 600).bytes_left(1000) == 400
    with pytest.raises(BadSetting, match=r"take 4,000 bytes as float32, but only 1,000 .*--weights int8"):
        compute("float32", 4000).bytes_left(1000)
    with pytest.raises(BadSetting, match="choose a smaller model"):
        compute("int8", 1001).bytes_left(1000)
