"""How far the simulator is from what was measured, with a bound on every figure.

Must not know: the command line. Start reading at `gpu`, then `operators`, then `engine`.
"""

from headway.fidelity.engine import PLAUSIBLE, EngineCheck, EngineTrial, PolicyCheck, check_engine
from headway.fidelity.gpu import GpuCheck, check_gpu
from headway.fidelity.operators import OPERATOR_BOUNDS, OperatorCheck, check_operators
from headway.fidelity.outcome import Deviation, deviations

__all__ = [
    "OPERATOR_BOUNDS",
    "PLAUSIBLE",
    "Deviation",
    "EngineCheck",
    "EngineTrial",
    "GpuCheck",
    "OperatorCheck",
    "PolicyCheck",
    "check_engine",
    "check_gpu",
    "check_operators",
    "deviations",
]
