"""SIGTERM and Ctrl-C while runs are live: commits finish, the lease is released, then the process ends as asked.

Installed only in the main thread and only over Python's defaults; a program with handlers of its own keeps them, and
ends runs by closing its `Surefoot`. A second signal, or `grace_seconds` after the first, interrupts at once.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from ..core.errors import Stopping


class StopSwitch:
    """Remembers that the process is to stop; steps look at it before they begin."""

    def __init__(self, grace_seconds: float) -> None:
        """`grace_seconds`: how long what is running may still take."""
        self.asked: int | None = None
        self._grace_seconds = grace_seconds
        self._before: dict[int, Any] = {}
        self._users = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        """A run begins."""
        with self._lock:
            self._users += 1
            if self._users > 1 or threading.current_thread() is not threading.main_thread():
                return
            for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
                if signal.getsignal(number) == default:
                    self._before[number] = default
                    signal.signal(number, self._on_signal)

    def leave(self) -> None:
        """A run ends; the last one restores the handlers."""
        with self._lock:
            self._users -= 1
            if self._users or not self._before or threading.current_thread() is not threading.main_thread():
                return
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            raise self.end()
        self.asked = number
        timer = threading.Timer(self._grace_seconds, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    def check(self) -> None:
        """Raises Stopping when the process is to stop."""
        if self.asked is not None:
            raise Stopping(f"stopped by signal {self.asked}")

    def end(self) -> BaseException:
        """What ends the program after its runs are released."""
        if self.asked == signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(128 + (self.asked or signal.SIGTERM))
