"""The only place that reads a clock, a random source or the environment. Time is passed down as a value.

Two clocks: `now` is the wall clock, for instants that people and receivers see; `lease_now` counts suspend and cannot
be moved, for leases and for "may this attempt still begin".
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import uuid

WAKE_SECONDS = 0.25
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


class Clock(Protocol):
    """Tells and passes time."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def lease_now(self) -> float:
        """Seconds on a clock that counts suspend."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass on this thread."""
        ...

    async def sleep_async(self, seconds: float) -> None:
        """Let time pass in this task."""
        ...


class SystemClock:
    """The machine's clocks. A sleep ends early when `wake` is set: the process is to stop."""

    def __init__(self, wake: threading.Event | None = None) -> None:
        """`wake`: set when whoever sleeps has to look again."""
        self._wake = wake or threading.Event()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def lease_now(self) -> float:
        """CLOCK_BOOTTIME where there is one, since a monotonic clock stands still while the machine is suspended."""
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        self._wake.wait(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Suspend this task."""
        import asyncio

        while seconds > WAKE_SECONDS and not self._wake.is_set():
            await asyncio.sleep(WAKE_SECONDS)
            seconds -= WAKE_SECONDS
        await asyncio.sleep(0 if self._wake.is_set() else seconds)


def new_owner_id() -> int:
    """A number for this process that no other has: 62 random bits."""
    return int.from_bytes(os.urandom(8)) >> 2 | 1


def first_stamp() -> int:
    """Where this process's write stamps start: random, so that two processes' stamps never meet."""
    return int.from_bytes(os.urandom(8)) >> 3


def host_name() -> str:
    """For messages."""
    return os.uname().nodename if hasattr(os, "uname") else "this machine"


def random_number() -> float:
    """A float in [0, 1)."""
    import random

    return random.random()


def random_uuid() -> uuid.UUID:
    """A version 4 UUID."""
    import uuid

    return uuid.uuid4()


def variable(name: str) -> str | None:
    """An environment variable, or None."""
    return os.environ.get(name)
