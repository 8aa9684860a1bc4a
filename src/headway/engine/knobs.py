"""The knobs that may be turned while serving, and whether a turn of several makes sense as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from headway.engine.admission import AdmissionLimits
from headway.engine.build import Engine
from headway.engine.config import EngineConfig
from headway.engine.core import EngineCore
from headway.engine.guardrails import GuardSettings
from headway.engine.limits import Limits, choose_policy
from headway.errors import BadSetting
from headway.sched import Policy, all_params

STEP_KNOBS = (
    "policy",
    "policy_settings",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "max_num_prefill_tokens",
    "itl_target_ms",
    "kv_cache_utilization_limit",
    "watermark",
)
ADMISSION_KNOBS = tuple(field.name for field in fields(AdmissionLimits))
COMPOSITE_KNOBS = ("policy_settings", "slo", "guardrail_actions")
GUARD_KNOBS = {"slo": "slo", "guardrail_actions": "actions", "guardrail_long_tokens": "long_tokens"}
MAX_SHOWN = 100
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a patch comes to; `policy` is None where scheduling stays as it is."""

    config: EngineConfig
    engine_limits: Limits
    limits: AdmissionLimits
    guards: GuardSettings
    policy: Policy | None

    def carry_out(self, core: EngineCore) -> None:
        """Schedule on under the new policy, where there is one.

        Raises `BadSetting`, and changes nothing, where a living request could never run under the new limits.
        """
        most = self.engine_limits.max_num_seqs
        for family in core.scheduler.queues.families.values():
            n = family.request.params.n
            if most is not None and n > most:
                raise BadSetting(f"max_num_seqs would be {most}, but a request with {n} choices is being served")
        if self.policy is not None:
            core.change_policy(self.policy, self.config.policy)


def shown(config: EngineConfig, limits: AdmissionLimits, guards: GuardSettings) -> dict[str, Any]:
    """All knobs and their values; `policy_params` repeats those of the policy in full."""
    settings: dict[str, Any] = {name: getattr(config, name) for name in STEP_KNOBS}
    settings["policy_settings"] = dict(config.policy_settings)
    settings |= asdict(limits)
    settings |= {knob: getattr(guards, name) for knob, name in GUARD_KNOBS.items()}
    settings |= {"slo": dict(guards.slo), "guardrail_actions": list(guards.actions)}
    params = all_params(config.policy, config.policy_settings, config.policy_defaults())
    return settings | {"policy_params": {name: _plain(value) for name, value in params.items()}}


def changed(patch: Mapping[str, Any], engine: Engine, limits: AdmissionLimits, guards: GuardSettings) -> Change:
    """Check a patch as a whole. Raises `BadSetting`; nothing is changed here.

    `policy_settings` is merged into what is set, a null takes an entry out; another `policy` starts from its defaults
    and what the patch sets.
    """
    known = (*STEP_KNOBS, *ADMISSION_KNOBS, *GUARD_KNOBS)
    if not patch:
        raise BadSetting(f"nothing to change; known: {', '.join(known)}")
    for name, value in patch.items():
        if name not in known:
            raise BadSetting(
                f"{name[:80]!r} is no setting that can be changed while serving; known: {', '.join(known)}"
            )
        if name not in COMPOSITE_KNOBS and len(repr(value)) > MAX_SHOWN:
            raise BadSetting(f"{name} is {repr(value)[:MAX_SHOWN]}...; it must be one number or name")
    step = {name: patch[name] for name in STEP_KNOBS if name in patch}
    config = _config(engine.config, step)
    policy = choose_policy(config) if step else None
    return Change(
        config=config,
        engine_limits=engine.limits if policy is None else _engine_limits(engine.limits, policy),
        limits=replace(limits, **{name: patch[name] for name in ADMISSION_KNOBS if name in patch}),
        guards=replace(guards, **_guards(patch)),
        policy=policy,
    )


def _config(config: EngineConfig, step: dict[str, Any]) -> EngineConfig:
    if not isinstance(step.get("policy", ""), str):
        raise BadSetting(f"policy is {step['policy']!r}; it must be a name")
    for name in ("itl_target_ms", "kv_cache_utilization_limit", "watermark"):
        value = step.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadSetting(f"{name} is {value!r}; it must be a number")
    given = step.get("policy_settings", {})
    if not isinstance(given, Mapping):
        raise BadSetting("policy_settings must be an object from parameter names to values")
    kept = {} if step.get("policy", config.policy) != config.policy else config.policy_settings
    merged = {**kept, **{name: _text(value) for name, value in given.items()}}
    settings = {name: text for name, text in merged.items() if given.get(name, text) is not None}
    return replace(config, **{**step, "policy_settings": settings})


def _engine_limits(limits: Limits, policy: Policy) -> Limits:
    bounds = policy.limits()
    if bounds.max_total is not None and bounds.max_total < limits.max_model_len:
        raise BadSetting(
            f"this policy could schedule at most {bounds.max_total} tokens of one sequence, but {limits.max_model_len} "
            "were promised to clients; raise max_num_batched_tokens or choose a policy that cuts prompts"
        )
    return replace(limits, max_num_seqs=bounds.max_seqs)


def _guards(patch: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: patch[knob] for knob, name in GUARD_KNOBS.items() if knob in patch}
    if not isinstance(found.get("slo", {}), Mapping):
        raise BadSetting('slo must be an object like {"ttft_p95_ms": 1500}')
    if "actions" in found:
        if not isinstance(found["actions"], list) or not all(isinstance(word, str) for word in found["actions"]):
            raise BadSetting("guardrail_actions must be a list of words")
        found["actions"] = tuple(found["actions"])
    most = found.get("long_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise BadSetting(f"guardrail_long_tokens is {most!r}; it must be a whole number from 1")
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)
