"""The maths of a model, one function per operation.

Must not know: requests, batches, blocks' owners or files; arrays in, arrays out.
Start reading at `reference`: what it computes is right by definition, every faster kernel is compared with it.
"""

from headway.kernels.reference import (
    linear,
    log_softmax,
    paged_attention,
    rms_norm,
    rope_angles,
    rope_half_split,
    rope_interleaved,
    rope_inverse_frequencies,
    softmax,
    swiglu,
    write_kv,
)

__all__ = [
    "linear",
    "log_softmax",
    "paged_attention",
    "rms_norm",
    "rope_angles",
    "rope_half_split",
    "rope_interleaved",
    "rope_inverse_frequencies",
    "softmax",
    "swiglu",
    "write_kv",
]
