"""`same_transaction`: the effect is a change in the user's own database, and its receipt commits with it.

A small table, `surefoot_receipts`, lives in that database. The receipt's row is inserted first, so a second transaction
for the same effect waits for the first or finds its receipt: the effect happened exactly when its row is there. Any
DB-API connection will do; SQLite too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..core.contract import Answers, Contract, Kind
from ..core.errors import UsageError
from ..stores.paramstyle import style_of, with_marks
from ..stores.queries import load_queries

_SQL = load_queries(__file__, "receipts.sql")


class SameTransaction(msgspec.Struct, frozen=True):
    """A contract together with the way to a connection."""

    contract: Contract
    connect: Callable[[], Any]


def same_transaction(connect: Callable[[], Any]) -> SameTransaction:
    """The effect writes to the database that `connect()` opens; the receipt commits in the same transaction.

    `connect` returns a new DB-API connection; it is closed after each try. The body uses `attempt.connection` and must
    not commit. Call `create_receipts_table(connection)` once beforehand.
    """
    if not callable(connect):
        raise UsageError("same_transaction(connect) needs a function that returns a new DB-API connection")
    return SameTransaction(Contract(kind=Kind.SAME_TRANSACTION, key_name="", answers=Answers(refused=())), connect)


def create_receipts_table(connection: Any) -> None:
    """Create `surefoot_receipts` in the user's database, if it is not there, and commit."""
    cursor = connection.cursor()
    cursor.execute(_SQL["create"])
    cursor.close()
    connection.commit()


def _statement(connection: Any, name: str) -> str:
    return with_marks(_SQL[name], style_of(connection))


def perform_in_transaction(connection: Any, key: str, request_digest: bytes, body: Callable[[], bytes]) -> bytes:
    """Insert the receipt's row, run the body, fill in its receipt, commit; or return the receipt that is there.

    A crash or an exception anywhere inside leaves neither the change nor the row.
    """
    cursor = connection.cursor()
    try:
        begin = getattr(connection, "isolation_level", "") is None and hasattr(connection, "in_transaction")
        if begin:  # a sqlite3 connection in autocommit mode
            cursor.execute(_SQL["begin"])
        cursor.execute(_statement(connection, "find"), (key,))
        row = cursor.fetchone()
        if row is None:
            cursor.execute(_statement(connection, "claim"), (key, request_digest.hex()))
            receipt = body()
            cursor.execute(_statement(connection, "fill"), (receipt.decode(), key))
            connection.commit()
            return receipt
        if row[0] != request_digest.hex():
            raise UsageError(f"surefoot_receipts holds another request under key {key}; the namespaces collide")
        connection.rollback()
        return row[1].encode()
    except BaseException:
        connection.rollback()
        raise
    finally:
        cursor.close()
