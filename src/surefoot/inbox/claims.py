"""`Inbox`: the middleware's claims in their database, and what an operator does with those that are in doubt.

Each operation is one transaction of a fixed shape (find, decide by the rules, save), done in a thread of the inbox's
own, never in the event loop's. Every one may be tried again after an unknown commit: a claim knows its own stamp.
A heartbeat renews the leases of what runs here, and records late what could not be recorded in time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import astuple, replace

from ..core.errors import ForkedStore, StoreError, SurefootError, UsageError
from ..runtime.clock import first_stamp, new_owner_id
from .answers import Answer, check_answer, store_answer
from .once import check_expires
from .places import could_not, place_of
from .rules import Claim, Ending, Move, Run, Standing, Verdict, View, check_key, decide, end, needs_a_person, settle
from .wire import Calls, Wire, drive

R = TypeVar("R")
TRIES = 60
PAUSE_SECONDS = 0.05
BEATS_A_LEASE = 3
CLAIMS_BETWEEN_PURGES = 1000
_log = logging.getLogger("surefoot.inbox")


class Ask(NamedTuple):
    """A request that wants to run."""

    scope: str
    key: str
    digest: str
    transactional: bool
    expires_seconds: float | None


class Inbox:
    """Claims and stored answers in a SQLite file (path) or a PostgreSQL database (URL). Opened at its first use.

    `lease` is how long a process that stopped answering is still believed to be running its handlers. On SQLite the end
    of a process is noticed at once, so it counts only for one that hangs.
    """

    def __init__(self, store: str | os.PathLike[str], *, lease: timedelta = timedelta(seconds=30)) -> None:
        """Nothing is opened yet; UsageError for a store or a lease that cannot be one."""
        self._place = place_of(store)
        seconds = check_expires(lease)
        if seconds is None:
            raise UsageError("lease= must be a positive timedelta, found None")
        self._lease_seconds = seconds
        self._owner = new_owner_id()
        self._stamp = first_stamp()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._connections: list[Any] = []
        self._running: dict[int, Claim] = {}
        self._unrecorded: list[Ending] = []
        self._claimed = 0
        self._pid = 0
        self._pool: ThreadPoolExecutor | None = None
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    # --- for the middleware -----------------------------------------------------------------------------------------

    async def claim(self, ask: Ask) -> Verdict:
        """Who may run it. When it says Run, the claim is durable and its lease is kept until `end`.

        Raises StoreError when the store cannot be reached; then nothing is to be run, and a claim that was committed
        all the same is given back by the heartbeat.
        """
        verdicts: list[Verdict] = []
        try:
            await self._in_thread(lambda: verdicts.append(self._claim_now(ask)))
        except asyncio.CancelledError:
            for verdict in verdicts:
                if isinstance(verdict, Run):  # nobody will run it
                    with suppress(StoreError):  # closed: then it counts as abandoned
                        self._opened().submit(self._end_now, Ending(verdict.claim, Move.RELEASE, forget=True))
            raise
        return verdicts[0]

    async def end(self, ending: Ending) -> str | None:
        """Record how a run ended; durable when it returns. Returns the answer that stands, if there is one.

        Raises StoreError if it could not be recorded: the heartbeat then goes on trying while this process lives, and
        until then the claim counts as running.
        """
        return await self._in_thread(lambda: self._end_now(ending))

    # --- for operators ----------------------------------------------------------------------------------------------

    def in_doubt(self) -> list[Claim]:
        """Calls of which nobody knows whether they happened, oldest first: each needs `resolve`.

        A transactional handler's are not among them: the next request settles those by running again.
        """

        def calls(wire: Wire) -> Calls[list[Claim]]:
            moment = yield from self._place.moment(wire)
            rows = (yield from wire.execute("unanswered")).rows
            return [claim for claim in map(open_claim, rows) if needs_a_person(claim, self._view(claim, moment))]

        return self._now(lambda: self._transact(calls))

    def resolve(
        self,
        key: str,
        *,
        scope: str | None = None,
        happened: Answer | None = None,
        did_not_happen: bool = False,
        expires: timedelta | None = timedelta(hours=24),
    ) -> Claim:
        """A person's word on a call in doubt: it happened, with this answer; or it did not, and may run again.

        `scope` is needed where several clients or endpoints use the same key. Durable when it returns. Raises
        UsageError for a key that is not there, has its answer, or is still running.
        """
        check_key(key)
        if (happened is None) is not did_not_happen:
            raise UsageError("say either happened=Answer(...) or did_not_happen=True")
        result = None if happened is None else store_answer(check_answer(happened))
        seconds = check_expires(expires)

        def calls(wire: Wire) -> Calls[Claim]:
            moment = yield from self._place.moment(wire)
            found = yield from _only(wire, key, scope)
            if found.result is not None and found.result == result:
                return found
            expires_at = None if seconds is None else moment.at + seconds
            after = settle(found, result, expires_at, self._view(found, moment))
            yield from _save(wire, after)
            return after

        return self._now(lambda: self._transact(calls))

    def purge(self) -> int:
        """Delete answers whose time is over; returns how many. Done now and then by itself. Doubts stay."""

        def calls(wire: Wire) -> Calls[int]:
            moment = yield from self._place.moment(wire)
            return (yield from wire.execute("purge", moment.at)).touched

        return self._now(lambda: self._transact(calls))

    def close(self) -> None:
        """Stop the heartbeat and close the connections. What still runs here then counts as abandoned."""
        self._stop.set()
        with self._lock:
            pool, heart, self._pool = self._pool, self._heart, None
        if pool is not None:
            pool.shutdown()
        if heart is not None:
            heart.join()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._place.vanish()

    # --- one transaction each ---------------------------------------------------------------------------------------

    def _claim_now(self, ask: Ask) -> Verdict:
        with self._lock:
            self._stamp += 1
            stamp = self._stamp
            self._claimed += 1
            purge = self._claimed % CLAIMS_BETWEEN_PURGES == 0

        asked = Claim(
            scope=ask.scope,
            key=ask.key,
            digest=ask.digest,
            standing=Standing.RUNNING,
            attempts=1,
            transactional=ask.transactional,
            stamp=stamp,
            owner=self._owner,
            boot="",
            lease_until=0.0,
            began_at=0.0,
            expires_at=None,
        )
        verdict = None
        try:
            while verdict is None:  # None: the row went away in between
                verdict = self._transact(lambda wire: self._claim_in(wire, asked, ask.expires_seconds, purge))
        except StoreError:
            with self._lock:
                self._unrecorded.append(Ending(asked, Move.RELEASE, forget=True))
            raise
        if isinstance(verdict, Run):
            with self._lock:
                self._running[stamp] = verdict.claim
        return verdict

    def _claim_in(self, wire: Wire, asked: Claim, seconds: float | None, purge: bool) -> Calls[Verdict | None]:
        moment = yield from self._place.moment(wire)
        if purge:
            yield from wire.execute("purge", moment.at)
        asked = replace(
            asked,
            boot=moment.boot,
            lease_until=moment.lease_now + self._lease_seconds,
            began_at=moment.at,
            expires_at=None if seconds is None else moment.at + seconds,
        )
        if (yield from wire.execute("insert", *_row(asked))).touched == 1:
            return Run(asked)
        found = yield from _locked(wire, asked.scope, asked.key)
        if found is None:
            return None
        verdict = decide(found, asked, self._view(found, moment))
        if verdict.claim is not found:
            yield from _save(wire, verdict.claim)
        return verdict

    def _end_now(self, ending: Ending) -> str | None:
        try:
            return self._record(ending)
        except StoreError:
            with self._lock:
                self._unrecorded.append(ending)
            raise

    def _record(self, ending: Ending) -> str | None:
        mine = ending.claim

        def calls(wire: Wire) -> Calls[str | None]:
            moment = yield from self._place.moment(wire)
            found = yield from _locked(wire, mine.scope, mine.key)
            after = end(found, ending, moment.at)
            if after is None:
                return found.result if found is not None else None
            if ending.forget and after.attempts == 1 and after.standing is Standing.RELEASED:
                yield from wire.execute("delete", mine.scope, mine.key)
            else:
                yield from _save(wire, after)
            return after.result

        stands = self._transact(calls)
        with self._lock:
            self._running.pop(mine.stamp, None)
        return stands

    def _view(self, found: Claim, moment: Any) -> View:
        gone = found.owner != self._owner and found.standing is Standing.RUNNING and self._place.is_gone(found.owner)
        return View(moment.boot, moment.lease_now, moment.at, gone, found.stamp in self._running)

    # --- threads, connections, heartbeat ----------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], R]) -> R:
        """In a thread of ours, to its end: a cancelled caller is told only when the work is done."""
        future = asyncio.wrap_future(self._opened().submit(work))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException:
                break
        if cancelled is not None:
            raise cancelled
        return future.result()

    def _now(self, work: Callable[[], R]) -> R:
        return self._opened().submit(work).result()

    def _opened(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._stop.is_set():
                raise StoreError("this Inbox is closed; make another one")
            if self._pool is None:
                self._pid = os.getpid()
                self._pool = ThreadPoolExecutor(self._place.threads, "surefoot-inbox")
                self._heart = threading.Thread(target=self._beat, name="surefoot-inbox-heart", daemon=True)
                self._heart.start()
            if self._pid != os.getpid():
                raise ForkedStore(self._pid, os.getpid())
            return self._pool

    def _connect(self) -> Any:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            return connection
        connection = self._place.connect()
        wire = Wire(connection)
        with self._lock:
            self._place.appear(self._owner)
        drive(wire.begin())
        drive(self._place.create(wire))
        drive(wire.commit())
        self._local.connection = connection
        with self._lock:
            self._connections.append(connection)
        return connection

    def _disconnect(self) -> None:
        connection = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            with self._lock:
                self._connections.remove(connection)
            connection.close()

    def _transact(self, calls: Callable[[Wire], Calls[R]]) -> R:
        """Begin, do, commit; tried again while the store says that it is busy or away."""
        for tries_left in reversed(range(TRIES)):
            try:
                wire = Wire(self._connect())
                drive(wire.begin())
                value = drive(calls(wire))
                drive(wire.commit())
                return value
            except BaseException as error:
                self._disconnect()  # and with it whatever is open
                if not isinstance(error, Exception):
                    raise
                if not self._place.may_try_again(error) or not tries_left or self._stop.wait(PAUSE_SECONDS):
                    raise error if isinstance(error, SurefootError) else could_not(error) from error
        raise AssertionError("unreachable")

    def _beat(self) -> None:
        while not self._stop.wait(self._lease_seconds / BEATS_A_LEASE):
            with self._lock:
                running, endings = list(self._running.values()), list(self._unrecorded)
            try:
                if running:
                    self._transact(lambda wire, running=running: self._renew(wire, running))
                for ending in endings:
                    self._record(ending)
                    with self._lock:
                        self._unrecorded.remove(ending)
            except Exception:
                _log.exception(
                    "the inbox could not renew its leases, or record how its handlers ended; it goes on trying"
                )

    def _renew(self, wire: Wire, running: list[Claim]) -> Calls[None]:
        moment = yield from self._place.moment(wire)
        for claim in running:
            until = moment.lease_now + self._lease_seconds
            yield from wire.execute("renew", until, claim.scope, claim.key, claim.stamp)


# --- rows -------------------------------------------------------------------------------------------------------------


def _row(claim: Claim) -> tuple[Any, ...]:
    scope, key, digest, standing, attempts, transactional, *others = astuple(claim)
    return (scope, key, digest, standing.value, attempts, int(transactional), *others)


def open_claim(row: tuple[Any, ...]) -> Claim:
    """The claim in a row; an unknown standing is an error."""
    scope, key, digest, standing, attempts, transactional, *others = row
    stamp, owner, boot, lease_until, began_at, expires_at, result = others
    return Claim(
        scope=scope,
        key=key,
        digest=digest,
        standing=Standing(standing),
        attempts=attempts,
        transactional=bool(transactional),
        stamp=stamp,
        owner=owner,
        boot=boot,
        lease_until=lease_until,
        began_at=began_at,
        expires_at=expires_at,
        result=result,
    )


def _save(wire: Wire, claim: Claim) -> Calls[None]:
    scope, key, *others = _row(claim)
    done = yield from wire.execute("save", *others, scope, key)
    assert done.touched == 1, "the row is locked, so it is there"


def _locked(wire: Wire, scope: str, key: str) -> Calls[Claim | None]:
    rows = (yield from wire.execute("find_locked", scope, key)).rows
    return open_claim(rows[0]) if rows else None


def _only(wire: Wire, key: str, scope: str | None) -> Calls[Claim]:
    found = [open_claim(row) for row in (yield from wire.execute("with_key", key)).rows]
    if scope is not None:
        found = [claim for claim in found if claim.scope == scope]
    if len(found) > 1:
        scopes = ", ".join(repr(claim.scope) for claim in found)
        raise UsageError(f"key {key!r} was used in several scopes; name one with scope=: {scopes}")
    if not found:
        where = "" if scope is None else f" in scope {scope!r}"
        raise UsageError(f"there is no call under key {key!r}{where}; inbox.in_doubt() lists those that need a person")
    locked = yield from _locked(wire, found[0].scope, key)
    return locked or found[0]
