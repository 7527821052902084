"""The clock by which leases run: this machine's own, or that of a store which several machines share.

A shared clock is never read to decide: its distance from the machine's lease clock (which nobody can set, and which
counts suspend) is measured now and then, and how long the answer was under way bounds the error. Whoever judges its
own lease takes the latest instant that it could be, and whoever judges another's the earliest, so a slow network or a
drifting clock only makes both more careful. A worker's wall clock decides nothing.

Timers run by the same clock, told as seconds since the epoch. Without a shared one that is this machine's lease clock,
tied to the wall clock once a boot: the tie is kept in the store, so that whoever opens it later, perhaps after the wall
clock was set, reads the same time. After a reboot it is tied anew.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..core.errors import CommitUnknown
from ..core.lease import Owner
from ..core.writes import CLOCK_ID, KeepClock
from ..stores.base import Store
from .clock import Clock, first_stamp

DRIFT = 0.001
"""By how much of the time that has passed since, the two clocks may have moved apart: ten times what a bad one does."""
WALL_SECONDS_APART_MAX = 5.0


@runtime_checkable
class TellsTime(Protocol):
    """A store that several machines share, and whose clock is therefore everybody's."""

    def tell_time(self) -> float:
        """The store's own clock, in seconds since the epoch."""
        ...


class LeaseClock:
    """Lease time as an interval: it is now no earlier than `earliest()` and no later than `latest()`."""

    def __init__(self, clock: Clock, store: Store) -> None:
        """Nothing is measured before it is first asked; a store without a clock of its own costs nothing."""
        self._clock, self._store = clock, store
        self._shared = store if isinstance(store, TellsTime) else None
        self._measured: tuple[float, float, float] | None = None
        self._tied: float | None = None
        self._warned = False

    def measure(self) -> None:
        """Ask the store for its time; raises StoreError, and keeps what was measured before."""
        if self._shared is None:
            return
        earliest, asked_at = self._clock.now(), self._clock.lease_now()
        told = self._shared.tell_time()
        latest, answered_at = self._clock.now(), self._clock.lease_now()
        self._measured = (told - answered_at, told - asked_at, answered_at)
        # a pause while the answer was under way is no difference of clocks
        apart = earliest - told if earliest > told else min(latest - told, 0.0)
        if abs(apart) > WALL_SECONDS_APART_MAX and not self._warned:
            self._warned = True
            import logging

            logging.getLogger("surefoot").warning(
                "this machine's clock is %.0f s %s the database's; leases are safe, but receivers' windows and what "
                "people read are counted by it: set it right",
                abs(apart),
                "ahead of" if apart > 0 else "behind",
            )

    def earliest(self) -> float:
        """It is at least this late: for judging whether another's lease is over."""
        now = self._clock.lease_now()
        if self._shared is None:
            return now
        low, _, at = self._last()
        return now + low - DRIFT * (now - at)

    def latest(self) -> float:
        """It may be as late as this: for judging whether one's own lease still holds."""
        now = self._clock.lease_now()
        if self._shared is None:
            return now
        _, high, at = self._last()
        return now + high + DRIFT * (now - at)

    def time(self) -> float:
        """Seconds since the epoch for timers: never ahead of the store's clock, so that nothing is due too early.

        Setting the wall clock does not move it. May raise StoreError when it is first asked.
        """
        return self.earliest() if self._shared is not None else self._clock.lease_now() + self._tie()

    def due_after(self, seconds: float) -> float:
        """The instant of this clock at which certainly so many seconds have passed from now."""
        now = self.latest() if self._shared is not None else self.time()
        return now + seconds

    def _tie(self) -> float:
        """How far the time of timers is ahead of the lease clock, as the store keeps it for this boot."""
        if self._tied is None:
            self._tied = self._tie_in_store()
            self._warn_of(self._clock.now() - self._clock.lease_now() - self._tied)
        return self._tied

    def _tie_in_store(self) -> float:
        boot = self._store.lease_boot
        kept = self._store.read_owner(CLOCK_ID)
        if kept is None or kept.boot != boot:
            started_at = self._clock.now() - self._clock.lease_now()
            mine = Owner(id=CLOCK_ID, pid=0, host="", boot=boot, started_at=started_at, lease_until=0.0)
            write = KeepClock(owner=mine, stamp=first_stamp())
            try:
                self._store.transact([write])
            except CommitUnknown:
                self._store.transact([write], again=True)
            kept = self._store.read_owner(CLOCK_ID) or mine
        return kept.started_at

    def _warn_of(self, apart: float) -> None:
        if abs(apart) > WALL_SECONDS_APART_MAX:
            import logging

            logging.getLogger("surefoot").warning(
                "the clock of this machine was set by %.0f s since this store was first used after the boot; timers go "
                "on by the time before, so that none is early or late. Until the next boot sleep_until() is off by it",
                apart,
            )

    def _last(self) -> tuple[float, float, float]:
        if self._measured is None:
            self.measure()
        assert self._measured is not None
        return self._measured
