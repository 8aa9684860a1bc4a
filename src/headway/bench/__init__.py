"""Measuring what answers: a server or the engine in this process, under any workload, without fooling oneself.

Must not know: simulators, terminals. Start reading at `target`, then `client`, then `runner`.
"""

from headway.bench.http import HttpSettings, HttpTarget
from headway.bench.inprocess import EngineTarget
from headway.bench.plan import RunPlan
from headway.bench.progress import Progress
from headway.bench.prompts import CallMaker, IdCalls, TextCalls, WordEncoder
from headway.bench.runner import Runner
from headway.bench.target import Broken, Call, Chunk, Closing, Opened, Refused, Target, Unauthorized, Unreachable

__all__ = [
    "Broken",
    "Call",
    "CallMaker",
    "Chunk",
    "Closing",
    "EngineTarget",
    "HttpSettings",
    "HttpTarget",
    "IdCalls",
    "Opened",
    "Progress",
    "Refused",
    "RunPlan",
    "Runner",
    "Target",
    "TextCalls",
    "Unauthorized",
    "Unreachable",
    "WordEncoder",
]
