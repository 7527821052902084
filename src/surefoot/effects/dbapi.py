"""A user's own connection, whatever made it: a DB-API driver (sync or async) or SQLAlchemy's Session and Connection.

Nothing is imported: what a connection is, is told by the module of its class. Statements are written with `?` and get
the marks that the driver wants, so they may hold no `?` and no `%` of their own. Nothing here begins or commits.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, cast

from ..core.errors import UsageError
from ..stores.paramstyle import style_of


class Dialect(StrEnum):
    """Whose SQL a connection speaks."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Ran(NamedTuple):
    """What a statement gave: its rows as plain tuples (none if it returns none), and how many rows it touched."""

    rows: list[tuple[Any, ...]]
    touched: int


_DIALECTS = {
    "sqlite3": Dialect.SQLITE,
    "aiosqlite": Dialect.SQLITE,
    "pysqlite3": Dialect.SQLITE,
    "sqlcipher3": Dialect.SQLITE,
    "psycopg": Dialect.POSTGRES,
    "psycopg2": Dialect.POSTGRES,
    "pg8000": Dialect.POSTGRES,
}
_SQLALCHEMY = {"sqlite": Dialect.SQLITE, "postgresql": Dialect.POSTGRES}
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_IDLE = 0
_LEGACY_CONTROL = -1


def _tops(connection: Any) -> list[str]:
    return [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]


def _driver(connection: Any) -> str:
    found = next((top for top in _tops(connection) if top in _DIALECTS), "")
    if not found:
        kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise UsageError(
            f"expected a connection to SQLite ({', '.join(d for d in _DIALECTS if _DIALECTS[d] is Dialect.SQLITE)}) or "
            f"PostgreSQL ({', '.join(d for d in _DIALECTS if _DIALECTS[d] is Dialect.POSTGRES)}), or SQLAlchemy's "
            f"Session or Connection for one of them; found {kind}"
        )
    return found


def is_sqlalchemy(connection: Any) -> bool:
    """True for SQLAlchemy's sessions and connections, sync or async."""
    return "sqlalchemy" in _tops(connection)


def is_async(connection: Any) -> bool:
    """True if statements on it are awaited."""
    if is_sqlalchemy(connection):
        return inspect.iscoroutinefunction(connection.connection if _is_session(connection) else connection.commit)
    return inspect.iscoroutinefunction(getattr(connection, "commit", None))


def _is_session(connection: Any) -> bool:
    return is_sqlalchemy(connection) and not hasattr(connection, "exec_driver_sql")


def dialect_of(connection: Any) -> Dialect:
    """The dialect, by the driver; UsageError for another database."""
    if not is_sqlalchemy(connection):
        return _DIALECTS[_driver(connection)]
    name = str((connection.get_bind() if _is_session(connection) else connection).dialect.name)
    if name not in _SQLALCHEMY:
        raise UsageError(f"expected SQLAlchemy on {' or '.join(_SQLALCHEMY)}; found it on {name}")
    return _SQLALCHEMY[name]


def _marked(statement: str, style: str) -> str:
    if style in _MARKS:
        return statement.replace("?", _MARKS[style])
    sign = {"numeric": ":", "numeric_dollar": "$"}.get(style)
    if sign is None:
        known = sorted((*_MARKS, "numeric", "numeric_dollar"))
        raise UsageError(f"the driver uses paramstyle {style!r}; expected one of {known}")
    numbers = iter(range(1, statement.count("?") + 1))
    return re.sub(r"\?", lambda _: f"{sign}{next(numbers)}", statement)


def _plain(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows as tuples, also where the user's connection makes dictionaries of them."""
    return [tuple(cast("Mapping[str, Any]", r).values()) if isinstance(r, Mapping) else tuple(r) for r in rows]


def _tuples(cursor: Any) -> None:
    """The user's row factory is the user's; this cursor gives tuples."""
    if "psycopg" in _tops(cursor):
        cursor.row_factory = sys.modules["psycopg"].rows.tuple_row
    elif hasattr(cursor, "row_factory"):
        cursor.row_factory = None


# --- statements ---------------------------------------------------------------------------------------------------


def execute(connection: Any, statement: str, parameters: Sequence[Any] = ()) -> Ran:
    """Run one statement in the connection's current transaction."""
    if is_async(connection):
        raise UsageError(f"{type(connection).__qualname__} is an async connection; use the function that is awaited")
    if is_sqlalchemy(connection):
        inner = connection.connection() if _is_session(connection) else connection
        result = inner.exec_driver_sql(_marked(statement, inner.dialect.paramstyle), tuple(parameters) or None)
        return _fetched(result)
    cursor = connection.cursor()
    try:
        _tuples(cursor)
        cursor.execute(_marked(statement, style_of(connection)), tuple(parameters))
        rows = _plain(cursor.fetchall()) if cursor.description else []
        return Ran(rows, cursor.rowcount)
    finally:
        cursor.close()


async def execute_async(connection: Any, statement: str, parameters: Sequence[Any] = ()) -> Ran:
    """The same on an async connection: SQLAlchemy's AsyncSession and AsyncConnection, async psycopg, aiosqlite."""
    if not is_async(connection):
        raise UsageError(f"{type(connection).__qualname__} is not an async connection; use the function without await")
    if is_sqlalchemy(connection):
        inner = await connection.connection() if _is_session(connection) else connection
        style = inner.dialect.paramstyle
        return _fetched(await inner.exec_driver_sql(_marked(statement, style), tuple(parameters) or None))
    made = connection.cursor()
    cursor = await made if inspect.isawaitable(made) else made
    try:
        _tuples(cursor)
        await cursor.execute(_marked(statement, style_of(connection)), tuple(parameters))
        rows = _plain(list(await cursor.fetchall())) if cursor.description else []
        return Ran(rows, cursor.rowcount)
    finally:
        await cursor.close()


def _fetched(result: Any) -> Ran:
    return Ran([tuple(row) for row in result] if result.returns_rows else [], result.rowcount)


# --- transactions -------------------------------------------------------------------------------------------------


def refuse_autocommit(connection: Any, what: str) -> None:
    """UsageError if a statement would commit by itself, so that `what` would not share a transaction with anything."""
    raw = _raw(connection)
    if raw is not None and _commits_alone(raw):
        raise UsageError(
            f"{what} has to be part of your transaction, but this connection is in autocommit mode and none has begun; "
            "begin one, or open the connection without autocommit"
        )


def _raw(connection: Any) -> Any:
    """The driver's connection, if one is open already."""
    if not is_sqlalchemy(connection):
        return connection
    session = getattr(connection, "sync_session", connection)
    if _is_session(session):
        if is_async(connection):
            return None  # not connected yet, or not to be reached without awaiting
        session = session.connection()
    inner = getattr(session, "sync_connection", session)
    return None if inner is None else getattr(inner.connection, "dbapi_connection", None)


def _commits_alone(raw: Any) -> bool:
    control = getattr(raw, "autocommit", None)
    if hasattr(raw, "in_transaction"):  # sqlite3 and its kin
        automatic = control is True or (control in (None, _LEGACY_CONTROL) and raw.isolation_level is None)
        return automatic and not raw.in_transaction
    status = getattr(getattr(raw, "info", None), "transaction_status", _IDLE)
    return control is True and int(status) == _IDLE
