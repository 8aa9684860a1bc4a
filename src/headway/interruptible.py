"""Asynchronous work of a command that SIGTERM ends as Ctrl-C does: what was measured until then is still told."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, whose first interruption cancels `work`. Raises `KeyboardInterrupt` where that ends it.

    A shell lets what a script starts in its background ignore SIGINT. There `asyncio` hears no interruption, so that
    SIGTERM has to cancel by itself; SIGINT stays ignored.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return asyncio.run(work)
    try:
        return asyncio.run(_until_terminated(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine of `asyncio.run` is a task"
    before = signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(task.cancel))
    try:
        return await work
    finally:
        signal.signal(signal.SIGTERM, before)
