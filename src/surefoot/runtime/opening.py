"""Opens the store that a URL names; a program that can do nothing without it may wait until its server is there.

Waiting is for a server that does not answer, as while it restarts. What a server, once it answers, refuses (a wrong
password, missing rights, a newer schema) no waiting mends, so that ends a waiting program at once, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from ..core.errors import StoreRefused, StoreUnreachable, UsageError
from ..stores.base import Store
from .clock import Clock, SystemClock, random_number
from .ending import warn

WAIT_SECONDS_MIN, WAIT_SECONDS_MAX = 0.2, 5.0
ALMOST_URLS = ("sqlite:", "postgres:", "postgresql:")
_patient: ContextVar[Clock | None] = ContextVar("surefoot_patient", default=None)


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store that a URL names: a path, `sqlite:///path`, `postgresql://…`, or `memory:`."""
    text = os.fspath(url)
    if text in ("memory:", ":memory:"):
        from ..stores.memory import MemoryStore

        return MemoryStore()
    if text.startswith(("postgresql://", "postgres://")):
        clock = _patient.get()
        return _open_postgres(text) if clock is None else _once_there(lambda: _open_postgres(text), clock)
    if "://" in text and not text.startswith("sqlite:///"):
        scheme = text.partition("://")[0]
        raise UsageError(f"cannot open {scheme}://…; expected a path, sqlite:///path, postgresql://… or memory:")
    if "://" not in text and text.startswith(ALMOST_URLS):
        # a file of that name would be an empty store, and nobody would find what it should hold
        scheme = text.partition(":")[0]
        raise UsageError(f"cannot open {scheme}:…; expected a path, sqlite:///path or postgresql://…")
    if not text.strip() or "\0" in text:
        raise UsageError(f"cannot open {text!r}; expected the path of a database file")
    from ..stores.sqlite.store import SqliteStore

    return SqliteStore(text.removeprefix("sqlite:///"))


def _open_postgres(url: str) -> Store:
    try:
        from ..stores.postgres.store import PostgresStore
    except ImportError as error:
        raise StoreRefused(f"PostgreSQL needs its driver ({error}): pip install 'surefoot[postgres]'") from None
    return PostgresStore(url)


@contextmanager
def patience(clock: Clock | None = None) -> Generator[None]:
    """Inside, on this thread, a store whose server does not answer is waited for; the log says so once."""
    token = _patient.set(clock or SystemClock())
    try:
        yield
    finally:
        _patient.reset(token)


def _once_there(open_it: Callable[[], Store], clock: Clock) -> Store:
    seconds, waited = WAIT_SECONDS_MIN, False
    while True:
        try:
            store = open_it()
        except StoreUnreachable as error:
            if not waited:
                warn("%s. Waiting for it", error)
            waited = True
            clock.sleep(seconds * (0.5 + random_number() / 2))
            seconds = min(seconds * 2, WAIT_SECONDS_MAX)
        else:
            if waited:
                warn("the store is there")
            return store
