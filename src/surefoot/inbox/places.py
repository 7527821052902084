"""Where the middleware keeps its claims: a SQLite file, or a PostgreSQL database. What differs between them is here.

On SQLite the lease counts on a clock of this boot, and a lock that the operating system drops with the process says at
once that an owner is gone. On PostgreSQL the database's clock counts, and only the lease tells.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..core.errors import NotCommitted, StoreError, UsageError
from ..runtime.clock import SystemClock
from ..stores.sqlite.connection import PRAGMAS, open_connection
from ..stores.sqlite.place import boot_name
from ..stores.sqlite.presence import Presence
from .once import create_table
from .wire import Calls, Wire, driver_error, is_locked

POSTGRES_SCHEMES = ("postgresql://", "postgres://")


class Moment(NamedTuple):
    """Now: seconds since the epoch, and on the lease clock of a boot."""

    at: float
    lease_now: float
    boot: str


class Place(Protocol):
    """A database for claims."""

    threads: int

    def connect(self) -> Any:
        """A new connection whose commits are durable."""
        ...

    def create(self, wire: Wire) -> Calls[None]:
        """Make the table if it is missing."""
        ...

    def moment(self, wire: Wire) -> Calls[Moment]:
        """What time it is for everybody who uses this place."""
        ...

    def appear(self, owner: int) -> None:
        """Show that this process lives."""
        ...

    def is_gone(self, owner: int) -> bool:
        """True if that process has certainly ended."""
        ...

    def vanish(self) -> None:
        """Show it no longer."""
        ...

    def may_try_again(self, error: BaseException) -> bool:
        """True for an error that another try, on a new connection if need be, may not meet."""
        ...


def place_of(store: object) -> Place:
    """The place that a path or a URL names; UsageError for anything else."""
    if isinstance(store, str) and store.startswith(POSTGRES_SCHEMES):
        return PostgresPlace(store)
    if isinstance(store, str) and "://" in store:
        scheme = store.partition("://")[0]
        raise UsageError(f"store= names {scheme!r}; expected the path of a SQLite file, or postgresql://…")
    if not isinstance(store, str | os.PathLike) or not str(store) or str(store) == ":memory:":  # pyright: ignore[reportUnknownArgumentType]
        raise UsageError(
            f"store= must be the path of a SQLite file, a postgresql:// URL or an Inbox, found {store!r}; a database "
            "in memory would forget with the process"
        )
    return SqlitePlace(Path(store))  # pyright: ignore[reportUnknownArgumentType]


class SqlitePlace:
    """A file of Surefoot's own; several processes of one machine may share it."""

    threads = 1

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet."""
        self._path = path.absolute()
        self._presence = Presence(str(self._path))
        self._clock = SystemClock()
        self._boot = boot_name()

    def connect(self) -> Any:
        """See `Place`."""
        return open_connection(str(self._path))

    def create(self, wire: Wire) -> Calls[None]:
        """See `Place`. The file is marked as ours in the same transaction."""
        if not (yield from wire.execute("exists")).rows[0][0]:
            yield from create_table(wire)
            yield lambda: wire.connection.execute(PRAGMAS["set_application_id"])

    def moment(self, wire: Wire) -> Calls[Moment]:
        """See `Place`."""
        yield from ()
        return Moment(self._clock.now(), self._clock.lease_now(), self._boot)

    def appear(self, owner: int) -> None:
        """See `Place`."""
        self._presence.appear(owner)

    def is_gone(self, owner: int) -> bool:
        """See `Place`."""
        return self._presence.is_gone(owner)

    def vanish(self) -> None:
        """See `Place`."""
        self._presence.vanish()

    def may_try_again(self, error: BaseException) -> bool:
        """See `Place`: somebody else holds the write lock."""
        return is_locked(error) or isinstance(error, NotCommitted)


class PostgresPlace:
    """A PostgreSQL database; many machines may share it."""

    threads = 4

    def __init__(self, url: str) -> None:
        """Nothing is opened yet."""
        self._url = url

    def connect(self) -> Any:
        """See `Place`."""
        from .postgres import connect

        return connect(self._url)

    def create(self, wire: Wire) -> Calls[None]:
        """See `Place`."""
        yield from create_table(wire)

    def moment(self, wire: Wire) -> Calls[Moment]:
        """See `Place`."""
        at = (yield from wire.execute("clock")).rows[0][0]
        return Moment(at, at, "")

    def appear(self, owner: int) -> None:
        """See `Place`: the lease alone shows it."""

    def is_gone(self, owner: int) -> bool:
        """See `Place`: the lease alone tells."""
        return False

    def vanish(self) -> None:
        """See `Place`."""

    def may_try_again(self, error: BaseException) -> bool:
        """See `Place`: a lost connection, a server that restarts, a serialisation failure, a deadlock."""
        from .postgres import is_passing

        return is_passing(driver_error(error))


def could_not(place_error: BaseException) -> StoreError:
    """What a caller is told."""
    return StoreError(f"the inbox could not reach its store: {type(place_error).__name__}: {place_error}")
