"""One process's standing at one store: its owner row, its lease, its clock, its committer.

The heartbeat runs on a thread of its own, so that a workflow that computes for a minute keeps its lease.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from ..core.dispatch import Served
from ..core.dispatch_writes import Leave
from ..core.errors import StoreError, SurefootError
from ..core.lease import Owner, Vantage
from ..core.run import RunStatus
from ..core.writes import Join
from ..stores.base import HasTerms, Store
from .clock import Clock, first_stamp, host_name, new_owner_id
from .committer import Committer, Pending
from .lease_clock import LeaseClock

EVERYTHING = 1 << 31


class Engine:
    """Shared by all runs of one `Surefoot`."""

    def __init__(self, store: Store, clock: Clock, *, namespace: str, lease_seconds: float, inline_bytes: int) -> None:
        """Nothing is written until the first run or effect."""
        self.store, self.clock, self.namespace = store, clock, namespace
        self.lease_clock = LeaseClock(clock, store)
        self.inline_bytes = inline_bytes
        self.committer = Committer(store)
        self.owner = new_owner_id()
        self.name = f"process {os.getpid()} on {host_name()}"
        self.stamps: Iterator[int] = itertools.count(first_stamp())
        self.working: dict[str, object] = {}
        self.lease_until = 0.0
        self.serves: Served | None = None
        self.listeners: set[Callable[[], None]] = set()
        self.tend: Callable[..., BaseException | None] = _tend_nothing
        """Called for a child run that no worker may be there for: this process runs it."""
        self.lease_seconds = lease_seconds
        self._pid = os.getpid()
        self._joined = False
        self._join_lock = threading.Lock()
        self._stop_heart = threading.Event()
        self._heart: threading.Thread | None = None
        self.stop_check: Callable[[], None] = _go_on
        self.sync_handlers: Mapping[Any, Callable[[Any, Any], Any]] = {}
        self._async_handlers: Mapping[Any, Callable[[Any, Any], Awaitable[Any]]] = {}

    @property
    def async_handlers(self) -> Mapping[Any, Callable[[Any, Any], Awaitable[Any]]]:
        """The async driver's handlers; asyncio is imported when they are first asked for."""
        if not self._async_handlers:
            from .drive_async import ASYNC_HANDLERS

            self._async_handlers = ASYNC_HANDLERS
        return self._async_handlers

    @async_handlers.setter
    def async_handlers(self, handlers: Mapping[Any, Callable[[Any, Any], Awaitable[Any]]]) -> None:
        self._async_handlers = handlers

    def join(self) -> None:
        """Appear at the store before the first claim; the row is durable no later than that claim."""
        self.committer.check_process()
        if self._joined:
            return
        with self._join_lock:
            if self._joined:
                return
            self.store.appear(self.owner)
            self.committer.enqueue(Pending(self._join_write(0.0), callback=self._joined_as))
            self._joined = True
            self._heart = threading.Thread(target=self._beat, name="surefoot-heartbeat", daemon=True)
            self._heart.start()

    def _join_write(self, until: float) -> Join:
        # measured before the renewal is asked for, so that the lease can only be shorter than it seems
        lease_until = max(self.lease_until, until, self.lease_clock.latest() + self.lease_seconds)
        owner = Owner(
            id=self.owner,
            pid=os.getpid(),
            host=host_name(),
            boot=self.store.lease_boot,
            started_at=self.clock.now(),
            lease_until=lease_until,
            serves=self.serves,
        )
        return Join(owner=owner, stamp=next(self.stamps))

    def _beat(self) -> None:
        while not self._stop_heart.wait(self.lease_seconds / 3):
            try:
                self.lease_clock.measure()
                self.renew(self._join_write(0.0))
            except StoreError:
                continue  # the next beat tries again; a lapsed lease is noticed before a send

    def on_change(self) -> None:
        """This process has made a run ready: a worker here looks at once."""
        for tell in list(self.listeners):
            tell()

    def announce(self, serves: Served | None) -> None:
        """Say in the store what this process takes from queues, so that others can tell what nobody does."""
        self.serves = serves
        self.join()
        self.renew(self._join_write(0.0))

    def renew(self, write: Join) -> None:
        """Commit a renewal; it counts from when it is acknowledged."""
        self.committer.commit(write)
        self.acknowledge(write)

    def acknowledge(self, write: Join) -> None:
        """The store has this lease."""
        self.lease_until = max(self.lease_until, write.owner.lease_until)

    def _joined_as(self, pending: Pending) -> None:
        if pending.error is None and isinstance(pending.write, Join):
            self.acknowledge(pending.write)

    def renew_for(self, until: float) -> Join | None:
        """The write that makes the lease outlive `until` (wall clock), or None if it does already."""
        needed = self.lease_clock.latest() + (until - self.clock.now())
        # a little more than is needed, so that not every effect of a row of them has to renew
        return None if needed <= self.lease_until else self._join_write(needed + self.lease_seconds / 3)

    def look(self, suspect: int) -> Vantage:
        """What this process knows while it judges others."""
        gone = frozenset({suspect}) if suspect and self.store.is_gone(suspect) else frozenset[int]()
        return Vantage(
            owner=self.owner,
            boot=self.store.lease_boot,
            lease_now=self.lease_clock.earliest(),
            at=self.clock.now(),
            gone=gone,
            name=self.name,
        )

    def time(self) -> float:
        """Seconds since the epoch for timers; nobody can set this clock while the machine is up."""
        return self.lease_clock.time()

    def due_after(self, seconds: float) -> float:
        """The instant, by the clock of timers, at which certainly so much time has passed from now."""
        return self.lease_clock.due_after(seconds)

    def term(self) -> int:
        """The store's term (`core.term`), as far as this process has noticed; 0 where nothing can be lost."""
        return self.store.term.number if isinstance(self.store, HasTerms) else 0

    def is_ours(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._pid

    def leased(self) -> bool:
        """True while nobody may take this process's work."""
        return self.lease_clock.latest() < self.lease_until

    def close(self) -> None:
        """Stop the heart, take the owner's row away if nothing is left to it, and commit what is queued.

        The store closes separately.
        """
        if self.is_ours():
            self._stop_heart.set()
            if self._heart is not None:
                self._heart.join()
            if self._joined:
                self._leave()
        self.committer.close()

    def _leave(self) -> None:
        """A row that stays would be looked at by every worker; but whoever has runs is found by it."""
        try:
            self.committer.flush()
            running = self.store.find_runs([RunStatus.RUNNING], limit=EVERYTHING)
            if all(run.owner != self.owner for run in running):
                self.committer.commit(Leave(owner_id=self.owner, stamp=next(self.stamps)))
        except SurefootError:
            return  # it stays until its lease is over, and a worker takes it away


def _go_on() -> None:
    """Nobody asked this process to stop."""


def _tend_nothing(run_id: str, *, again: bool = True) -> BaseException | None:
    """There is nobody to run it."""
