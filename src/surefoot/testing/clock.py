"""A clock that a test turns by hand, so that no test ever sleeps.

Sleeping passes virtual time at once. What the outside world does later (a request that acts after its caller gave up)
is put on the clock with `at`, and happens when virtual time gets there, whoever made it pass.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable

STARTS_AT = 1_800_000_000.0
BOOTED_FOR_SECONDS = 1_000.0


class FakeClock:
    """Both clocks of `runtime.clock.Clock`, standing still until somebody sleeps or calls `advance`.

    Several `Surefoot` objects may share one, as processes of a machine do. Times are in seconds.
    """

    def __init__(self, starts_at: float = STARTS_AT) -> None:
        """`starts_at`: the wall clock's first instant."""
        self._wall_offset = starts_at
        self._passed = 0.0
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall_offset + self._passed

    def lease_now(self) -> float:
        """Seconds on the clock that `shift_wall` cannot move."""
        return BOOTED_FOR_SECONDS + self._passed

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass, and other threads run."""
        self.advance(seconds)
        time.sleep(0)

    async def sleep_async(self, seconds: float) -> None:
        """Let virtual time pass, and other tasks run."""
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Pass time; what falls due happens on this thread, each at its own instant, in order."""
        with self._lock:
            until = self._passed + max(seconds, 0.0)
            while self._due and self._due[0][0] <= until:
                due, _, action = heapq.heappop(self._due)
                self._passed = max(self._passed, due)
                action()
            self._passed = max(self._passed, until)

    def shift_wall(self, seconds: float) -> None:
        """Set the wall clock forward or (negative) back, as an operator or NTP does; no time passes."""
        with self._lock:
            self._wall_offset += seconds

    def at(self, delay_seconds: float, action: Callable[[], object]) -> None:
        """Do `action` once this much virtual time has passed from now."""
        with self._lock:
            heapq.heappush(self._due, (self._passed + delay_seconds, next(self._numbers), action))
