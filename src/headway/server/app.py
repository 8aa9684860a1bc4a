"""The web application: routes, what surrounds them, and its answers to mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import headway
from headway.errors import HeadwayError
from headway.obs import EngineMetrics, TrafficLog
from headway.server.config import ServerConfig
from headway.server.faults import fault_of, report
from headway.server.middleware import ApiKeys, Envelope
from headway.server.port import ServedEngine
from headway.server.routes import all_routes
from headway.server.served import Served


def create_app(engine: ServedEngine, config: ServerConfig) -> FastAPI:
    """An ASGI application that serves `engine`. It neither starts nor closes the engine: see `serve`.

    Registers a listener for metrics, so make one application per engine.
    """
    served = Served(engine, config)
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
        middleware=_middleware(config),
        lifespan=lifespan,
    )
    app.add_exception_handler(HeadwayError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    for router in all_routes(served, metrics):
        app.include_router(router)
    return app


def _middleware(config: ServerConfig) -> list[Middleware]:
    around = [Middleware(Envelope, root_path=config.root_path, logs_access=config.access_log)]
    if config.allowed_origins:
        around.append(
            Middleware(
                CORSMiddleware,
                allow_origins=config.allowed_origins,
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["X-Request-Id", "Retry-After"],
            )
        )
    if config.api_keys:
        around.append(Middleware(ApiKeys, keys=config.api_keys, root_path=config.root_path))
    return around


async def _answer(_: Request, error: Exception) -> Response:
    fault = fault_of(error)
    report(error, fault)
    return fault.response()
