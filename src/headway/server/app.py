"""The web application: routes, what surrounds them, and its answers to mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import headway
from headway.errors import HeadwayError
from headway.obs import EngineMetrics, TrafficLog
from headway.server.config import ServerConfig
from headway.server.faults import fault_of, report
from headway.server.middleware import surroundings
from headway.server.port import ServedEngine
from headway.server.routes import all_routes
from headway.server.served import Served
from headway.tenancy import House


def create_app(engine: ServedEngine, config: ServerConfig, house: House | None = None) -> FastAPI:
    """An ASGI application that serves `engine`. It neither starts nor closes the engine: see `serve`.

    Registers listeners, so make one application per engine. `house` is who may come in; without one it is opened from
    the config's tenants file. Raises `BadSetting` for a file that cannot be used.
    """
    house = house or House.open(config.tenants)
    served = Served(engine, config, house)
    metrics = EngineMetrics(served.model_names[0], engine.stats)
    engine.add_listener(metrics.on_events)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        traffic = asyncio.create_task(TrafficLog(engine.stats).run(config.log_interval_s))
        yield
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)

    app = FastAPI(
        title="Headway",
        version=headway.__version__,
        redirect_slashes=False,
        middleware=surroundings(config, house),
        lifespan=lifespan,
    )
    app.add_exception_handler(HeadwayError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    for router in all_routes(served, metrics):
        app.include_router(router)
    return app


async def _answer(_: Request, error: Exception) -> Response:
    fault = fault_of(error)
    report(error, fault)
    return fault.response()
