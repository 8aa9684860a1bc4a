"""What the numbers depend on: processor, cores, memory, kernel set. No names, no paths."""

from __future__ import annotations

from typing import Any

from headway.cli.collect_env import environment
from headway.executor.native_loader import physical_cores


def machine() -> dict[str, Any]:
    """Facts of this machine and of the compiled executor on it."""
    facts = environment()
    return {
        "cpu": facts["cpu"]["model"],
        "features": facts["cpu"]["features"],
        "cores": physical_cores(),
        "memory_bytes": facts["memory"]["total_bytes"],
        "kernels": facts["headway"]["kernels"]["native"],
        "version": facts["headway"]["version"],
    }
