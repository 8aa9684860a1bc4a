"""`/health`, `/ready`, `/metrics`, `/version`, `/load`: answered from snapshots, never behind a step of the engine."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

import headway
from headway.obs import CONTENT_TYPE, EngineMetrics
from headway.server.faults import Fault, refusal
from headway.server.served import Served


def probe_routes(served: Served) -> APIRouter:
    """`/health` and `/ready`: for whatever restarts servers, and whatever sends them requests."""
    router = APIRouter(tags=["status"])
    engine = served.engine

    @router.head("/health", include_in_schema=False, response_model=None)
    @router.get("/health", response_model=None)
    async def health(request: Request) -> dict[str, str] | Response:
        """200 while the engine's loop lives, busy or not; else 503: restart it."""
        if engine.is_alive:
            return {"status": "alive"}
        fault = Fault(
            status=503,
            message="the engine has stopped, or a step of it hangs",
            kind="service_unavailable",
            code="engine_dead",
        )
        return fault.response(request.scope)

    @router.head("/ready", include_in_schema=False, response_model=None)
    @router.get("/ready", response_model=None)
    async def ready(request: Request) -> dict[str, str] | Response:
        """200 while new requests are welcome; 503 while loading, draining, hung or saturated."""
        if request.app.state.is_leaving or not engine.is_ready:
            return refusal("no new requests: loading, draining or hung", 5.0, code="not_ready").response(request.scope)
        num_waiting = engine.stats().num_waiting
        if 0 < served.config.saturation <= num_waiting:
            return refusal(f"saturated: {num_waiting} requests are waiting", 1.0, code="saturated").response(
                request.scope
            )
        return {"status": "ready"}

    return router


def figure_routes(served: Served, metrics: EngineMetrics) -> APIRouter:
    """`/metrics`, `/load` and `/version`."""
    router = APIRouter(tags=["status"])

    @router.get("/metrics", response_model=None)
    async def show_metrics() -> Response:
        """Prometheus' text format. Reading changes nothing."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The version of Headway."""
        return {"version": headway.__version__}

    @router.get("/load")
    async def load() -> dict[str, Any]:
        """Requests in the engine now, and how full its cache is."""
        stats = served.engine.stats()
        return {
            "server_load": stats.num_running + stats.num_waiting + stats.num_swapped,
            "num_running": stats.num_running,
            "num_waiting": stats.num_waiting,
            "num_swapped": stats.num_swapped,
            "kv_cache_usage": stats.kv_usage,
        }

    return router
