"""`headway tenants`: keys and checks for the file that names who may use a server."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.flags import Json
from headway.cli.nested import Face
from headway.cli.output import notices, print_json, results

if TYPE_CHECKING:
    from headway.tenancy import Tenant

File = Annotated[Path, typer.Argument(metavar="FILE", help="The tenants file, as for `headway serve --tenants`.")]


def tenants_app() -> typer.Typer:
    """The commands."""
    help_ = "Who may use a server: keys, limits, shares."
    app = typer.Typer(name="tenants", cls=Face, help=help_, no_args_is_help=True)
    app.command("add-key")(add_key)
    app.command("list")(list_tenants)
    app.command("check")(check)
    return app


def add_key(
    file: File,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose key; a new name becomes a tenant.")],
    *,
    key_id: Annotated[
        str | None,
        typer.Option("--id", help="A name for the key, for logs and lists.", show_default="TENANT-1, -2 ..."),
    ] = None,
    expires: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Day (UTC) from which it opens nothing.", show_default="never"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw a key, keep its hash in the file, and print it: this once, since it is kept nowhere."""
    from headway.tenancy import add_key as append

    used_id, key = append(file, tenant, key_id, None if expires is None else expires.date())
    if as_json:
        print_json({"tenant": tenant, "id": used_id, "key": key})
        return
    print(key)
    notices().print(
        f"key {used_id} of {tenant}; it cannot be shown again. A running server takes it over at SIGHUP or "
        "POST /admin/tenants/reload.",
        markup=False,
    )


def list_tenants(file: File, *, as_json: Json = False) -> None:
    """Show the tenants of a file with what they may use. Keys are not in it; their ids are."""
    from headway.tenancy import Roster

    cards = [_card(tenant) for tenant in Roster.read(file).tenants.values()]
    if as_json:
        print_json({"tenants": cards})
        return
    from rich.table import Table

    table = Table(
        "tenant", "weight", "class", "concurrent", "requests/min", "tokens/min", "input", "output", "KV", "keys"
    )
    for card in cards:
        limits, kv = card["limits"], card["kv"]
        table.add_row(
            card["name"] + (" (admin)" if card["admin"] else ""),
            f"{card['weight']:g}",
            card["class"],
            _shown(limits["max_concurrent"]),
            _rate(limits["requests_per_minute"], limits["most_requests"]),
            _rate(limits["tokens_per_minute"], limits["most_tokens"]),
            _shown(limits["max_input_tokens"]),
            _shown(limits["max_output_tokens"]),
            f"{kv['guaranteed']:.0%} to {kv['most']:.0%}",
            ", ".join(card["key_ids"]) or "none",
        )
    results().print(table)


def check(file: File) -> None:
    """Read a file as the server would, and say what is wrong with it, or that nothing is."""
    from headway.tenancy import Roster

    tenants = Roster.read(file).tenants
    num_keys = sum(len(tenant.keys) for tenant in tenants.values())
    print(f"{file}: tenants {len(tenants)}, keys {num_keys}")
    for tenant in tenants.values():
        if not tenant.keys:
            notices().print(f"tenant {tenant.name} has no key: nobody can be it", markup=False)
    if not any(tenant.is_admin for tenant in tenants.values()):
        notices().print("no tenant is an admin: only --admin-api-key can manage the server", markup=False)


def _card(tenant: Tenant) -> dict[str, Any]:
    from dataclasses import asdict

    limits = asdict(tenant.limits) | {
        "most_requests": tenant.limits.most_requests,
        "most_tokens": tenant.limits.most_tokens,
    }
    return {
        "name": tenant.name,
        "weight": tenant.weight,
        "class": tenant.service_class.value,
        "admin": tenant.is_admin,
        "models": None if tenant.models is None else sorted(tenant.models),
        "limits": limits,
        "kv": asdict(tenant.kv),
        "key_ids": [key.id for key in tenant.keys],
    }


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,g}"


def _rate(per_minute: float | None, burst: int | None) -> str:
    return "-" if per_minute is None else f"{per_minute:,g} (burst {burst:,})"
