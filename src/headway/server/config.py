"""What an operator can set about the HTTP side, and nothing about the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from headway.errors import BadSetting

METRICS_ACCESS = ("open", "key", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of one server. Raises `BadSetting` naming the flag when one is out of range.

    `served_model_names` empty means the engine's own name. Seconds: `keep_alive_s` between SSE comments on an idle
    stream (0: none), `stall_timeout_s` until a client that reads nothing is given up, `drain_delay_s` in which
    requests are still taken after a signal, though `/ready` is 503 already, then `shutdown_timeout_s` for running
    ones to end, `log_interval_s` between lines about traffic (0: none). `/ready` turns 503 when
    `saturation` requests wait (0: never). `tenants` is a file that names who may come in; then `/metrics` shows what
    each of them does, and `metrics_access` is `admin` unless set: `open`, `key` (any) or `admin`.
    `usage_store` is the URL of a database for what they use; None: a file beside the tenants file.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    tenants: Path | None = None
    metrics_access: str | None = None
    usage_store: str | None = None
    served_model_names: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    root_path: str = ""
    access_log: bool = False
    max_body_bytes: int = 32 * 2**20
    saturation: int = 256
    keep_alive_s: float = 15.0
    stall_timeout_s: float = 120.0
    drain_delay_s: float = 0.0
    shutdown_timeout_s: float = 30.0
    log_interval_s: float = 10.0

    def __post_init__(self) -> None:
        """Check every bound."""
        if not 0 <= self.port <= 65535:
            raise BadSetting(f"--port is {self.port}; it must be between 0 (any free port) and 65535")
        if self.max_body_bytes < 1024:
            raise BadSetting(f"the largest body is set to {self.max_body_bytes} bytes; it must be at least 1024")
        if self.saturation < 0:
            raise BadSetting(f"saturation is {self.saturation} requests; it must be 0 (never) or more")
        self._check_access()
        if any(not name for name in self.served_model_names):
            raise BadSetting("a --served-model-name is empty; leave the flag out to use the model's own name")
        if self.root_path and not self.root_path.startswith("/"):
            raise BadSetting(f"--root-path is {self.root_path!r}; it must begin with a slash")
        for name in ("keep_alive_s", "stall_timeout_s", "drain_delay_s", "shutdown_timeout_s", "log_interval_s"):
            seconds = getattr(self, name)
            if not math.isfinite(seconds) or seconds < 0:
                raise BadSetting(f"{name} is {seconds}; it must be a finite number of seconds, 0 or more")

    def _check_access(self) -> None:
        if any(not key.strip() for key in self.api_keys):
            raise BadSetting("an --api-key is empty; leave the flag out to serve without keys")
        if any(not key.strip() for key in self.admin_keys):
            raise BadSetting("an --admin-api-key is empty; leave the flag out to manage from loopback only")
        for flag, keys in (("--api-key", self.api_keys), ("--admin-api-key", self.admin_keys)):
            if any(letter.isspace() or letter == "," for letter in "".join(keys)):
                raise BadSetting(
                    f"an {flag} has a space or a comma; several keys are several {flag}, "
                    "or words with spaces between them in the environment variable"
                )
        if self.api_keys and self.tenants is not None:
            raise BadSetting(
                "--api-key (or HEADWAY_API_KEY) and --tenants both say who may come in; keep the keys in that file"
            )
        if self.metrics_access not in (None, *METRICS_ACCESS):
            raise BadSetting(
                f"--metrics-access is {self.metrics_access!r}; it must be one of {', '.join(METRICS_ACCESS)}"
            )
