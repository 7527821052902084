"""`once`: a change in the user's own database that commits together with its key, request and result, or not at all.

The key's row is inserted first. Its primary key makes a rival wait for our transaction, and then find our result; if
we roll back, or die, the row is gone with the change, and the rival runs. Nothing is ever half done, so nothing is
ever in doubt.

    with once(connection, key, {"item": "lamp", "count": 2}) as call:
        if call.first:
            connection.execute("UPDATE stock SET count = count - 2 WHERE item = 'lamp'")
            call.result = {"reserved": 2}
    return call.result
"""

from __future__ import annotations

import contextvars
import hashlib
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import msgspec

from ..core.errors import UsageError
from ..core.values import encode_canonical
from ..effects.dbapi import Dialect
from ..runtime.clock import SystemClock
from .errors import InProgress, KeyReused
from .rules import Standing, check_key, check_scope
from .wire import Calls, Wire, drive, drive_async, is_conflict, is_locked, is_missing_table, wire_of

R = TypeVar("R")
LOOKS_MAX = 5
HTTP_SCOPE = "http:"
"""Scopes of the middleware's rows begin so; its table may be the same."""


class Watcher(Protocol):
    """Somebody who has to know that `once` was used: the call of a transactional endpoint."""

    used_once: bool


watcher: contextvars.ContextVar[Watcher | None] = contextvars.ContextVar("surefoot_inbox_call", default=None)


def create_inbox_table(connection: Any) -> Any:
    """Create `surefoot_inbox` in the user's database, if it is not there, and commit.

    For an asynchronous connection, await what this returns. Raises UsageError for something that is no connection, and
    the driver's error if the table may not be created.
    """
    wire = wire_of(connection)
    return (drive_async if wire.is_async else drive)(_create(wire))


def purge_inbox(connection: Any) -> Any:
    """Delete results whose time is over, and commit; returns how many. For an asynchronous connection, await it."""
    wire = wire_of(connection)
    return (drive_async if wire.is_async else drive)(_purge(wire, SystemClock().now()))


def _create(wire: Wire) -> Calls[None]:
    yield from wire.begin()
    yield from create_table(wire)
    yield from wire.commit()


def create_table(wire: Wire) -> Calls[None]:
    """Create the table in the open transaction, unless it is there."""
    if wire.dialect is None:
        yield from wire.execute("create")
        return
    if (yield from wire.execute("exists")).rows[0][0]:
        return
    if wire.dialect is Dialect.POSTGRES:
        yield from wire.execute("lock_creation")
    yield from wire.execute("create")
    yield from wire.execute("create_index")


def _purge(wire: Wire, at: float) -> Calls[int]:
    yield from wire.begin()
    gone = yield from wire.execute("purge", at)
    yield from wire.commit()
    return gone.touched


def request_digest(request: object) -> str:
    """64 hex digits over a request: bytes as they are, anything else as canonical JSON."""
    if isinstance(request, bytes | bytearray):
        content, person = bytes(request), b"surefoot-bytes"
    else:
        content, person = encode_canonical(request, "the request"), b"surefoot-json"
    return hashlib.blake2b(content, digest_size=32, person=person).hexdigest()


def check_expires(expires: object) -> float | None:
    """Seconds, or None for never; UsageError for anything that is no positive duration."""
    if expires is None:
        return None
    if not isinstance(expires, timedelta) or expires <= timedelta():
        raise UsageError(f"expires= must be a positive timedelta, or None for never; found {expires!r}")
    return expires.total_seconds()


class Once:
    """One call of `once`. `first`: run the change, and set `result`. Otherwise `result` is what the first call stored.

    `result` is JSON; after the block it is what was stored, so that the first call and every repeat return the same.
    """

    def __init__(self, wire: Wire, key: str, scope: str, digest: str, seconds: float | None, commits: bool) -> None:
        """Made by `once`."""
        self.key, self.scope = key, scope
        self.first = False
        self.result: Any = None
        self._wire = wire
        self._digest = digest
        self._seconds = seconds
        self._commits = commits
        self._entered = False

    def __enter__(self) -> Self:
        """Claim the key, or read its result."""
        if self._wire.is_async:
            raise UsageError("this connection is asynchronous; write `async with once(...)` instead of `with`")
        drive(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store the result and commit; or roll back."""
        drive(self._leave(error))

    async def __aenter__(self) -> Self:
        """Claim the key, or read its result."""
        await drive_async(self._enter())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store the result and commit; or roll back."""
        await drive_async(self._leave(error))

    # --- what happens, for both --------------------------------------------------------------------------------------

    def _enter(self) -> Calls[None]:
        if self._entered:
            raise UsageError("this once(...) was used already; call once() anew for each call")
        self._entered = True
        if self._commits and self._wire.is_open():
            raise UsageError(
                "a transaction is open on this connection, and once() would commit what is in it. Call once() first; "
                "or pass commit=False and commit yourself: the change, its key and its result then commit with the rest"
            )
        try:
            if self._commits:
                yield from self._wire.begin()
            self.first = yield from self._claim()
            if not self.first and self._commits:
                yield from self._wire.rollback()  # it was only read
            watched = watcher.get()
            if watched is not None:
                watched.used_once = True
        except BaseException as error:
            if self._commits:
                yield from self._wire.rollback()
            if is_locked(error):
                why = "its row, or the database, is locked by another transaction"
                raise InProgress(self.key, self.scope, why) from error
            if is_missing_table(error):
                raise UsageError(
                    "this database has no table surefoot_inbox; call create_inbox_table(connection) once beforehand, "
                    "or put its statement into your migrations"
                ) from error
            raise

    def _claim(self) -> Calls[bool]:
        for _ in range(LOOKS_MAX):
            if (yield from self._insert()):
                yield from self._refuse_autocommit()
                return True
            found = yield from self._wire.execute("find", self.scope, self.key)
            if not found.rows:
                continue  # it was rolled back, or purged, in between
            _, _, digest, standing, *_, expires_at, result = found.rows[0]
            if expires_at is not None and expires_at <= SystemClock().now():
                if (yield from self._replace(expires_at)):
                    return True
                continue
            if digest != self._digest:
                raise KeyReused(self.key, self.scope)
            if standing != Standing.ANSWERED:
                raise UsageError(
                    f"the row of key {self.key!r} in surefoot_inbox was committed without a result: the block of an "
                    "earlier once() has committed by itself. Take that commit out, then look whether the change is "
                    "there; delete the row if it is not"
                )
            self.result = msgspec.json.decode(result)
            return False
        raise InProgress(self.key, self.scope, f"other calls came and went {LOOKS_MAX} times")

    def _insert(self) -> Calls[bool]:
        now = SystemClock().now()
        expires_at = None if self._seconds is None else now + self._seconds
        row = (self.scope, self.key, self._digest, Standing.RUNNING.value, 1, 1, 0, 0, "", 0.0, now, expires_at, None)
        yield from self._wire.begin()
        if self._wire.dialect is not None:
            return (yield from self._wire.execute("insert", *row)).touched == 1
        if (yield from self._wire.execute("find", self.scope, self.key)).rows:
            return False
        try:
            yield from self._wire.execute("insert_or_fail", *row)
        except Exception as error:
            if not is_conflict(error):
                raise
            if not self._commits:
                why = "another call committed first; roll back"
                raise InProgress(self.key, self.scope, why) from error
            yield from self._wire.rollback()
            return False
        return True

    def _refuse_autocommit(self) -> Calls[None]:
        if self._wire.is_open() is False:
            yield from self._wire.execute("delete", self.scope, self.key)
            raise UsageError(
                "this connection is in autocommit mode, where the change and its result would commit one by one; use "
                "one that keeps a transaction open"
            )

    def _replace(self, expired_at: float) -> Calls[bool]:
        now = SystemClock().now()
        expires_at = None if self._seconds is None else now + self._seconds
        values = (self._digest, Standing.RUNNING.value, now, expires_at, self.scope, self.key, expired_at)
        return (yield from self._wire.execute("replace", *values)).touched == 1

    def _leave(self, error: BaseException | None) -> Calls[None]:
        if not self.first or error is not None:
            if self._commits:
                yield from self._wire.rollback()
            return
        try:
            content = encode_canonical(self.result, "call.result")
            if self._wire.is_open() is False:
                raise UsageError(
                    "the block of once() has committed or rolled back by itself; leave that to once(), which commits "
                    "the change together with its result"
                )
            done = yield from self._wire.execute(
                "fill", Standing.ANSWERED.value, content.decode(), self.scope, self.key
            )
            if done.touched != 1:
                raise UsageError(
                    f"the row of key {self.key!r} has gone from surefoot_inbox: was it rolled back inside?"
                )
            if self._commits:
                yield from self._wire.commit()
        except BaseException:
            if self._commits:
                yield from self._wire.rollback()
            raise
        self.result = msgspec.json.decode(content)


def once(
    connection: Any,
    key: str,
    request: object,
    *,
    scope: str = "",
    expires: timedelta | None = None,
    commit: bool = True,
) -> Once:
    """A context manager: of all calls with one key, one runs its change; the others get its result.

    `connection` is a DB-API connection, or a SQLAlchemy Session or Connection; with an asynchronous one, write `async
    with`. `request` is bytes or anything that JSON holds: another one under the same key raises KeyReused. `scope`
    keeps keys of different clients apart. `expires` is how long the result is kept; None is for ever.

    A rival waits as the database lets it, then gets the result; InProgress is raised when the database gives up
    waiting (SQLite's timeout, PostgreSQL's lock_timeout). When the block ends, the change, the key, the request and the
    result are committed in one transaction; an exception, or a crash anywhere, leaves none of them. With `commit=False`
    the caller's own commit does that. If the commit itself raises, call again: the key tells whether it happened.
    """
    check_key(key)
    check_scope(scope)
    if scope.startswith(HTTP_SCOPE):
        raise UsageError(f"scope= may not begin with {HTTP_SCOPE!r}, which the middleware's own rows begin with")
    return Once(wire_of(connection), key, scope, request_digest(request), check_expires(expires), commit)


__all__ = ["Once", "create_inbox_table", "once", "purge_inbox"]
