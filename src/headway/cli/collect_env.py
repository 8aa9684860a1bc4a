"""`headway collect-env`: what a bug report needs. Nothing of the user's own: no environment, no names, no paths."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from headway import __version__
from headway.cli.flags import Json
from headway.cli.output import print_json

_FEATURES = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)


def collect_env(*, as_json: Json = False) -> None:
    """Show versions, CPU features, kernel set and memory: what a bug report needs."""
    found = environment()
    if as_json:
        print_json(found)
        return
    for title, facts in found.items():
        print(f"{title}:")
        for name, value in facts.items():
            print(f"  {name:<20} {_in_words(value)}")


def _in_words(value: object) -> str:
    match value:
        case list():
            return " ".join(value)
        case dict():
            return ", ".join(f"{name}: {what}" for name, what in value.items())
        case None:
            return "unknown"
        case _:
            return str(value)


def environment() -> dict[str, dict[str, Any]]:
    """Facts by topic; None where this system does not tell."""
    return {
        "headway": {"version": __version__, **_executors()},
        "system": {
            "platform": platform.platform(),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "libc": " ".join(platform.libc_ver()).strip() or None,
        },
        "cpu": _cpu(),
        "memory": {**_memory(), "cgroup_limit_bytes": _cgroup_limit()},
        "libraries": {name: _version(name) for name in _libraries()},
    }


def _executors() -> dict[str, Any]:
    from headway.errors import BadSetting
    from headway.executor.registry import EXECUTORS, ExecutorOptions, make_loader

    kernels = {}
    for name in EXECUTORS:
        try:
            kernels[name] = make_loader(name, ExecutorOptions()).kernels
        except BadSetting as error:
            kernels[name] = str(error)
    return {"executors": list(EXECUTORS), "kernels": kernels}


def _libraries() -> list[str]:
    """Names of what headway depends on, without extras."""
    wanted = metadata.requires("headway") if _version("headway") else None
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in wanted or () if "extra ==" not in line]
    return sorted(names, key=str.lower)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, Any]:
    text = _read("/proc/cpuinfo")
    fields: dict[str, str] = dict(re.findall(r"^([^\t:\n]+?)\s*:[ \t]*(.*)$", text, re.MULTILINE))
    flags = fields.get("flags", fields.get("Features", "")).split()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": fields.get("model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "logical_cpus": os.cpu_count(),
        "usable_cpus": usable,
        "features": [flag for flag in _FEATURES if flag in flags],
    }


def _memory() -> dict[str, int | None]:
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE))
    found = {"total_bytes": sizes.get("MemTotal"), "available_bytes": sizes.get("MemAvailable")}
    return {name: int(size) * 1024 if size else None for name, size in found.items()}


def _cgroup_limit() -> int | None:
    """The memory limit of this process's container, where there is one (cgroup v2, then v1)."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if (text := _read(path).strip()).isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _read(path: str) -> str:
    """A small system file's text, empty where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
