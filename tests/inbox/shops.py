"""A shop's stock in a database, reached through every kind of connection that `once` takes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import psycopg.rows
import sqlalchemy
import sqlalchemy.orm

from surefoot.inbox import create_inbox_table

paramstyle = "format"
"""Of the driver that this module is, for a database that Surefoot has never heard of."""


class IntegrityError(Exception):
    """As PEP 249 names it."""


class ForeignConnection:
    """A DB-API connection of an unknown driver: it tells nothing about transactions and has its own marks."""

    def __init__(self, path: Path) -> None:
        self._inner = sqlite3.connect(path, timeout=0.5)
        self.commit, self.rollback, self.close = self._inner.commit, self._inner.rollback, self._inner.close

    def cursor(self) -> ForeignCursor:
        return ForeignCursor(self._inner.cursor())


class ForeignCursor:
    def __init__(self, inner: sqlite3.Cursor) -> None:
        self._inner = inner
        self.fetchall, self.fetchone, self.close = inner.fetchall, inner.fetchone, inner.close

    @property
    def description(self) -> Any:
        return self._inner.description

    @property
    def rowcount(self) -> int:
        return self._inner.rowcount

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        assert "ON CONFLICT" not in statement, "an unknown database need not know that"
        try:
            self._inner.execute(statement.replace("%s", "?"), values)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(str(error)) from error


class Shop:
    """Lamps in stock; `connect()` opens a new connection of this kind."""

    def __init__(self, connect: Callable[[], Any], run: Callable[[Any, str], Any]) -> None:
        self.connect, self._run = connect, run

    def take(self, connection: Any, count: int) -> int:
        self._run(connection, f"UPDATE stock SET lamps = lamps - {count}")
        return self.look(connection)

    def look(self, connection: Any) -> int:
        row = self._run(connection, "SELECT lamps FROM stock").fetchone()
        return next(iter(row.values())) if isinstance(row, dict) else row[0]

    def left(self) -> int:
        """Seen by a connection of its own."""
        with closing(self.connect()) as connection:
            return self.look(connection)

    def rows(self) -> int:
        with closing(self.connect()) as connection:
            row = self._run(connection, "SELECT count(*) FROM surefoot_inbox").fetchone()
            return next(iter(row.values())) if isinstance(row, dict) else row[0]


def plainly(connection: Any, statement: str) -> Any:
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor


def as_text(connection: Any, statement: str) -> Any:
    return connection.execute(sqlalchemy.text(statement))


def sqlalchemy_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


SQLITE_KINDS = ("sqlite3", "sqlite3_no_isolation", "foreign", "session", "connection")
if sys.version_info >= (3, 12):
    SQLITE_KINDS = (*SQLITE_KINDS, "sqlite3_autocommit", "sqlite3_no_autocommit")
POSTGRES_KINDS = ("psycopg", "psycopg_autocommit", "psycopg_dicts", "session", "connection")


@contextmanager
def open_sqlite_shop(kind: str, path: Path) -> Iterator[Shop]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    kinds: dict[str, Callable[[], Any]] = {
        "sqlite3": lambda: sqlite3.connect(path, timeout=20),
        "sqlite3_no_isolation": lambda: sqlite3.connect(path, isolation_level=None, timeout=20),
        "sqlite3_autocommit": lambda: sqlite3.connect(path, autocommit=True, timeout=20),
        "sqlite3_no_autocommit": lambda: sqlite3.connect(path, autocommit=False, timeout=20),
        "foreign": lambda: ForeignConnection(path),
        "session": lambda: sqlalchemy.orm.Session(engine),
        "connection": engine.connect,
    }
    with closing(sqlite3.connect(path)) as plain:
        plain.execute("CREATE TABLE stock (lamps INTEGER)")
        plain.execute("INSERT INTO stock VALUES (10)")
        plain.commit()
        create_inbox_table(plain)
    yield Shop(kinds[kind], as_text if kind in ("session", "connection") else plainly)
    engine.dispose()


@contextmanager
def open_postgres_shop(kind: str, url: str) -> Iterator[Shop]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    kinds: dict[str, Callable[[], Any]] = {
        "psycopg": lambda: psycopg.connect(url),
        "psycopg_autocommit": lambda: psycopg.connect(url, autocommit=True),
        "psycopg_dicts": lambda: psycopg.connect(url, row_factory=psycopg.rows.dict_row),
        "session": lambda: sqlalchemy.orm.Session(engine),
        "connection": engine.connect,
    }
    with psycopg.connect(url) as plain:
        plain.execute("DROP TABLE IF EXISTS stock, surefoot_inbox")
        plain.execute("CREATE TABLE stock (lamps INTEGER)")
        plain.execute("INSERT INTO stock VALUES (10)")
        plain.commit()
        create_inbox_table(plain)
    yield Shop(kinds[kind], as_text if kind in ("session", "connection") else plainly)
    engine.dispose()
