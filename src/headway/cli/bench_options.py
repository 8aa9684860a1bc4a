"""Flags that the sub-commands of `headway bench` have in common, and what is made of them."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.values import one_key
from headway.core import json_value
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.bench import CallMaker, HttpSettings, RunPlan
    from headway.engine import Engine
    from headway.models import Tokenizer
    from headway.workload import Encoder, PromptMaker, Workload

_SERVER, _CLIENT = "Server", "Client"

Url = Annotated[
    str, typer.Option(help="Where the server is.", rich_help_panel=_SERVER, show_default="http://127.0.0.1:8000")
]
Endpoint = Annotated[str, typer.Option(metavar="completions|chat", help="What to ask.", rich_help_panel=_SERVER)]
ServedModel = Annotated[
    str | None,
    typer.Option(
        "--model", help="Which model to ask.", show_default="the first that is listed", rich_help_panel=_SERVER
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        help="The server's key.", envvar="HEADWAY_API_KEY", show_default=False, metavar="KEY", rich_help_panel=_SERVER
    ),
]
TokenizerOf = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="MODEL",
        help="The server's tokenizer, from a .gguf file, a folder or a catalogue name: prompts of exact length.",
        show_default="none: lengths are near",
        rich_help_panel=_SERVER,
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        help="Send vLLM's ignore_eos and min_tokens: answers as long as asked for.",
        rich_help_panel=_SERVER,
    ),
]
SendPriority = Annotated[
    bool, typer.Option("--send-priority", help="Send vLLM's priority field.", rich_help_panel=_SERVER)
]
SendIds = Annotated[
    bool, typer.Option("--send-ids", help="Send prompts as token ids; needs --tokenizer.", rich_help_panel=_SERVER)
]
NoUsage = Annotated[
    bool,
    typer.Option(
        "--no-usage", help="Do not ask for the usage event, for servers that refuse it.", rich_help_panel=_SERVER
    ),
]
ExtraBody = Annotated[
    str | None,
    typer.Option(
        metavar="JSON", help="Fields to send with every request.", show_default=False, rich_help_panel=_SERVER
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME:VALUE",
        help="A header to send; repeatable.",
        show_default=False,
        rich_help_panel=_SERVER,
    ),
]

MaxConcurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Most requests in flight; others wait in the client, and that counts.",
        show_default="no bound",
        rich_help_panel=_CLIENT,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        help="Seconds after which an answer counts as failed.",
        show_default="none",
        rich_help_panel=_CLIENT,
    ),
]
WarmupS = Annotated[
    float,
    typer.Option(
        "--warmup-s",
        min=0.0,
        help="Leave what is sent in the first seconds out of the figures.",
        rich_help_panel=_CLIENT,
    ),
]
NumWarmups = Annotated[
    int, typer.Option(min=0, help="Requests before the run, which count for nothing.", rich_help_panel=_CLIENT)
]
SamePrompts = Annotated[
    bool,
    typer.Option(
        "--same-prompts",
        help="The same prompts in every run: a second one finds a warm cache.",
        rich_help_panel=_CLIENT,
    ),
]

LocalModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="A .gguf file, a Hugging Face folder, or a name in the catalogue.",
        show_default="SmolLM2-135M-Instruct, fetched once",
    ),
]
AnyModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Which model: the server's name for it, or, without --url, a file or name.",
        show_default="the first, or SmolLM2-135M-Instruct",
    ),
]
ExecutorName = Annotated[
    str | None, typer.Option("--executor", metavar="NAME", help="What runs the model.", show_default="native if built")
]


def run_plan(workload: Workload, given: Mapping[str, Any]) -> RunPlan:
    """The plan of a workload under the client's flags."""
    from headway.bench import RunPlan

    own = {name: given[name] for name in ("max_concurrency", "timeout_s", "warmup_s", "num_warmups") if name in given}
    return RunPlan.of(workload, label=given.get("label", "") or workload.name, **own)


def prompt_maker(workload: Workload, encoder: Encoder, given: Mapping[str, Any]) -> PromptMaker:
    """Prompts that no other run sends, unless the user wants them so."""
    from headway.workload import PromptMaker

    salt = 0 if given["same_prompts"] else secrets.randbits(32)
    texts = workload.texts
    if texts is None:
        return PromptMaker(encoder, salt=salt)
    return PromptMaker(encoder, salt=salt, texts=texts.read(), fit=texts.fit)


def server_calls(workload: Workload, tokenizer: Tokenizer | None, given: dict[str, Any]) -> CallMaker:
    """Prompts as text, or as ids where the user wants them and their tokenizer is known."""
    from headway.bench import IdCalls, TextCalls, WordEncoder

    prompts = prompt_maker(workload, tokenizer or WordEncoder(), given)
    if not given["send_ids"]:
        return TextCalls(prompts)
    if tokenizer is None or given["endpoint"] != "completions":
        raise BadSetting("--send-ids needs --tokenizer, and goes with --endpoint completions only")
    return IdCalls(prompts)


def open_tokenizer(name: str | None) -> Tokenizer | None:
    """The tokenizer of a model, without its weights."""
    if name is None:
        return None
    from headway.models import open_model

    return open_model(name).tokenizer


def counter(tokenizer: Tokenizer | None) -> Callable[[str], int] | None:
    """How many tokens a text has; None without a tokenizer."""
    return None if tokenizer is None else lambda text: len(tokenizer.encode_text(text))


def late_counter(model: str | None) -> Callable[[str], int]:
    """The same for a model whose tokenizer is opened only if somebody counts."""
    from headway.models import open_model

    opened = functools.cache(lambda: open_model(model).tokenizer)
    return lambda text: len(opened().encode_text(text))


def http_settings(given: Mapping[str, Any]) -> HttpSettings:
    """The server's flags. Raises `BadSetting`."""
    from headway.bench import HttpSettings

    headers = {}
    for text in given["header"] or ():
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise BadSetting(f"--header {text!r} is not of the form NAME:VALUE")
        headers[name.strip()] = _plain("--header", value.strip())
        _plain("--header", name)
    return HttpSettings(
        url=given["url"],
        model=given["model"] or "",
        endpoint=given["endpoint"],
        api_key=_plain("--api-key", one_key(given["api_key"])),
        fixed_length=given["ignore_eos"],
        priorities=given["send_priority"],
        reports_usage=not given["no_usage"],
        fields=_json_object("--extra-body", given["extra_body"]),
        headers=headers,
    )


def _plain(flag: str, text: str) -> str:
    """The text, if a header can carry it. The text itself may be a secret, so no message repeats it."""
    if not (text.isascii() and (text.isprintable() or not text)):
        raise BadSetting(f"{flag} has characters that no HTTP header carries; only printable ASCII is sent")
    return text


def _json_object(flag: str, text: str | None) -> dict[str, Any]:
    found = json_value(text or "{}", flag)
    if not isinstance(found, dict):
        raise BadSetting(f"{flag} is {text}; it must be a JSON object")
    return found


def settings_by_policy(given: Mapping[str, Any], policies: Sequence[str]) -> dict[str, dict[str, str]]:
    """`POLICY.KEY=VALUE` texts as `--set` settings of each policy.

    They are tried together with the engine's limits, as these set the parameters that mean the same. Raises
    `BadSetting`, before any model is loaded, for one that is unknown, or that does not go with the others.
    """
    from headway.cli.values import parse_settings
    from headway.engine import EngineConfig
    from headway.sched import make_policy

    chosen: dict[str, dict[str, str]] = {}
    for key, value in parse_settings(given["settings"] or ()).items():
        policy, dot, name = key.rpartition(".")
        if not dot or policy not in policies:
            raise BadSetting(f"--set {key}: write POLICY.KEY=VALUE, with one of {', '.join(policies)}")
        chosen.setdefault(policy, {})[name] = value
    limits = EngineConfig(**{name: given[name] for name in ("max_num_seqs", "max_num_batched_tokens")})
    for policy, settings in chosen.items():
        make_policy(policy, settings, limits.policy_defaults())
    return chosen


def build_local(given: Mapping[str, Any]) -> Engine:
    """An engine under the flags that are named like fields of `EngineConfig`. Raises `BadSetting`, `BadModelFile`."""
    from dataclasses import fields

    from headway.cli import summary
    from headway.cli.values import parse_settings
    from headway.engine import EngineConfig, build_engine

    chosen = {field.name: given[field.name] for field in fields(EngineConfig) if field.name in given}
    chosen["policy_settings"] = parse_settings(given.get("settings") or ()) if "policy" in given else {}
    chosen["executor"] = chosen.get("executor") or default_executor()
    chosen["seed"] = 0
    config = EngineConfig(**chosen)
    with summary.LoadingBar() as bar:
        return build_engine(config, bar.show)


def default_executor() -> str:
    """The compiled executor where it is built, else the reference."""
    from importlib.util import find_spec

    from headway.executor.registry import EXECUTORS

    return "native" if "native" in EXECUTORS and find_spec("headway._native") is not None else "reference"
