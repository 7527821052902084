"""Connects to PostgreSQL for the middleware's claims. The only module here that knows the driver."""

from __future__ import annotations

import logging
from typing import Any

from ..core.errors import StoreRefused, UsageError
from ..stores.queries import load_queries

_SQL = load_queries(__file__, "postgres.sql")
_log = logging.getLogger("surefoot.inbox")
PASSING = ("08", "40", "57P", "53")
"""SQLSTATE beginnings: connection, rolled back by the server, shutting down or starting, out of resources."""


def connect(url: str) -> Any:
    """A connection that survives a transaction pooler; StoreRefused if an acknowledged commit may get lost."""
    try:
        import psycopg
    except ImportError as error:
        raise UsageError("a PostgreSQL store needs psycopg; run `pip install surefoot[postgres]`") from error
    connection: Any = psycopg.connect(url, application_name="surefoot inbox", prepare_threshold=None)
    fsync, synchronous = connection.execute(_SQL["durability"]).fetchone()
    connection.rollback()
    if synchronous == "off":
        connection.close()
        raise StoreRefused(
            "expected synchronous_commit on, found off: an acknowledged claim could be lost, and its handler run "
            "twice. Switch it on for this role or database."
        )
    if fsync == "off":
        _log.warning("fsync is off on this server: a crash of its machine can lose every claim; switch it on")
    return connection


def is_passing(error: BaseException) -> bool:
    """True if another try may succeed."""
    import psycopg

    state: str = getattr(error, "sqlstate", None) or ""
    if state:
        return state.startswith(PASSING)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
