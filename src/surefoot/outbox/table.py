"""The outbox's tables in the user's database: made, looked at, and changed by hand.

Everything but `create_outbox_table` is part of the caller's transaction; nothing else here commits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..core.errors import UsageError
from ..core.ids import check_id
from ..effects.dbapi import Dialect, Ran, dialect_of, execute
from ..runtime.clock import SystemClock
from ..stores.queries import load_migrations, load_queries
from .row import Row, State, row_of

VERSION = 1
MISSING = ("no such table", "does not exist", "undefinedtable")
clock = SystemClock()


def _beside(dialect: Dialect) -> str:
    return os.path.join(os.path.dirname(__file__), dialect.value, "_")


@cache
def queries(dialect: Dialect) -> dict[str, str]:
    """Every statement by its name, as this dialect says it."""
    return load_queries(__file__) | load_queries(_beside(dialect))


@cache
def _scripts(dialect: Dialect) -> list[tuple[int, str]]:
    return load_migrations(_beside(dialect))


def explained(error: Exception) -> Exception:
    """A missing table as an error that says what to do; any other error as it is."""
    text = f"{type(error).__name__} {error}".lower()
    if "surefoot_outbox" in text and any(word in text for word in MISSING):
        return UsageError(
            f"this database has no outbox ({error}); call surefoot.outbox.create_outbox_table(connection) once, or put "
            "surefoot.outbox.schema(dialect) into your own migrations"
        )
    return error


def run(connection: Any, name: str, parameters: Sequence[Any] = ()) -> Ran:
    """Run one named statement."""
    try:
        return execute(connection, queries(dialect_of(connection))[name], parameters)
    except Exception as error:
        raise explained(error) from error


# --- making -----------------------------------------------------------------------------------------------------------


def schema(dialect: str) -> str:
    """The SQL that makes the outbox ("sqlite" or "postgres"), for those who keep migrations of their own.

    Later versions add numbered scripts behind it; every one may be run again without harm.
    """
    try:
        return "\n".join(script for _, script in _scripts(Dialect(dialect)))
    except ValueError:
        raise UsageError(f"expected one of {[str(d) for d in Dialect]}, found {dialect!r}") from None


def create_outbox_table(connection: Any) -> None:
    """Make the outbox's tables, or bring older ones up to date, and commit; what is there already stays."""
    dialect = dialect_of(connection)
    try:
        run(connection, "lock")
        there = run(connection, "has_table").rows
        held = run(connection, "database").rows[0][1] if there else 0
        check_version(held)
        for number, script in _scripts(dialect):
            if number > held:
                for statement in _statements(script):
                    execute(connection, statement)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


def check_version(held: int) -> None:
    """UsageError for tables that a newer Surefoot has made."""
    if held > VERSION:
        raise UsageError(f"the outbox has version {held}, and this Surefoot knows {VERSION}; update this Surefoot")


# --- looking ----------------------------------------------------------------------------------------------------------


def pending(connection: Any, *, limit: int = 1000) -> list[Row]:
    """Rows that are waiting or parked, in order."""
    return [row_of(columns) for columns in run(connection, "pending", (limit,)).rows]


def failed(connection: Any, *, limit: int = 1000) -> list[Row]:
    """Rows that are stuck, refused or abandoned, in order; `reason` says why."""
    return [row_of(columns) for columns in run(connection, "failed", (limit,)).rows]


def find(connection: Any, id: str) -> Row | None:
    """The row with this id, or None."""
    rows = run(connection, "find", (id,)).rows
    return row_of(rows[0]) if rows else None


# --- changing by hand -------------------------------------------------------------------------------------------------


def retry(connection: Any, id: str) -> None:
    """Let a stuck row be tried again at once, when your transaction commits; UsageError if it is not stuck."""
    if run(connection, "retry", (State.WAITING.value, "tried again by hand", id)).touched != 1:
        raise _not_stuck(connection, id)


def drop(connection: Any, id: str, *, why: str) -> None:
    """Give a stuck row up: it ends as abandoned when your transaction commits; UsageError if it is not stuck.

    If it was sent before it got stuck, its effect is still open in Surefoot's store, where `surefoot doctor` shows it.
    """
    reason = check_id(why, "why")
    if run(connection, "drop", (State.ABANDONED.value, clock.now(), f"given up by hand: {reason}", id)).touched != 1:
        raise _not_stuck(connection, id)


def _not_stuck(connection: Any, id: str) -> UsageError:
    row = find(connection, id)
    if row is None:
        return UsageError(f"the outbox has no row {id!r}; nothing was changed")
    way = f" A parked row is decided by `surefoot resolve - {row.effect_key[:12]}`." if row.state == "parked" else ""
    return UsageError(f"row {id!r} is {row.state}, not stuck; nothing was changed.{way}")
