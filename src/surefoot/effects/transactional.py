"""`same_transaction`: the effect is a change in the user's own database, and its receipt commits with it.

A small table, `surefoot_receipts`, lives in that database. The receipt's row is inserted first, so a second transaction
for the same effect waits for the first or finds its receipt: the effect happened exactly when its row is there. Any
DB-API connection will do, SQLite too, and so will SQLAlchemy's Session and Connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import UsageError
from ..stores.queries import load_queries
from .dbapi import execute, is_sqlalchemy, refuse_autocommit

_SQL = load_queries(__file__, "receipts.sql")


def create_receipts_table(connection: Any) -> None:
    """Create `surefoot_receipts` in the user's database, if it is not there, and commit."""
    execute(connection, _SQL["create"])
    connection.commit()


def open_transaction(connect: Callable[[], Any]) -> Any:
    """A connection on which the change and its receipt commit together; UsageError for one where they would not."""
    connection = connect()
    try:
        if not hasattr(connection, "in_transaction") or is_sqlalchemy(connection):
            refuse_autocommit(connection, "the receipt of a same_transaction effect")
        elif connection.isolation_level is None:  # a sqlite3 connection in autocommit mode
            execute(connection, _SQL["begin"])
    except BaseException:
        connection.close()
        raise
    return connection


def perform_in_transaction(connection: Any, key: str, request_digest: bytes, body: Callable[[], bytes]) -> bytes:
    """Insert the receipt's row, run the body, fill in its receipt, commit; or return the receipt that is there.

    A crash or an exception anywhere inside leaves neither the change nor the row.
    """
    try:
        found = execute(connection, _SQL["find"], (key,)).rows
        if not found:
            execute(connection, _SQL["claim"], (key, request_digest.hex()))
            receipt = body()
            execute(connection, _SQL["fill"], (receipt.decode(), key))
            connection.commit()
            return receipt
        held_digest, held_receipt = found[0]
        if held_digest != request_digest.hex():
            raise UsageError(f"surefoot_receipts holds another request under key {key}; the namespaces collide")
        if held_receipt is None:
            raise UsageError(f"surefoot_receipts holds no receipt under key {key}: the body committed before its end")
        connection.rollback()
        return held_receipt.encode()
    except BaseException:
        connection.rollback()
        raise
