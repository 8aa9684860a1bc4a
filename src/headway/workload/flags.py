"""A workload's options as flags: each is a field of the specification under a shorter name, and wins over a file's."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.errors import BadSetting
from headway.workload.laws import expand, parse_word
from headway.workload.origin import Path


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag's field, and what it says in a `--help`."""

    path: Path
    help: str


FLAGS: Mapping[str, Flag] = {
    "arrivals": Flag(("arrivals",), "when requests come: poisson:rate=2, gamma:rate=2,cv=3, closed:users=8, ..."),
    "rate": Flag(
        ("arrivals", "rate"), "requests per second (Poisson unless --arrivals says otherwise); inf: all at once"
    ),
    "cv": Flag(("arrivals", "cv"), "coefficient of variation of the gaps (gamma unless --arrivals says otherwise)"),
    "burstiness": Flag(("arrivals", "cv"), "the same as vLLM writes it: 1/cv²"),
    "users": Flag(("arrivals", "users"), "closed loop: this many users, each with one request in flight"),
    "think_s": Flag(("arrivals", "think_s"), "closed loop: pause before a user's next request, seconds or a law"),
    "ramp_s": Flag(("arrivals", "ramp_s"), "closed loop: spread the users' starts over this many seconds"),
    "num_requests": Flag(("num_requests",), "stop after this many requests"),
    "duration_s": Flag(("duration_s",), "send nothing after this many seconds"),
    "seed": Flag(("seed",), "seed of every random stream"),
    "prompt_len": Flag(("lengths", "prompt"), "prompt tokens: a number or a law, lognormal:mean=500,cv=1"),
    "output_len": Flag(("lengths", "output"), "output tokens: a number or a law"),
    "max_output": Flag(("lengths", "max_output"), "the max_tokens that clients ask for, if above the output's length"),
    "lengths_trace": Flag(("lengths", "trace"), "draw prompt and output lengths together from this file"),
    "trace": Flag(("trace", "file"), "replay this trace"),
    "time_scale": Flag(("trace", "time_scale"), "replay with times this much longer (0.5: twice as fast)"),
    "prompt_scale": Flag(("trace", "prompt_scale"), "replay with prompts this much longer"),
    "output_scale": Flag(("trace", "output_scale"), "replay with outputs this much longer"),
    "prompts_file": Flag(("prompts", "file"), "take prompts from this file (.jsonl, ShareGPT's .json, or one a line)"),
    "prompts_fit": Flag(
        ("prompts", "fit"), "exact: cut or continue them to the length; whole: as they are, answers by --output-len"
    ),
    "system_prompts": Flag(("prompts", "system", "count"), "number of different system prompts"),
    "system_tokens": Flag(("prompts", "system", "tokens"), "their lengths: a number or a law"),
    "system_zipf": Flag(("prompts", "system", "zipf"), "exponent of their popularity"),
    "turns": Flag(("sessions", "turns"), "turns per session, each resending the history: a number or a law"),
    "turn_think_s": Flag(("sessions", "think_s"), "pause between turns, seconds or a law"),
    "sessions_trace": Flag(("sessions", "trace"), "draw whole conversations from this file"),
    "tool_tokens": Flag(("sessions", "tools", "tokens"), "agents: tokens of tool output inserted between turns"),
    "tool_share": Flag(("sessions", "tools", "share"), "agents: share of the turns that begin with a tool's output"),
    "cancel_share": Flag(("behaviour", "cancel_share"), "share of clients that give up"),
    "cancel_after_tokens": Flag(("behaviour", "cancel_after_tokens"), "after so many tokens: a number or a law"),
    "cancel_after_s": Flag(("behaviour", "cancel_after_s"), "or after so many seconds: a number or a law"),
    "slow_share": Flag(("behaviour", "slow_share"), "share of clients that read slowly"),
    "slow_tokens_s": Flag(("behaviour", "slow_tokens_s"), "how slowly, in tokens per second"),
    "retries": Flag(("behaviour", "retries"), "tries after a refusal, honouring Retry-After"),
    "backoff_s": Flag(("behaviour", "backoff_s"), "first pause before a retry without Retry-After; doubles"),
    "goodput": Flag(("slo",), "limits in milliseconds as vLLM writes them: ttft:500 tpot:50 e2el:10000"),
    "tenant": Flag(("tenants",), "name=a,share=0.7,weight=1,...; may be repeated"),
    "traffic_class": Flag(("classes",), "name=chat,share=0.7,priority=0,...; may be repeated"),
}

_SLO_NAMES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2el": "e2e_ms", "e2e": "e2e_ms"}


def apply_flags(
    content: Mapping[str, object], flags: Mapping[str, object]
) -> tuple[dict[str, object], dict[Path, str]]:
    """`content` with the flags that are not None written over it, and which flag each field came from.

    Raises `BadSetting` for a flag of the wrong form; what its value may be, the specification's reader checks.
    """
    merged = copy.deepcopy(dict(content))
    origins: dict[Path, str] = {}
    for name, given in flags.items():
        if given in (None, (), []):
            continue
        spelled = f"--{name.replace('_', '-')}"
        value = _value(name, given, spelled)
        path = FLAGS[name].path
        origins[path] = spelled
        _put(merged, path, value, spelled)
    _imply(merged, flags)
    return merged, origins


def _value(name: str, given: object, spelled: str) -> object:
    match name:
        case "goodput":
            return _slo(_texts(given), spelled)
        case "tenant" | "traffic_class":
            return [_entry(text, spelled) for text in _texts(given)]
        case "burstiness":
            value = parse_word(given) if isinstance(given, str) else given
            if not isinstance(value, int | float) or value <= 0:
                raise BadSetting(f"{spelled} is {given!r}; it must be a number above 0")
            return float(value) ** -0.5
        case _:
            return parse_word(given) if isinstance(given, str) else given


def _put(content: dict[str, object], path: Path, value: object, spelled: str) -> None:
    """Write a field, making the tables on its way; a law written as a text becomes a table first."""
    for part in path[:-1]:
        below = content.setdefault(str(part), {})
        if isinstance(below, str):
            below = dict(expand(below, "process" if part == "arrivals" else "law") or {})
        if not isinstance(below, dict):
            raise BadSetting(f"{spelled} is about {part}, which is {below!r}, not a table")
        content[str(part)] = below
        content = below
    content[str(path[-1])] = value


def _imply(content: dict[str, object], flags: Mapping[str, object]) -> None:
    """`--rate 5` means Poisson, with `--cv` gamma; `--users 8` a closed loop; a rate of inf everything at once."""
    arrivals = content.get("arrivals")
    if not isinstance(arrivals, dict):
        return
    if arrivals.get("rate") in ("inf", float("inf")):
        content["arrivals"] = {"process": "at_once"}
    elif flags.get("users") is not None and arrivals.get("process") != "closed":
        content["arrivals"] = {"process": "closed"} | {
            key: arrivals[key] for key in ("users", "think_s", "ramp_s") if key in arrivals
        }
    elif "cv" in arrivals and arrivals.get("process", "poisson") == "poisson":
        arrivals["process"] = "gamma"
    else:
        arrivals.setdefault("process", "poisson")


def _texts(given: object) -> Sequence[str]:
    if isinstance(given, str):
        return given.split()
    return [str(part) for part in given] if isinstance(given, Sequence) else [str(given)]


def _slo(pairs: Sequence[str], spelled: str) -> dict[str, object]:
    limits: dict[str, object] = {}
    for pair in pairs:
        name, colon, number = pair.partition(":")
        if not colon or name not in _SLO_NAMES:
            raise BadSetting(f"{spelled} {pair!r} must be written like ttft:500; names: {', '.join(_SLO_NAMES)}")
        limits[_SLO_NAMES[name]] = parse_word(number)
    return limits


def _entry(text: str, spelled: str) -> dict[str, object]:
    """`name=a,share=0.7,slo.ttft_ms=500` as a table; a comma inside a law is written as a semicolon."""
    entry: dict[str, object] = {}
    for part in text.split(","):
        key, equals, word = part.partition("=")
        if not equals:
            raise BadSetting(f"{spelled} {text!r}: {part!r} is not of the form field=value")
        _put(entry, tuple(key.strip().split(".")), parse_word(word.strip().replace(";", ",")), spelled)
    return entry
