"""`same_transaction`, the contract; how it is kept is in `transactional`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..core.contract import Answers, Contract, Kind
from ..core.errors import UsageError


class SameTransaction(msgspec.Struct, frozen=True):
    """A contract together with the way to a connection."""

    contract: Contract
    connect: Callable[[], Any]


def same_transaction(connect: Callable[[], Any]) -> SameTransaction:
    """The effect writes to the database that `connect()` opens; the receipt commits in the same transaction.

    `connect` returns a new DB-API connection, or SQLAlchemy's Session or Connection; it is closed after each try. The
    body uses `attempt.connection` and must not commit. Call `create_receipts_table(connection)` once beforehand.
    """
    if not callable(connect):
        raise UsageError("same_transaction(connect) needs a function that returns a new DB-API connection")
    return SameTransaction(Contract(kind=Kind.SAME_TRANSACTION, key_name="", answers=Answers(refused=())), connect)
