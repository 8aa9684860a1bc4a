"""Scheduling: what runs in the next step, decided by a policy and carried out by the scheduler.

Must not know: executors, clocks, threads; standard library only.
Start reading at `scheduler`, then `policies/vllm`.
"""

from headway.sched.asking import never_released, units_of
from headway.sched.policy import Axes, PlanLimits, Policy, Wrapper
from headway.sched.registry import (
    POLICIES,
    all_params,
    choices_of,
    make_policy,
    parameters,
    policy_class,
    policy_params,
)
from headway.sched.scheduler import Scheduler, StopRule
from headway.sched.view import View

__all__ = [
    "POLICIES",
    "Axes",
    "PlanLimits",
    "Policy",
    "Scheduler",
    "StopRule",
    "View",
    "Wrapper",
    "all_params",
    "choices_of",
    "make_policy",
    "never_released",
    "parameters",
    "policy_class",
    "policy_params",
    "units_of",
]
