"""LISTEN on PostgreSQL: a hint that saves waiting for the next poll, and never more than that.

On a connection of its own. A notification that is lost, or a connection that breaks, costs one poll.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ..core.errors import UsageError
from ..effects.dbapi import Dialect, dialect_of, execute
from ..runtime.ending import warn
from .table import queries

HEAR_SECONDS = 0.25
AGAIN_SECONDS = 5.0


def _listening(connect: Callable[[], Any]) -> Any:
    connection = connect()
    if not (dialect_of(connection) is Dialect.POSTGRES and callable(getattr(connection, "notifies", None))):
        connection.close()
        raise UsageError(f"listen=True needs connect() to return a psycopg 3 connection, found {type(connection)!r}")
    connection.autocommit = True
    execute(connection, queries(Dialect.POSTGRES)["listen"])
    return connection


@contextmanager
def listener(connect: Callable[[], Any], wake: threading.Event) -> Generator[bool]:
    """Sets `wake` at every notification, on a thread; UsageError if connections of `connect` cannot listen."""
    first, stop = _listening(connect), threading.Event()

    def hear() -> None:
        connection = first
        while not stop.is_set():
            try:
                connection = connection or _listening(connect)
                for _ in connection.notifies(timeout=HEAR_SECONDS, stop_after=1):
                    wake.set()
            except Exception as error:
                warn("outbox: listening failed (%s: %s); polling goes on", type(error).__name__, error)
                connection = None
                stop.wait(AGAIN_SECONDS)
        if connection is not None:
            connection.close()

    thread = threading.Thread(target=hear, name="surefoot-outbox-listen", daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stop.set()
        thread.join()
