"""`headway admin`: the knobs of a running server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from headway.cli.flags import Json, Url
from headway.cli.nested import Face
from headway.cli.output import print_json
from headway.errors import BadSetting

DEFAULT_URL = "http://127.0.0.1:8000"

AdminKey = Annotated[
    str | None,
    typer.Option(
        "--api-key", help="An admin's key.", envvar="HEADWAY_ADMIN_API_KEY", show_default=False, metavar="KEY"
    ),
]
TenantName = Annotated[str | None, typer.Option(help="Only this tenant.", show_default="everybody")]


def admin_app() -> typer.Typer:
    """The group of commands."""
    help_ = "Look at and turn the knobs of a running server."
    app = typer.Typer(name="admin", cls=Face, help=help_, no_args_is_help=True)
    for command in (show, set_, drain, resume, abort):
        app.command(name=command.__name__.rstrip("_"))(command)
    app.command(name="reset-cache")(reset_cache)
    return app


def show(*, url: Url = DEFAULT_URL, api_key: AdminKey = None, as_json: Json = False) -> None:
    """Print every setting that can be changed while serving."""
    _tell(_ask(url, api_key, "GET", "config"), as_json=as_json)


def set_(
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings, all changed at once.")],
    *,
    url: Url = DEFAULT_URL,
    api_key: AdminKey = None,
    as_json: Json = False,
) -> None:
    """Change settings: all of them between two steps, or none. `policy.NAME=VALUE` sets a policy's own parameter."""
    _tell(_ask(url, api_key, "PATCH", "config", parse_patch(settings)), as_json=as_json)


def drain(
    *, tenant: TenantName = None, url: Url = DEFAULT_URL, api_key: AdminKey = None, as_json: Json = False
) -> None:
    """Take no new requests; what runs goes on."""
    _tell(_ask(url, api_key, "POST", "drain", _named(tenant)), as_json=as_json)


def resume(
    *, tenant: TenantName = None, url: Url = DEFAULT_URL, api_key: AdminKey = None, as_json: Json = False
) -> None:
    """Take new requests again."""
    _tell(_ask(url, api_key, "POST", "resume", _named(tenant)), as_json=as_json)


def abort(
    name: Annotated[str, typer.Argument(metavar="ID", help="Its X-Request-Id, or the id of its answer.")],
    *,
    url: Url = DEFAULT_URL,
    api_key: AdminKey = None,
    as_json: Json = False,
) -> None:
    """End a request in whatever state it is; its client gets what there is."""
    _tell(_ask(url, api_key, "POST", f"requests/{name}/abort"), as_json=as_json)


def reset_cache(*, url: Url = DEFAULT_URL, api_key: AdminKey = None, as_json: Json = False) -> None:
    """Forget every cached prefix that no request uses now."""
    _tell(_ask(url, api_key, "POST", "cache/reset"), as_json=as_json)


def parse_patch(texts: Iterable[str]) -> dict[str, Any]:
    """A patch from KEY=VALUE: values are JSON where they are, else words. Raises `BadSetting`."""
    patch: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadSetting(f"{text!r} is not like max_num_seqs=64")
        group, dot, name = key.partition(".")
        if dot:
            place = {"policy": "policy_settings", "slo": "slo"}.get(group)
            if place is None:
                raise BadSetting(f"{key!r}: only policy.NAME and slo.NAME have parts")
            patch.setdefault(place, {})[name] = _value(value)
        else:
            patch[key] = _value(value)
    return patch


def _value(text: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _named(tenant: str | None) -> dict[str, str]:
    return {} if tenant is None else {"tenant": tenant}


def _ask(url: str, api_key: str | None, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    from headway.cli.client import Client

    with Client(url, api_key) as client:
        return client.manage(method, path, body)


def _tell(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    width = max(map(len, answer), default=0)
    for key, value in answer.items():
        print(f"{key:<{width}}  {value if isinstance(value, str | int | float) else json.dumps(value)}")
