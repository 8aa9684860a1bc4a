"""A server process around the scripted engine, for tests that send it signals.

Prints its URL when it listens, and at its end which of the engine's methods were called. `FAKE_ANSWER` is what it
says, `FAKE_PERMITS` how many tokens flow by themselves, `FAKE_TENANTS` a tenants file, `FAKE_LAST_WORDS_S` how long
answers may be written at the end.
"""

import asyncio
import importlib
import logging
import os
import signal
import sys
from pathlib import Path

from headway.errors import BadSetting
from headway.server import ServerConfig
from tests.support.fake_engine import FakeEngine


class PatientEngine(FakeEngine):
    """Waits for its streams, as the real one does; SIGUSR1 lets all tokens through."""

    def start(self):
        super().start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.allow, None)

    async def drained(self, timeout_s):
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self.streams and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - a fake of a loop that looks
            await asyncio.sleep(0.01)
        return not self.streams


def main():
    serving = importlib.import_module("headway.server.serve")  # the package's face has a function of that name
    logging.basicConfig(level="WARNING")
    engine = PatientEngine(os.environ.get("FAKE_ANSWER", "Hello, world"))
    permits = os.environ.get("FAKE_PERMITS")
    engine.permits = int(permits) if permits else None
    tenants = os.environ.get("FAKE_TENANTS")
    serving._LAST_WORDS_S = float(os.environ.get("FAKE_LAST_WORDS_S", serving._LAST_WORDS_S))
    config = ServerConfig(
        port=int(sys.argv[1]),
        shutdown_timeout_s=float(sys.argv[2]),
        keep_alive_s=0.05,
        tenants=Path(tenants) if tenants else None,
    )
    try:
        serving.serve(engine, config, on_ready=lambda url: print(url, flush=True))
    except BadSetting as error:
        print(error, file=sys.stderr)
        return 2
    print(*engine.calls, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
