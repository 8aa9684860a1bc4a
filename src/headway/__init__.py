"""Headway: LLM serving with continuous batching, and every published scheduler by name.

    from headway import LLM, SamplingParams

Names load on first use, so that importing a low part (`headway.core`, `headway.kv`, `headway.sched`) loads nothing
outside the standard library. Start reading at `headway.engine`; nothing below it may import this face.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.core.sampling import SamplingParams
    from headway.engine.aio import AsyncLLM
    from headway.engine.llm import LLM

__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "AsyncLLM": "headway.engine.aio",
    "LLM": "headway.engine.llm",
    "SamplingParams": "headway.core.sampling",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  the names have different types; checkers see the imports above
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
