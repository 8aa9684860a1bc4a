"""What every kind of model file offers, and how a weight is taken from it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway.errors import BadModelFile
from headway.models.config import ModelConfig
from headway.models.layout import OUTSIDE
from headway.models.tokenizer_spec import TokenizerSpec


class ModelFile(Protocol):
    """An opened model: a GGUF file, its parts, or a Hugging Face folder.

    Everything that can be known without reading weights was checked when it was opened: a model that opens can be
    loaded.
    """

    path: Path
    config: ModelConfig
    tokenizer_spec: TokenizerSpec
    chat_template: str | None

    def stored_name(self, name: str, layer: int = OUTSIDE) -> str:
        """What the file calls a tensor of `models.layout`."""
        ...

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor by the file's name for it, as a new float32 array."""
        ...


def finite_tensor(file: ModelFile, name: str, layer: int = OUTSIDE) -> NDArray[np.float32]:
    """One tensor, by its name in `models.layout`, as float32. Raises BadModelFile if a number in it is not finite."""
    stored = file.stored_name(name, layer)
    array = file.tensor(stored)
    # The sum of squares is infinite or NaN if any element is (or is beyond all reason), and far cheaper than a mask.
    with np.errstate(all="ignore"):
        total = np.dot(array.reshape(-1), array.reshape(-1))
    if not np.isfinite(total):
        raise BadModelFile(
            f"{file.path}: tensor {stored!r} holds numbers that are not finite or far too large; the file is damaged"
        )
    return array
