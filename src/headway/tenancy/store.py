"""Usage on disk: one row per day, tenant and model. SQLite from the standard library; others through SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from headway.errors import BadSetting
from headway.tenancy.usage import Usage, UsageKey

_SQLITE = "sqlite:///"
_COUNTS = [field.name for field in fields(Usage)]

CREATE = (
    "CREATE TABLE IF NOT EXISTS headway_usage (day VARCHAR(10) NOT NULL, tenant VARCHAR(64) NOT NULL,"
    f" model VARCHAR(200) NOT NULL, {', '.join(f'{name} BIGINT NOT NULL DEFAULT 0' for name in _COUNTS)},"
    " PRIMARY KEY (day, tenant, model))"
)
ADD = (
    f"UPDATE headway_usage SET {', '.join(f'{name} = {name} + :{name}' for name in _COUNTS)}"  # noqa: S608 - names are our own fields
    " WHERE day = :day AND tenant = :tenant AND model = :model"
)
INSERT = (
    f"INSERT INTO headway_usage (day, tenant, model, {', '.join(_COUNTS)})"  # noqa: S608 - names are our own fields
    f" VALUES (:day, :tenant, :model, {', '.join(f':{name}' for name in _COUNTS)})"
)
READ = (
    f"SELECT day, tenant, model, {', '.join(_COUNTS)} FROM headway_usage"  # noqa: S608 - names are our own fields
    " WHERE day >= :since ORDER BY day, tenant, model"
)


class Session(Protocol):
    """One transaction."""

    def run(self, statement: str, values: Mapping[str, object]) -> int:
        """Execute; the number of rows changed."""
        ...

    def rows(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The rows that a query finds."""
        ...


class Database(Protocol):
    """Opens transactions: all that happens in one is kept, or nothing of it. Raises `OSError` where it cannot."""

    def session(self) -> Any:  # noqa: ANN401  a context manager of Session; generators and classes differ in type
        """A context manager; what happened inside is durable when it ends."""
        ...


class UsageStore:
    """Adds to rows in a database, whole transactions at a time. Raises `OSError` when the database does not take it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with self._database.session() as session:
            session.run(CREATE, {})

    def add(self, rows: Mapping[UsageKey, Usage]) -> None:
        """Add all rows or none; durable when this returns."""
        with self._database.session() as session:
            for key, usage in sorted(rows.items()):
                values = {"day": key.day.isoformat(), "tenant": key.tenant, "model": key.model[:200]} | asdict(usage)
                if session.run(ADD, values) == 0:
                    session.run(INSERT, values)

    def read(self, since: date) -> list[tuple[UsageKey, Usage]]:
        """All rows from a day on, in order."""
        with self._database.session() as session:
            found = session.rows(READ, {"since": since.isoformat()})
        return [
            (UsageKey(date.fromisoformat(day), tenant, model), Usage(*map(int, counts)))
            for day, tenant, model, *counts in found
        ]


class SqliteDatabase:
    """A file. Another process may read it meanwhile; after a crash it is as of the last transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One transaction on a connection of its own, so that any thread may ask."""
        try:
            connection = sqlite3.connect(self._path, timeout=5.0)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                with connection:
                    yield _SqliteSession(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error


class _SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, values: Mapping[str, object]) -> int:
        return self._connection.execute(statement, dict(values)).rowcount

    def rows(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, dict(values)).fetchall()


def open_store(url: str) -> UsageStore:
    """The store at a URL: `sqlite:///FILE` by itself, anything else through SQLAlchemy. Raises `BadSetting`."""
    try:
        if url.startswith(_SQLITE) and url != _SQLITE:
            return UsageStore(SqliteDatabase(Path(url.removeprefix(_SQLITE))))
        from headway.tenancy.sqlalchemy_store import AlchemyDatabase  # noqa: PLC0415 - an extra that need not be there

        return UsageStore(AlchemyDatabase(url))
    except ImportError as error:
        raise BadSetting(
            f"usage store {_safe(url)} needs SQLAlchemy and its driver ({error}): pip install 'headway[usage]'"
        ) from None
    except OSError as error:
        raise BadSetting(f"cannot use the usage store {_safe(url)}: {error}") from None


def _safe(url: str) -> str:
    """The URL without the password that it may hold."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
