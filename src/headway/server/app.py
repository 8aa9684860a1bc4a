"""The web application: routes, what surrounds them, and its answers to mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import headway
from headway.errors import HeadwayError
from headway.obs import EngineMetrics, Refusals, TenantFigures, TrafficLog, Watch
from headway.server.accounts import Accounts
from headway.server.config import ServerConfig
from headway.server.faults import answer
from headway.server.middleware import surroundings
from headway.server.port import ServedEngine
from headway.server.routes import all_routes
from headway.server.served import Served


def create_app(engine: ServedEngine, config: ServerConfig, accounts: Accounts | None = None) -> FastAPI:
    """An ASGI application that serves `engine`. It neither starts nor closes the engine: see `serve`.

    Registers listeners, so make one application per engine. `accounts` are opened as the config says where none are
    given. Raises `BadSetting` for a tenants file or usage store that cannot be used.
    """
    accounts = accounts or Accounts.open(config, (config.served_model_names or (engine.model_name,))[0])
    served = Served(engine, config, accounts)
    metrics = EngineMetrics(served.model_names[0], engine.stats)
    metrics.include(TenantFigures(accounts.book.totals, accounts.house.num_running))
    metrics.include(Refusals(engine.stats, served.desk.refused.copy))
    watch = Watch(engine.stats, engine.stats().block_size)
    metrics.include(watch.work)
    engine.add_listener(metrics.on_events)
    engine.add_listener(watch.on_events)
    engine.add_listener(accounts.book.on_events)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        traffic = asyncio.create_task(TrafficLog(engine.stats).run(config.log_interval_s))
        accounts.start()
        yield
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)
        await asyncio.to_thread(accounts.close)

    app = FastAPI(
        title="Headway",
        version=headway.__version__,
        redirect_slashes=False,
        middleware=surroundings(config, accounts.house),
        lifespan=lifespan,
    )
    app.state.is_leaving = False
    app.add_exception_handler(HeadwayError, answer)
    app.add_exception_handler(HTTPException, answer)
    app.add_exception_handler(RequestValidationError, answer)
    for router in all_routes(served, metrics, watch):
        app.include_router(router)
    return app
