"""`/ui`: one page that shows the engine at work, and the events that feed it."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from headway.server.access import caller_of
from headway.server.feed import Feed


def ui_routes(feed: Feed) -> APIRouter:
    """The page and its feed. The page holds no data, so it is everybody's; the feed asks for what `/metrics` does."""
    router = APIRouter(tags=["status"], include_in_schema=False)
    page = resources.files("headway.server").joinpath("ui.html").read_text(encoding="utf-8")
    headers = {"content-security-policy": _policy(page), "cache-control": "no-cache", "referrer-policy": "no-referrer"}

    @router.get("/ui", response_model=None)
    async def show() -> HTMLResponse:
        """The page. It asks nobody but this server for anything."""
        return HTMLResponse(page, headers=headers)

    @router.get("/ui/feed", response_model=None)
    async def follow(request: Request) -> Response:
        """Server-sent events, each a whole picture but for the steps: those since the last one."""
        feed.require_room()
        return StreamingResponse(
            feed.events(caller_of(request.scope)),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    return router


def _policy(page: str) -> str:
    """What the browser may load: the page's own script, nothing from anywhere else."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
