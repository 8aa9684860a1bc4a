"""What every route works with: the engine, under the names it is served by."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.types import Scope

from headway.errors import Forbidden, UnknownModel
from headway.server.access import caller_of
from headway.server.accounts import Accounts
from headway.server.body import read_json
from headway.server.config import ServerConfig
from headway.server.desk import Desk
from headway.server.port import ServedEngine
from headway.server.schema import BodyType, parse
from headway.server.texts import Texts
from headway.tenancy import Tenant


class Served:
    """One engine, how it is served, and for whom."""

    def __init__(self, engine: ServedEngine, config: ServerConfig, accounts: Accounts) -> None:
        self.engine, self.config, self.accounts = engine, config, accounts
        self.desk = Desk(engine, accounts.house, accounts.book.refused)
        self.texts = Texts(engine)
        self.model_names = config.served_model_names or (engine.model_name,)
        self.created = int(time.time())

    def model(self, name: str | None) -> str:
        """The served name that a request means; the first one where it names none. Raises `UnknownModel`."""
        return self._among(self.model_names, name)

    def models_of(self, tenant: Tenant) -> tuple[str, ...]:
        """The names that a tenant may use."""
        return tuple(name for name in self.model_names if tenant.allows(name))

    async def read(self, request: Request, kind: type[BodyType]) -> BodyType:
        """The request's body, checked, with the served name that it means as its `model`.

        Raises `InvalidRequest`: `UnknownModel`, or `Forbidden` for a model that the caller may not use.
        """
        body = parse(kind, await read_json(request, self.config.max_body_bytes), request.scope)
        allowed = self.models_of(caller_of(request.scope).tenant)
        if body.model in self.model_names and body.model not in allowed:
            raise Forbidden(f"this key may not use model {body.model!r}; /v1/models lists those it may", param="model")
        if not allowed:
            raise Forbidden("this key may use no model", param="model")
        body.model = self._among(allowed, body.model)
        return body

    def require_welcome(self, scope: Scope) -> None:
        """Raise what is known before a body is read; see `Desk.require_room`. Charges nothing."""
        self.desk.require_room(scope)

    @staticmethod
    def _among(names: tuple[str, ...], name: str | None) -> str:
        if not name:
            return names[0]
        if name not in names:
            raise UnknownModel(name[:200], names)
        return name
