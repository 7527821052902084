"""One connection of the user's as `once` needs it: begin, execute, end, and see whether a transaction is really open.

Every operation is a generator that yields calls; `drive` makes them, `drive_async` awaits what they return. So one
text serves `sqlite3` and `aiosqlite`, psycopg's two connections, and SQLAlchemy's four. No driver is imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ..core.errors import UsageError
from ..effects.dbapi import Dialect, Ran, dialect_of, execute, execute_async, is_async, is_sqlalchemy
from ..stores.paramstyle import style_of, with_marks
from ..stores.queries import load_queries

R = TypeVar("R")
Calls = Generator[Callable[[], Any], Any, R]
"""Yields calls to make; is sent what they return (awaited, if need be)."""

_SQL = load_queries(__file__)
_POSTGRES_SQL = {**_SQL, **load_queries(__file__, "postgres.sql")}
_BUSY, _LOCKED, _IDLE = 5, 6, 0


def wire_of(connection: Any) -> Wire:
    """The wire for a connection; UsageError for what is none."""
    names = ("commit", "rollback", "in_transaction" if is_sqlalchemy(connection) else "cursor")
    if not all(callable(getattr(connection, name, None)) for name in names):
        raise UsageError(
            "expected a DB-API connection or a SQLAlchemy Session or Connection, found "
            f"{type(connection).__qualname__}; pass the connection on which the change is made (not an engine, a pool, "
            "a cursor or a URL)"
        )
    return Wire(connection)


class Wire:
    """A DB-API connection, SQLAlchemy's Session or Connection, or the asynchronous form of one."""

    def __init__(self, connection: Any) -> None:
        """`connection` stays the user's. `dialect` is None for a database that is neither SQLite nor PostgreSQL."""
        self.connection = connection
        self.is_async = is_async(connection)
        self._sqlalchemy = is_sqlalchemy(connection)
        self._core: Any = None
        try:
            self.dialect: Dialect | None = dialect_of(connection)
        except UsageError:
            self.dialect = None

    def is_open(self) -> bool | None:
        """Whether a transaction is open; None if this driver does not tell.

        SQLAlchemy counts a transaction as open in autocommit mode too, so once it is connected its driver is asked.
        """
        if not self._sqlalchemy:
            return _is_open(self.connection)
        if self._core is None or not self.connection.in_transaction():
            return bool(self.connection.in_transaction())
        told = _is_open(getattr(self._core, "sync_connection", self._core).connection.driver_connection)
        return True if told is None else told

    def begin(self) -> Calls[None]:
        """Open a transaction where the driver does not by itself; SQLite's with its write lock."""
        if self._sqlalchemy:
            known = hasattr(self.connection, "exec_driver_sql")
            self._core = self.connection if known else (yield self.connection.connection)
            return
        automatic = getattr(self.connection, "autocommit", None) is True
        if self.dialect is Dialect.SQLITE:
            if not self.connection.in_transaction:
                yield from self.execute("begin")
        elif automatic and type(self.connection).__module__.startswith("psycopg2"):
            raise UsageError("this connection is in autocommit mode; once() needs it without (connection.autocommit)")
        elif automatic and not self.is_open():
            yield from self.execute("begin_autocommit")

    def execute(self, name: str, *values: Any) -> Calls[Ran]:
        """Run a statement of the `.sql` files by its name."""
        statement = (_POSTGRES_SQL if self.dialect is Dialect.POSTGRES else _SQL)[name]
        if self.dialect is None and not self._sqlalchemy:
            return self._on_any_driver(statement, values)
        run = execute_async if self.is_async else execute
        return (yield lambda: run(self.connection, statement, values))

    def _on_any_driver(self, statement: str, values: tuple[Any, ...]) -> Ran:
        cursor = self.connection.cursor()
        try:
            cursor.execute(with_marks(statement, style_of(self.connection)), values)
            return Ran([tuple(row) for row in cursor.fetchall()] if cursor.description else [], cursor.rowcount)
        finally:
            cursor.close()

    def commit(self) -> Calls[None]:
        """Make it durable."""
        yield from self._end("commit")

    def rollback(self) -> Calls[None]:
        """Undo it."""
        yield from self._end("rollback")

    def _end(self, how: str) -> Calls[None]:
        self._core = None
        mute = self.dialect is Dialect.SQLITE and getattr(self.connection, "autocommit", None) is True
        if not mute:
            yield getattr(self.connection, how)
        elif self.connection.in_transaction:
            yield from self.execute(how)


def _is_open(driver: Any) -> bool | None:
    """By sqlite3 and aiosqlite, psycopg 2 and 3, asyncpg; None for others, and where one is always open."""
    if hasattr(driver, "in_transaction"):
        return None if getattr(driver, "autocommit", None) is False else bool(driver.in_transaction)
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    if status is not None:
        return int(status) != _IDLE
    ask = getattr(driver, "is_in_transaction", None)
    return bool(ask()) if callable(ask) else None


def drive(calls: Calls[R]) -> R:
    """Make the calls, one after the other."""
    try:
        call = next(calls)
        while True:
            try:
                value = call()
            except BaseException as error:
                call = calls.throw(error)
            else:
                call = calls.send(value)
    except StopIteration as stop:
        return stop.value


async def drive_async(calls: Calls[R]) -> R:
    """Make the calls, and await what they return."""
    try:
        call = next(calls)
        while True:
            try:
                value = call()
                if inspect.isawaitable(value):
                    value = await value
            except BaseException as error:
                call = calls.throw(error)
            else:
                call = calls.send(value)
    except StopIteration as stop:
        return stop.value


def driver_error(error: BaseException) -> BaseException:
    """The driver's own exception inside SQLAlchemy's."""
    return getattr(error, "orig", None) or error


def is_locked(error: BaseException) -> bool:
    """True for "somebody else holds the lock, and waiting for it has ended": nothing was changed."""
    told = driver_error(error)
    if getattr(told, "sqlstate", None) or getattr(told, "pgcode", None):
        return "55P03" in (getattr(told, "sqlstate", None), getattr(told, "pgcode", None))
    return (getattr(told, "sqlite_errorcode", 0) or 0) & 0xFF in (_BUSY, _LOCKED)


def is_missing_table(error: BaseException) -> bool:
    """True if `surefoot_inbox` is not there."""
    told = driver_error(error)
    code = getattr(told, "sqlstate", None) or getattr(told, "pgcode", None)
    return code == "42P01" or "no such table: surefoot_inbox" in str(told)


def is_conflict(error: BaseException) -> bool:
    """True for the driver's IntegrityError (PEP 249 fixes its name)."""
    return any(kind.__name__ == "IntegrityError" for kind in type(driver_error(error)).__mro__)
