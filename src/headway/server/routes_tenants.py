"""`/admin/tenants`: who may use this server and what they use, and reading the file again."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from headway.errors import BadSetting, InvalidRequest
from headway.server.accounts import Accounts
from headway.tenancy import House, Tenant, Usage

logger = logging.getLogger(__name__)


def tenant_routes(accounts: Accounts) -> APIRouter:
    """The routes, bound to their tenants. That the caller is an admin was seen at the door."""
    router = APIRouter(tags=["admin"])
    house = accounts.house

    @router.get("/admin/tenants")
    async def list_tenants() -> dict[str, Any]:
        """Every tenant with its limits, what it runs and what it used since the start. No keys, only their ids."""
        running, totals = house.num_running(), accounts.book.totals()
        return {
            "tenants": [
                _card(tenant, running.get(name, 0), totals.get(name, Usage())) for name, tenant in house.tenants.items()
            ]
        }

    @router.post("/admin/tenants/reload")
    async def reload() -> dict[str, Any]:
        """Read the tenants file again. A file with a mistake changes nothing and is a 400 that says where."""
        try:
            roster = house.reload()
        except BadSetting as error:
            raise InvalidRequest(str(error)) from None
        logger.info("the tenants file was read again: %d tenants", len(roster.tenants))
        return {"tenants": list(roster.tenants)}

    return router


def reload_tenants(house: House) -> None:
    """Read the tenants file again, as a signal asks for it; a file with a mistake changes nothing and is logged."""
    try:
        roster = house.reload()
    except BadSetting as error:
        logger.error("the tenants file was not taken over; the last good one holds: %s", error)  # noqa: TRY400 - the user's mistake, said in full
    else:
        logger.info("the tenants file was read again: %d tenants", len(roster.tenants))


def _card(tenant: Tenant, num_running: int, used: Usage) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "weight": tenant.weight,
        "class": tenant.service_class.value,
        "admin": tenant.is_admin,
        "priority_tier": tenant.may_ask_priority,
        "models": None if tenant.models is None else sorted(tenant.models),
        "cache_group": tenant.cache_group,
        "limits": asdict(tenant.limits),
        "per_class": {name.value: asdict(limits) for name, limits in tenant.class_limits.items()},
        "per_model": {name: asdict(limits) for name, limits in tenant.model_limits.items()},
        "kv": asdict(tenant.kv),
        "key_ids": [key.id for key in tenant.keys],
        "num_running": num_running,
        "used": asdict(used),
    }
