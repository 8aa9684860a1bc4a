"""An event loop whose time is virtual: sleeping costs nothing, and every moment is exact."""

import asyncio
import selectors


class _Skipping(selectors.DefaultSelector):
    """Looks without waiting, and moves the loop's time instead."""

    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        if ready := super().select(0):
            return ready
        assert timeout is not None, "everything waits, and nothing will ever happen"
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """For coroutines that wait for nothing but time and each other. It is a clock, too."""

    def __init__(self):
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self):
        return self._skipping.now_s

    now = time

    def spend(self, seconds):
        """Compute for so long: nothing else happens meanwhile."""
        self._skipping.now_s += seconds


def run_virtual(make):
    """The result of `make(clock)`, a coroutine, on a virtual loop."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(make(loop))
    finally:
        loop.close()
