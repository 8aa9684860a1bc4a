"""`headway usage`: what each tenant used, by day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.flags import Json
from headway.cli.output import print_json, results
from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.tenancy import Usage, UsageKey


def usage(
    *,
    store: Annotated[
        str | None, typer.Option(help="URL of the usage store, as for `headway serve --usage-store`.", metavar="URL")
    ] = None,
    tenants: Annotated[
        Path | None, typer.Option(help="The tenants file, beside which usage is kept by default.", metavar="FILE")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="First day, UTC.", show_default="30 days ago"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print tokens and requests per day, tenant and model, as the server wrote them down."""
    from dataclasses import asdict

    from headway.server import usage_path
    from headway.tenancy import open_store

    if (store is None) == (tenants is None):
        raise BadSetting("say where usage is kept: either --tenants FILE or --store URL")
    if tenants is not None and not usage_path(tenants).exists():
        raise BadSetting(f"no usage is kept beside {tenants} yet ({usage_path(tenants)} is not there)")
    url = store or f"sqlite:///{usage_path(tenants or Path())}"
    first = since or datetime.now(UTC) - timedelta(days=30)
    rows = [(key, used) for key, used in open_store(url).read(first.date()) if tenant in (None, key.tenant)]
    if as_json:
        print_json(
            {
                "usage": [
                    {"day": key.day.isoformat(), "tenant": key.tenant, "model": key.model} | asdict(used)
                    for key, used in rows
                ]
            }
        )
        return
    _show(rows)


def _show(rows: list[tuple[UsageKey, Usage]]) -> None:
    from rich.table import Table

    table = Table("day", "tenant", "model", "requests", "refused", "prompt tokens", "of them cached", "output tokens")
    for key, used in rows:
        counts = (used.requests, used.refused, used.prompt_tokens, used.cached_tokens, used.output_tokens)
        table.add_row(key.day.isoformat(), key.tenant or "(open)", key.model, *(f"{count:,}" for count in counts))
    results().print(table)
