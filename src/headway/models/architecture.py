"""What sets one family of models apart, and how a family is found by the name in its files.

Each file in `models/architectures` describes one: its module's name is the architecture's name, and it holds one
`ARCHITECTURE`. Adding a family is adding a file (docs/adding-a-model.md).
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

from headway.errors import BadModelFile
from headway.models.rope import RopePairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A family of decoder-only transformers: RMSNorm, rotary positions, grouped attention, SwiGLU, and what differs.

    `qkv_bias` and `qk_norm` are those of `ModelConfig`. `gguf_rope_pairs`: which features turn together in a GGUF file,
    whose makers reorder some families; in a Hugging Face folder it is always the two halves. A `sliding_window` in
    config.json counts unless `window_is_optional` and `use_sliding_window` is not set; `default_window` is what a
    config.json without the key means. `head_dim` likewise, None for hidden size ÷ heads.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    gguf_rope_pairs: RopePairs = "half_split"
    window_is_optional: bool = False
    default_window: int | None = None
    head_dim: int | None = None


def known_architectures() -> tuple[str, ...]:
    """Names of all families that can be run."""
    folder = importlib.import_module("headway.models.architectures")
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folder.__path__)))


def find_architecture(name: object, where: str) -> Architecture:
    """The family of a name that a file gives. `where` begins the message of BadModelFile, which names the known."""
    if name not in (known := known_architectures()):
        raise BadModelFile(f"{where}: architecture {repr(name)[:60]} is not supported; supported: {', '.join(known)}")
    found: Architecture = importlib.import_module(f"headway.models.architectures.{name}").ARCHITECTURE
    return found
