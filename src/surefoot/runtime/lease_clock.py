"""The clock by which leases run: this machine's own, or that of a store which several machines share.

A shared clock is never read to decide: its distance from the machine's lease clock (which nobody can set, and which
counts suspend) is measured now and then, and how long the answer was under way bounds the error. Whoever judges its
own lease takes the latest instant that it could be, and whoever judges another's the earliest, so a slow network or a
drifting clock only makes both more careful. A worker's wall clock decides nothing.
"""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

from ..stores.base import Store
from .clock import Clock

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
        self._clock = clock
        self._shared = store if isinstance(store, TellsTime) else None
        self._measured: tuple[float, float, float] | None = None
        self._anchor: float | None = None
        self._warned = False

    def measure(self) -> None:
        """Ask the store for its time; raises StoreError, and keeps what was measured before."""
        if self._shared is None:
            return
        asked_at = self._clock.lease_now()
        told = self._shared.tell_time()
        answered_at = self._clock.lease_now()
        self._measured = (told - answered_at, told - asked_at, answered_at)
        apart = self._clock.now() - told
        if abs(apart) > WALL_SECONDS_APART_MAX and not self._warned:
            self._warned = True
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
        """Seconds since the epoch for timers: the store's clock, or this machine's as it was when it booted or joined.

        Setting the wall clock does not move it.
        """
        now = self._clock.lease_now()
        if self._shared is None:
            if self._anchor is None:
                self._anchor = self._clock.now() - now
            return now + self._anchor
        low, high, _ = self._last()
        return now + (low + high) / 2

    def anchor(self, offset: float) -> float:
        """Fix how far this machine's clock is from the lease clock, unless it was fixed before; how far it is."""
        if self._anchor is None:
            self._anchor = offset
        return self._anchor

    def _last(self) -> tuple[float, float, float]:
        if self._measured is None:
            self.measure()
        assert self._measured is not None
        return self._measured
