"""Deliverers: claim rows, send them on threads, mark them. Any number of processes may run one.

One thread owns the connection to the user's database and does claims and marks; effects run on `workers` threads, so
a receiver that hangs holds up nobody else. A row is marked only after its end stands in Surefoot's store, so a crash in
between costs a look there, never a second send. A row over which a deliverer died is sent alone from then on, so that
poison is found without blaming its neighbours.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Self

from ..core.errors import UsageError
from ..core.policy import delay_seconds
from ..effects.dbapi import dialect_of, execute
from ..runtime.app import Surefoot
from ..runtime.clock import WAKE_SECONDS
from ..runtime.ending import warn
from .claims import Claimed, Claims
from .delivery import Outcome, deliver_row
from .eventloop import EventLoop
from .listening import listener
from .row import State
from .table import queries

SWEEP_SECONDS = 1.0
SUSPECTS_SECONDS = 10.0
WORKERS = 8
_wakes: set[threading.Event] = set()
_wakes_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """How many rows stand where after `deliver`: of those that it looked at, each once, as it was left."""

    delivered: int = 0
    refused: int = 0
    abandoned: int = 0
    waiting: int = 0
    parked: int = 0
    stuck: int = 0


def deliver(
    sf: Surefoot,
    connect: Callable[[], Any],
    *,
    workers: int = WORKERS,
    keep: timedelta | None = None,
    budget: timedelta | None = None,
) -> Delivered:
    """Deliver what is due now, and return when nothing is; rows that have to wait stay for the next call.

    `connect` returns a new connection to the database of the outbox (DB-API, or SQLAlchemy's `engine.connect`). Rows
    that were delivered longer than `keep` ago are deleted. `budget` is how long what could not be sent is tried again,
    instead of the effect's own. Parked and stuck rows are looked at again. Raises UsageError when the tables are
    missing, or what the driver raises. When it returns, what it counted is durable in both databases. A crash inside
    leaves rows claimed, which the next deliverer takes over at once.
    """
    with _Deliverer(sf, connect, workers, keep, budget) as deliverer:
        deliverer.open()
        deliverer.claims.wake()
        left = deliverer.left = dict[str, State]()
        while deliverer.turn():
            deliverer.pause(SWEEP_SECONDS)
        return Delivered(**{state.value: count for state, count in Counter(left.values()).items()})


def run(
    sf: Surefoot,
    connect: Callable[[], Any],
    *,
    poll_seconds: float = 1.0,
    stop: threading.Event | None = None,
    listen: bool = False,
    workers: int = WORKERS,
    keep: timedelta | None = None,
    budget: timedelta | None = None,
) -> None:
    """Deliver for ever, or until `stop` is set: in a thread, or as a process of its own.

    Looks every `poll_seconds`, and at once after `nudge()` in this process; `listen=True` (PostgreSQL, psycopg 3) also
    wakes at `nudge(connection)` in any process. An outage of the database is waited out, with a warning in the log
    "surefoot". When it returns, what was being sent has ended and is marked.
    """
    if poll_seconds <= 0:
        raise UsageError(f"poll_seconds must be more than 0, found {poll_seconds!r}")
    stop = stop or threading.Event()
    failures, hears = 0, False
    with ExitStack() as stack:
        deliverer = stack.enter_context(_Deliverer(sf, connect, workers, keep, budget, stop))
        while not stop.is_set():
            try:
                deliverer.open()
                if listen and not hears:
                    hears = stack.enter_context(listener(connect, deliverer.wake))
                deliverer.turn()
                failures = 0
                deliverer.pause(poll_seconds)
            except UsageError:
                raise
            except Exception as error:
                failures += 1
                warn("outbox: the database failed (%s: %s); trying again", type(error).__name__, error)
                deliverer.drop_connection()
                deliverer.pause(delay_seconds(failures), until_due=False)


def nudge(connection: Any = None) -> None:
    """Wake the deliverers of this process; call it after your commit.

    With a PostgreSQL `connection` that is in no transaction, also those of other processes that `listen`: one
    statement, committed here.
    """
    with _wakes_lock:
        wakes = list(_wakes)
    for wake in wakes:
        wake.set()
    if connection is not None:
        statement = queries(dialect_of(connection)).get("notify")
        if statement is None:
            raise UsageError(
                "outbox.nudge(connection) needs PostgreSQL; elsewhere nudge() and polling are all there is"
            )
        execute(connection, statement)
        connection.commit()


class _Deliverer:
    """One loop over one connection; see `run`."""

    def __init__(
        self,
        sf: Surefoot,
        connect: Callable[[], Any],
        workers: int,
        keep: timedelta | None,
        budget: timedelta | None,
        stop: threading.Event | None = None,
    ) -> None:
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, found {workers!r}")
        if not callable(connect) or hasattr(
            connect, "cursor"
        ):  # a sqlite3 connection can be called, for something else
            raise UsageError(f"connect must be a function that returns a new connection, found {connect!r}")
        for name, value in (("keep", keep), ("budget", budget)):
            if value is not None and value < timedelta(0):
                raise UsageError(f"{name} must be 0 or more, found {value!r}")
        sf.engine.committer.check_process()
        self._engine, self._connect, self._workers, self._budget = sf.engine, connect, workers, budget
        self._keep_seconds = None if keep is None else keep.total_seconds()
        self._stop = stop or threading.Event()
        self._opened: Claims | None = None
        self._flying: set[Claimed] = set()
        self._landed: deque[tuple[Claimed, Outcome]] = deque()
        self._pool = ThreadPoolExecutor(workers, "surefoot-outbox")
        self._loop = EventLoop()
        self._alone_until_none = True
        self._suspects_at = self._swept_at = 0.0
        self._took_all = False
        self.wake = threading.Event()
        self.left: dict[str, State] | None = None

    def __enter__(self) -> Self:
        with _wakes_lock:
            _wakes.add(self.wake)
        return self

    def __exit__(self, kind: type[BaseException] | None, *ignored: object) -> None:
        """Let what is being sent end, and mark it if the database is there."""
        with _wakes_lock:
            _wakes.discard(self.wake)
        self._pool.shutdown(wait=True)
        self._loop.close()
        try:
            if self._opened is not None:
                self._mark()
        except Exception:
            if kind is None:
                raise
        finally:
            self.drop_connection()

    # --- the connection -----------------------------------------------------------------------------------------------

    @property
    def claims(self) -> Claims:
        """The open connection."""
        assert self._opened is not None
        return self._opened

    def open(self) -> None:
        """Connect, unless connected; this process becomes present in Surefoot's store before it claims anything."""
        if self._opened is None:
            self._engine.join()
            self._opened = Claims.over(self._connect(), self._engine)

    def drop_connection(self) -> None:
        """Close it, whatever state it is in."""
        opened, self._opened = self._opened, None
        if opened is not None:
            try:
                opened.close()
            except Exception as error:
                warn("outbox: closing a connection failed (%s)", error)

    # --- one turn -----------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Mark what has landed, claim what is due, send it; False once nothing is due and nothing is in the air."""
        self.wake.clear()
        self._mark()
        now = self._engine.clock.now()
        if now >= self._swept_at + SWEEP_SECONDS or now < self._swept_at:
            self.claims.sweep(self._keep_seconds)
            self._swept_at = now
        room = self._workers - len(self._flying)
        taken = [] if self._stop.is_set() or not room else self._take(room, now)
        for claimed in taken:
            self._flying.add(claimed)
            self._send(claimed)
        self._took_all = not taken
        return bool(self._flying or self._landed)

    def _take(self, room: int, now: float) -> list[Claimed]:
        """Rows to send now: those over which a deliverer died alone, one at a time, the others as there is room."""
        if not self._alone_until_none and now >= self._suspects_at + SUSPECTS_SECONDS:
            self._alone_until_none = self.claims.has_suspects()
            self._suspects_at = now
        if not self._alone_until_none:
            return self.claims.take(room)
        if self._flying:
            return []
        suspect = self.claims.take(1, suspects=True)
        if suspect:
            return suspect
        self._alone_until_none, self._suspects_at = False, now
        return self.claims.take(room)

    def _send(self, claimed: Claimed) -> None:
        work = partial(
            deliver_row, self._engine, self.claims.database, claimed.row, budget=self._budget, loop=self._loop
        )
        self._pool.submit(work).add_done_callback(partial(self._land, claimed))

    def _land(self, claimed: Claimed, done: Future[Outcome]) -> None:
        self._landed.append((claimed, done.result()))
        self.wake.set()

    def _mark(self) -> None:
        """Write down what landed; it is forgotten here only once that is durable."""
        landed = list(self._landed)
        if not landed:
            return
        for claimed, outcome in landed:
            self.claims.mark(claimed, outcome)
        self.claims.commit()
        for claimed, outcome in landed:
            self._landed.popleft()
            self._flying.discard(claimed)
            if self.left is not None:
                self.left[claimed.row.id] = outcome.state

    # --- waiting ------------------------------------------------------------------------------------------------------

    def pause(self, seconds: float, *, until_due: bool = True) -> None:
        """Wait until something lands, somebody nudges, a row falls due, or so long; not at all if there may be more."""
        if until_due:
            if not self._took_all and len(self._flying) < self._workers:
                return
            due = self.claims.seconds_to_next()
            seconds = seconds if due is None else max(0.0, min(seconds, due))
        while seconds > 0 and not self._stop.is_set() and not self.wake.wait(min(seconds, WAKE_SECONDS)):
            seconds -= WAKE_SECONDS
