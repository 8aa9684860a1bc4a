"""Any database that SQLAlchemy reaches, such as PostgreSQL. The extra `usage` brings it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from headway.errors import BadSetting


class AlchemyDatabase:
    """A database by its URL. Each transaction has a connection of its own: one that broke hurts no later one."""

    def __init__(self, url: str) -> None:
        try:
            self._engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        except SQLAlchemyError as error:
            raise BadSetting(
                f"the usage store's URL cannot be used ({type(error).__name__}); it must be like sqlite:///usage.db"
            ) from None

    @contextmanager
    def session(self) -> Iterator[_AlchemySession]:
        """One transaction."""
        try:
            with self._engine.begin() as connection:
                yield _AlchemySession(connection)
        except SQLAlchemyError as error:
            # Its text may quote the URL with the password.
            raise OSError(f"the database does not take it: {type(error).__name__}") from None


class _AlchemySession:
    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, values: Mapping[str, object]) -> int:
        return self._connection.execute(sqlalchemy.text(statement), dict(values)).rowcount

    def rows(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(sqlalchemy.text(statement), dict(values))]
