"""Every random stream has its own seed, so that drawing more from one shifts no other."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator of the stream called `names` under `seed`: the same on every machine and in every process."""
    words = [zlib.crc32(str(name).encode()) for name in names]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))
