"""What becomes of one reply: from when on the agent has read it, and where it stands then.

An agent that ends with its last reply has gone before a watcher outside can kill it. So it is held by the kernel at the
system call that is asked for, where the kernel does that; else it is watched, and may be missed.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import time
from collections.abc import Callable

from .plan import Deed
from .process import descendants, marked, state_of
from .sockets import ReadWatch, holders
from .tracing import Tracer, exits, process_of

READ_SECONDS_MAX = 5.0
ENDED = ("Z", "X")
UNSENT = 0x894B  # SIOCOUTQNSD: how much has not left our own end yet


class Reading:
    """One reply on its way to one agent."""

    def __init__(self, connection: socket.socket, pid: int, *, is_sent: Callable[[], bool]) -> None:
        """`pid` leads the agent; `is_sent` says whether the whole reply was handed to the kernel."""
        self._connection, self._pid, self._is_sent = connection, pid, is_sent
        self._watch = ReadWatch(connection.getpeername()[1], connection.getsockname()[1])
        self._give_up = time.monotonic() + READ_SECONDS_MAX

    def tracer(self, marker: str, deed: Deed) -> Tracer | None:
        """Holds whoever may read it (`read`), or the agent itself (`recorded`); None where nobody can be held."""
        pid = self._pid
        pids = {pid} if pid else set[int]()
        if deed is Deed.KILL_READ and pid:
            pids = holders({pid, *descendants(pid), *marked(marker, pid)}, self._watch.inode())
        made = Tracer(pids) if pids else None
        return made if made is not None and made.is_exact else None

    def stand_where_it_is_read(self, tracer: Tracer | None, waits: Callable[[], bool]) -> None:
        """Returns when it has been read: held there, the agent has done nothing with it yet."""

        def goes_on() -> bool:
            return waits() and time.monotonic() < self._give_up and state_of(self._pid) not in ENDED

        if tracer is not None:
            tracer.run(lambda thread, is_entry, number: not is_entry and self._is_read_for_good(), goes_on)
            return
        while goes_on() and not self._is_read():
            time.sleep(0.0002)

    def stand_at_the_exit(self, tracer: Tracer | None, settle_seconds: float, waits: Callable[[], bool]) -> None:
        """Returns `settle_seconds` after it was read, when the next request came, or, held, before the agent's exit."""
        read_at = 0.0

        def goes_on() -> bool:
            nonlocal read_at
            now = time.monotonic()
            if not read_at and (self._is_read() or now > self._give_up):
                read_at = now
            if state_of(self._pid) in ENDED:
                return False
            return waits() and not (read_at and now >= read_at + settle_seconds)

        if tracer is not None:
            tracer.run(lambda thread, is_entry, number: exits(number) and process_of(thread) == self._pid, goes_on)
            return
        while goes_on():
            time.sleep(0.0002)

    def _is_read(self) -> bool:
        return self._is_sent() and not self._unsent() and self._watch.has_read()

    def _is_read_for_good(self) -> bool:
        """Whether nothing of it is left to read, asked while the reader stands: what is still being sent is awaited."""
        while self._watch.has_read() and time.monotonic() < self._give_up:
            if self._is_read():
                return True
            time.sleep(0.0001)
        return False

    def _unsent(self) -> int:
        if sys.platform != "linux":
            return 0
        try:
            return struct.unpack("i", fcntl.ioctl(self._connection, UNSENT, b"\0" * 4))[0]
        except (OSError, ValueError):
            return 0  # it was closed after it was sent

    def close(self) -> None:
        """Ask no more."""
        self._watch.close()
