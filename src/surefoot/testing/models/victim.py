"""The process group that a server kills: the services place the kill, so the agent needs no code for it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

from ...core.errors import UsageError

KNOWN_WITHIN_SECONDS = 30.0
GONE_WITHIN_SECONDS = 30.0


class Victim:
    """One process group at a time, started with `start_new_session=True`; `is_` names it as soon as it is known."""

    def __init__(self) -> None:
        """Nobody yet."""
        self._known = threading.Event()
        self._pid = 0

    def is_(self, pid: int) -> None:
        """From now on, this is who is killed."""
        self._pid = pid
        self._known.set()

    def nobody(self) -> None:
        """Until `is_` is called again, a kill waits."""
        self._known.clear()

    def kill(self, connection: socket.socket | None = None) -> None:
        """SIGKILL the whole group; with its connection, return only when its side of that is gone.

        So nothing that it could still hear reaches it: an answer, or the end of a connection, must not race the signal.
        """
        if not self._known.wait(KNOWN_WITHIN_SECONDS):
            raise UsageError(
                "a kill is due, and nobody said whom to kill: call victim.is_(pid) after starting the agent"
            )
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        if connection is not None:
            await_end(connection, GONE_WITHIN_SECONDS)


def await_end(connection: socket.socket, seconds: float) -> None:
    """Return when the other side has closed, or died, or that time has passed."""
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):
            pass
    except OSError:
        pass


Boundary = Callable[[str, int, socket.socket], bool]
"""Asked with "before" or "after" and the request's number; True says that whoever asked is dead."""
