"""The engine: one core that steps, one thread that owns it, and its two faces for asyncio and for scripts.

Must not know: HTTP. Start reading at `core`, then `loop`, then `aio`.
"""

from headway.engine.aio import AsyncLLM, Stream
from headway.engine.build import Engine, build_engine, with_policy
from headway.engine.config import EngineConfig
from headway.engine.core import EngineCore
from headway.engine.limits import Limits
from headway.engine.llm import LLM
from headway.engine.outputs import Completion, Delta, EngineStats, Generation, Usage

__all__ = [
    "LLM",
    "AsyncLLM",
    "Completion",
    "Delta",
    "Engine",
    "EngineConfig",
    "EngineCore",
    "EngineStats",
    "Generation",
    "Limits",
    "Stream",
    "Usage",
    "build_engine",
    "with_policy",
]
