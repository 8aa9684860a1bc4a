"""`headway serve`: load a model and answer over HTTP until told to stop."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli import flags
from headway.cli.guarding import with_guarding
from headway.cli.recording import Recording
from headway.cli.values import keys_for_clients, parse_origins, parse_settings
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.engine import EngineConfig, Guarding
    from headway.server import ServerConfig

_PANEL = "Server"
_LEVELS = ("debug", "info", "warning", "error")

Host = Annotated[str, typer.Option(help="Address to listen on; loopback unless set.", rich_help_panel=_PANEL)]
Port = Annotated[int, typer.Option(help="Port to listen on; 0: any free one.", rich_help_panel=_PANEL)]
ApiKeys = Annotated[
    list[str] | None,
    typer.Option(
        help="A key that clients must send; repeatable. In the variable, several have spaces between them.",
        show_default="none needed",
        envvar="HEADWAY_API_KEY",
        callback=keys_for_clients,
        metavar="KEY",
        rich_help_panel=_PANEL,
    ),
]
AdminKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--admin-api-key",
        help="A key for /admin; repeatable, as the other.",
        show_default="without any keys, programs on this machine need none",
        envvar="HEADWAY_ADMIN_API_KEY",
        callback=keys_for_clients,
        metavar="KEY",
        rich_help_panel=_PANEL,
    ),
]
Tenants = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A TOML file of tenants with their keys and limits; read again at SIGHUP.",
        show_default="everybody is one",
        rich_help_panel=_PANEL,
    ),
]
UsageStore = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database for usage per tenant and day: sqlite:///FILE, or any SQLAlchemy URL.",
        show_default="a file beside the tenants file",
        rich_help_panel=_PANEL,
    ),
]
MetricsAccess = Annotated[
    str | None,
    typer.Option(
        metavar="open|key|admin",
        help="Who may read /metrics and /ui.",
        show_default="open; admin with --tenants",
        rich_help_panel=_PANEL,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        help="Name of the model in the API; repeatable.", show_default="the model's own", rich_help_panel=_PANEL
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        help="Web origin that browsers may call from, or a JSON list; repeatable.",
        show_default="none",
        rich_help_panel=_PANEL,
    ),
]
RootPath = Annotated[
    str, typer.Option(help="Path prefix that a proxy strips.", show_default="none", rich_help_panel=_PANEL)
]
Shutdown = Annotated[
    float,
    typer.Option("--shutdown-timeout", help="Seconds that running requests get after SIGTERM.", rich_help_panel=_PANEL),
]
DrainDelay = Annotated[
    float,
    typer.Option(
        "--drain-delay",
        help="Seconds after SIGTERM in which requests are still taken, though /ready is 503: balancers are slow.",
        rich_help_panel=_PANEL,
    ),
]
KeepAlive = Annotated[
    float,
    typer.Option(
        "--sse-keep-alive-interval", help="Seconds between comments on an idle stream; 0: none.", rich_help_panel=_PANEL
    ),
]
LogLevel = Annotated[str, typer.Option(metavar="|".join(_LEVELS), help="What to log.", rich_help_panel=_PANEL)]
Record = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write each request's times and lengths there, no text: a workload for simulate and bench.",
        show_default="nothing is recorded",
        rich_help_panel=_PANEL,
    ),
]
RecordSize = Annotated[
    int,
    typer.Option(
        help="Most MB in FILE and as many in FILE.1, the part before it.", rich_help_panel=_PANEL, min=1, max=1 << 20
    ),
]
RecordSteps = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write each step's decisions there, no text, for `headway replay`; ends at --record-max-mb.",
        show_default="nothing is recorded",
        rich_help_panel=_PANEL,
    ),
]
Traces = Annotated[
    str | None,
    typer.Option(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="Send a trace of each request to this OTLP collector, as http://localhost:4318/v1/traces; extra otel.",
        show_default="no traces",
        rich_help_panel=_PANEL,
    ),
]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log every HTTP request.", rich_help_panel=_PANEL)]


@with_guarding
def serve(
    model: flags.Model = None,
    *,
    config: flags.ConfigFile = None,
    executor: flags.Executor = "native",
    weights: flags.Weights = None,
    kv_dtype: flags.KvDtype = None,
    kernels: flags.Kernels = None,
    threads: flags.Threads = None,
    seed: flags.Seed = None,
    max_model_len: flags.MaxModelLen = None,
    policy: flags.PolicyName = "headway",
    settings: flags.Settings = None,
    max_num_seqs: flags.MaxNumSeqs = 256,
    max_num_batched_tokens: flags.MaxNumBatchedTokens = 512,
    long_prefill_token_threshold: flags.LongPrefill = 0,
    max_num_prefill_tokens: flags.MaxNumPrefill = 0,
    itl_target_ms: flags.ItlTarget = 0.0,
    block_size: flags.BlockSize = 16,
    num_blocks: flags.NumBlocks = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    host_memory: flags.HostMemory = None,
    kv_cache_utilization_limit: flags.KvLimit = 1.0,
    watermark: flags.Watermark = 0.0,
    prefix_cache: flags.PrefixCache = "hashed",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: ApiKeys = None,
    admin_api_key: AdminKeys = None,
    tenants: Tenants = None,
    usage_store: UsageStore = None,
    metrics_access: MetricsAccess = None,
    served_model_name: Names = None,
    allowed_origins: Origins = None,
    root_path: RootPath = "",
    drain_delay_s: DrainDelay = 0.0,
    shutdown_timeout_s: Shutdown = 30.0,
    keep_alive_s: KeepAlive = 15.0,
    log_level: LogLevel = "info",
    access_log: AccessLog = False,
    record: Record = None,
    record_steps: RecordSteps = None,
    record_max_mb: RecordSize = 64,
    traces_endpoint: Traces = None,
    guarding: object,
) -> None:
    """Serve a model over an OpenAI-compatible HTTP API, with continuous batching."""
    _serve(locals())


def _serve(given: dict[str, Any]) -> None:
    _log_to_stderr(given["log_level"])
    engine, server = _configs(given)
    files = (given["record"], given["record_steps"], given["record_max_mb"])
    _run(engine, server, given["guarding"], Recording(*files, traces_endpoint=given["traces_endpoint"]))


def _run(engine: EngineConfig, server: ServerConfig, guarding: Guarding, recording: Recording) -> None:
    """Take the port, then load the model, then serve: a port that is taken costs nobody the wait."""
    from headway.cli import summary
    from headway.engine import AsyncLLM
    from headway.server import check_accounts
    from headway.server.serve import bind, hold_reloads
    from headway.server.serve import serve as serve_http

    hold_reloads(server)
    check_accounts(server)
    with bind(server) as listener, recording:
        with summary.LoadingBar() as bar:
            llm = AsyncLLM.from_config(engine, bar.show, guarding)
        recording.follow(llm)
        names = server.served_model_names or (llm.model_name,)
        serve_http(
            llm, server, listener=listener, on_ready=lambda url: summary.show(summary.rows(llm.engine, names, url))
        )


def _configs(given: dict[str, Any]) -> tuple[EngineConfig, ServerConfig]:
    """The flags as settings of both sides. Raises `BadSetting` before anything is loaded."""
    from headway.engine import EngineConfig
    from headway.server import ServerConfig

    server = {
        "api_keys": tuple(given["api_key"] or ()),
        "admin_keys": tuple(given["admin_api_key"] or ()),
        "served_model_names": tuple(given["served_model_name"] or ()),
        "allowed_origins": parse_origins(given["allowed_origins"] or ()),
    }
    engine = {"policy_settings": parse_settings(given["settings"] or ())}
    return EngineConfig(**_of(EngineConfig, given) | engine), ServerConfig(**_of(ServerConfig, given) | server)


def _of(config: type[EngineConfig | ServerConfig], given: dict[str, Any]) -> dict[str, Any]:
    """The flags that are named like fields of `config`."""
    return {field.name: given[field.name] for field in fields(config) if field.name in given}


def _log_to_stderr(level: str) -> None:
    import logging

    if level not in _LEVELS:
        raise BadSetting(f"--log-level is {level!r}; it must be one of {', '.join(_LEVELS)}")
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
