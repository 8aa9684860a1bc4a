"""The engine: one core that steps, one thread that owns it, and its two faces for asyncio and for scripts.

Must not know: HTTP. Start reading at `core`, then `loop`, then `aio`.
"""

from headway.engine.admission import AdmissionLimits
from headway.engine.aio import AsyncLLM
from headway.engine.build import Engine, build_engine, scheduling_facts, with_policy
from headway.engine.config import EngineConfig
from headway.engine.control import Control, Guarding
from headway.engine.core import EngineCore
from headway.engine.guardrails import GuardSettings
from headway.engine.limits import Limits, for_comparison
from headway.engine.llm import LLM
from headway.engine.outputs import Completion, Delta, EngineStats, Generation, Usage
from headway.engine.stream import Stream

__all__ = [
    "LLM",
    "AdmissionLimits",
    "AsyncLLM",
    "Completion",
    "Control",
    "Delta",
    "Engine",
    "EngineConfig",
    "EngineCore",
    "EngineStats",
    "Generation",
    "GuardSettings",
    "Guarding",
    "Limits",
    "Stream",
    "Usage",
    "build_engine",
    "for_comparison",
    "scheduling_facts",
    "with_policy",
]
