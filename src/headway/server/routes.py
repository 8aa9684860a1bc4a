"""All routes of the server."""

from __future__ import annotations

from fastapi import APIRouter

from headway.obs import EngineMetrics, Spent, Watch
from headway.server.feed import Feed
from headway.server.routes_admin import admin_routes, request_routes, step_routes
from headway.server.routes_chat import chat_routes
from headway.server.routes_completions import completion_routes
from headway.server.routes_models import model_routes, token_routes
from headway.server.routes_status import figure_routes, probe_routes
from headway.server.routes_tenants import tenant_routes
from headway.server.routes_ui import ui_routes
from headway.server.served import Served


def all_routes(served: Served, metrics: EngineMetrics, watch: Watch) -> list[APIRouter]:
    """Routers bound to one engine, in the order in which `/docs` shows them."""
    feed = Feed(served, watch)
    metrics.include(Spent(lambda: feed.spent_s))
    return [
        chat_routes(served),
        completion_routes(served),
        model_routes(served),
        token_routes(served),
        probe_routes(served),
        figure_routes(served, metrics),
        tenant_routes(served.accounts),
        admin_routes(served),
        request_routes(served),
        step_routes(served),
        ui_routes(feed),
    ]
