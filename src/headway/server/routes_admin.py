"""`/admin`: what an operator turns while the server runs. That the caller is an admin was seen at the door."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from headway.engine import Control
from headway.errors import BadSetting, InvalidRequest, Overloaded
from headway.server.access import caller_of
from headway.server.body import read_json
from headway.server.served import Served

logger = logging.getLogger(__name__)

MOST_STEPS = 1000


def admin_routes(served: Served) -> APIRouter:
    """Settings, draining, the cache."""
    router = APIRouter(tags=["admin"])
    engine = served.engine

    @router.get("/admin/config")
    async def show_settings() -> dict[str, Any]:
        """Every setting that can be changed while serving."""
        return engine.control.settings()

    @router.patch("/admin/config")
    async def change_settings(request: Request) -> dict[str, Any]:
        """Change several settings at once, between two steps: all of them, or none and a 400 that says why."""
        patch = await _body(request, served.config.max_body_bytes)
        try:
            return await _living(served).change(patch, _who(request))
        except BadSetting as error:
            raise InvalidRequest(str(error)) from None

    @router.post("/admin/drain")
    async def drain(request: Request) -> dict[str, Any]:
        """Take no new requests, of `tenant` or of anybody; what runs goes on. `/admin/resume` undoes it."""
        tenant = await _tenant_in(request, served)
        engine.control.drain(_who(request), tenant)
        return {"draining": "everybody" if tenant is None else tenant, "num_open": served.desk.num_open}

    @router.post("/admin/resume")
    async def resume(request: Request) -> dict[str, Any]:
        """Take new requests again."""
        tenant = await _tenant_in(request, served)
        engine.control.resume(_who(request), tenant)
        return {"resumed": "everybody" if tenant is None else tenant}

    @router.post("/admin/cache/reset")
    async def reset_cache(request: Request) -> dict[str, int]:
        """Forget every cached prefix that no request uses now."""
        return {"num_blocks": await _living(served).reset_cache(_who(request))}

    return router


def request_routes(served: Served) -> APIRouter:
    """Single requests: what happened to them, and their end."""
    router = APIRouter(tags=["admin"])
    engine = served.engine

    @router.get("/admin/requests/{name:path}")
    async def explain(name: str) -> dict[str, Any]:
        """What happened to a living or recent request, and what it waited for. `name`: its `X-Request-Id` or `id`."""
        stories = engine.control.decisions.find(name)
        if not stories:
            raise HTTPException(404, "no living or recent request has this id")
        return {"requests": stories}

    @router.post("/admin/requests/{name:path}/abort")
    async def abort(name: str, request: Request) -> dict[str, Any]:
        """End every living request of this name; its client gets what there is, with finish reason `abort`."""
        ids = engine.control.abort(name, _who(request))
        if not ids:
            raise HTTPException(404, "no living request has this id")
        return {"aborted": ids}

    return router


def step_routes(served: Served) -> APIRouter:
    """The decisions themselves."""
    router = APIRouter(tags=["admin"])

    @router.get("/admin/steps")
    async def steps(last: int = 100) -> dict[str, Any]:
        """The last steps: tokens by sequence, who came in, who was preempted, what kept those who wait."""
        notes = served.engine.control.decisions.last_steps(max(1, min(last, MOST_STEPS)))
        return {
            "steps": [
                {
                    "step": note.step,
                    "start_s": note.start_s,
                    "end_s": note.end_s,
                    "grants": dict(zip(note.seq_ids, note.num_tokens, strict=True)),
                    "admitted": note.admitted,
                    "preempted": note.preempted,
                    "limit": note.limit,
                    "held": note.held,
                }
                for note in notes
            ]
        }

    return router


def _living(served: Served) -> Control:
    """The controls. Raises where nothing would come of a change: it waits for the step under way, and that for ever."""
    if not served.engine.is_alive:
        raise Overloaded("the engine has stopped, or a step of it hangs; nothing was changed", retry_after_s=5.0)
    return served.engine.control


async def _tenant_in(request: Request, served: Served) -> str | None:
    """The tenant that a body names, if there is a body and it does."""
    body = await _body(request, served.config.max_body_bytes)
    name = body.get("tenant")
    if name is not None and (not isinstance(name, str) or name not in served.accounts.house.tenants):
        raise InvalidRequest(f"there is no tenant {str(name)[:80]!r}", param="tenant")
    return name


async def _body(request: Request, limit: int) -> dict[str, Any]:
    is_empty = request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers
    return {} if is_empty else await read_json(request, limit)


def _who(request: Request) -> str:
    """Whoever turns a knob, for the log: no key, but the tenant it belongs to and where it came from."""
    name = caller_of(request.scope).tenant.name or "the admin"
    return f"{name} at {request.client.host}" if request.client else name
