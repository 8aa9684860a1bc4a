"""Who of several replicas serves a request."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headway.core import Request
from headway.errors import BadSetting
from headway.sim.replica import Replica


class Router(Protocol):
    """Chooses when a request arrives; it sees every replica as it is at that moment."""

    def choose(self, request: Request, replicas: Sequence[Replica]) -> Replica:
        """One of `replicas`."""
        ...


class RoundRobin:
    """Each in turn."""

    def __init__(self) -> None:
        self._num_chosen = 0

    def choose(self, request: Request, replicas: Sequence[Replica]) -> Replica:
        """The next one."""
        del request
        self._num_chosen += 1
        return replicas[(self._num_chosen - 1) % len(replicas)]


class LeastLoaded:
    """The replica with the fewest requests, the first of equals."""

    def choose(self, request: Request, replicas: Sequence[Replica]) -> Replica:
        """The emptiest one."""
        del request
        return min(replicas, key=_load)


class PrefixAware:
    """The replica that holds most of the prompt, unless it is overloaded (the rule of SGLang's router).

    Loads are out of balance when the fullest has `spread` requests more than the emptiest and 1.5 times as many: then,
    and where nobody holds anything, the emptiest is chosen.
    """

    def __init__(self, spread: int = 16) -> None:
        self._spread = spread

    def choose(self, request: Request, replicas: Sequence[Replica]) -> Replica:
        """The best trade between cache and queue."""
        loads = [replica.num_requests for replica in replicas]
        if max(loads) - min(loads) > self._spread and max(loads) > 1.5 * min(loads):
            return min(replicas, key=_load)
        return max(replicas, key=lambda replica: (replica.num_hit(request), -_load(replica)))


class TenantAware:
    """Each tenant at home on one replica, so that neighbours share its cache and not its queue.

    Where the home has `spread` requests more than the emptiest replica, the emptiest helps out.
    """

    def __init__(self, spread: int = 16) -> None:
        self._spread = spread

    def choose(self, request: Request, replicas: Sequence[Replica]) -> Replica:
        """The tenant's home, or help."""
        home = replicas[zlib.crc32(request.tenant.encode()) % len(replicas)]
        emptiest = min(replicas, key=_load)
        return emptiest if _load(home) - _load(emptiest) > self._spread else home


ROUTERS: Mapping[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
    "tenant-aware": TenantAware,
}


def make_router(name: str) -> Router:
    """A new router by name. Raises `BadSetting` naming the known ones."""
    if name not in ROUTERS:
        raise BadSetting(f"no router {name!r}; known: {', '.join(ROUTERS)}")
    return ROUTERS[name]()


def _load(replica: Replica) -> int:
    return replica.num_requests
