"""The machine's clock, moved by an offset that several processes read from one file.

A test moves it for the twin and for every process of the agent at once, so that "a day later" takes no time and both
sides agree about it. It never stands still in between, so leases and deadlines go on as they do in production.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import time
from pathlib import Path

BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SharedClock:
    """Both clocks of `runtime.clock.Clock`, plus the offset in the file at `path`. Seconds.

    `jumps=True`: sleeping moves the offset instead of waiting, for everybody. Use it while one process of the agent is
    alive at a time; where several are, each waits for real.
    """

    def __init__(self, path: Path | str, *, jumps: bool = True) -> None:
        """Makes the file if there is none."""
        self.path, self.jumps = Path(path), jumps
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)

    def offset(self) -> float:
        """How far the clock was moved."""
        content = os.pread(self._file, 8, 0)
        return struct.unpack("d", content)[0] if len(content) == 8 else 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self.offset()

    def lease_now(self) -> float:
        """Seconds since the machine was started."""
        return time.clock_gettime(BOOTTIME) + self.offset()

    def advance(self, seconds: float) -> None:
        """Move the clock forward, for everybody."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            os.pwrite(self._file, struct.pack("d", self.offset() + max(seconds, 0.0)), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def sleep(self, seconds: float) -> None:
        """Let time pass on this thread."""
        if self.jumps:
            self.advance(seconds)
        time.sleep(0 if self.jumps else seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Let time pass in this task."""
        if self.jumps:
            self.advance(seconds)
        await asyncio.sleep(0 if self.jumps else seconds)

    def close(self) -> None:
        """Close the file; it stays."""
        os.close(self._file)
