"""SIGTERM and Ctrl-C while runs are live: commits finish, the lease is released, then the process ends as asked.

Installed only in the main thread and only over Python's defaults; a program with handlers of its own keeps them, and
ends runs by closing its `Surefoot`. A second signal, or `grace_seconds` after the first, interrupts at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..core.errors import Stopping


class StopSwitch:
    """Remembers that the process is to stop; steps look at it before they begin, and sleepers are woken."""

    def __init__(self, grace_seconds: float, at_once: Callable[[], object] = bool) -> None:
        """`grace_seconds`: how long what is running may still take; `at_once` is called when that is over."""
        self._at_once = at_once
        self.asked: int | None = None
        self.closed = False
        self.users = 0
        self.woken = threading.Event()
        self.grace_seconds = grace_seconds
        self._before: dict[int, Any] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def install(self) -> None:
        """Catch the signals from now on, if this is the main thread and nobody else does."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if number not in self._before and signal.getsignal(number) == default:
                self._before[number] = default
                signal.signal(number, self._on_signal)

    def enter(self) -> None:
        """A run begins."""
        with self._lock:
            self.users += 1
            first = self.users == 1
        if first or not self._before:
            self.install()

    def leave(self) -> None:
        """A run ends; after the last one the program's own handlers are back, and a stop that was asked for is done."""
        with self._lock:
            self.users -= 1
            if self.users:
                return
        if threading.current_thread() is threading.main_thread():
            self._reset()
        elif self.asked is not None:
            signal.pthread_kill(threading.main_thread().ident or 0, self.asked)

    def _reset(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.asked = None, None
        if not self.closed:
            self.woken.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked is None and self.users:
            self.asked = number
            # from another thread: this one may be inside `woken.wait`, whose lock it would wait for in vain
            _on_a_thread(self.woken.set)
            self._timer = threading.Timer(self.grace_seconds, os.kill, (os.getpid(), number))
            self._timer.daemon = True
            self._timer.start()
            return
        self.asked = self.asked or number
        _on_a_thread(self._at_once)
        error = self.end()
        if not self.users:
            self._reset()
        raise error

    def close(self) -> None:
        """No run goes on from now on, and whoever sleeps is woken."""
        self.closed = True
        self.woken.set()

    def check(self) -> None:
        """Raises Stopping when the process is to stop, or this Surefoot was closed."""
        if self.closed:
            raise Stopping("Surefoot was closed")
        if self.asked is not None:
            raise Stopping(f"stopped by signal {self.asked}")

    def end(self) -> BaseException:
        """What ends the program after its runs are released."""
        if self.asked == signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(128 + (self.asked or signal.SIGTERM))


def _on_a_thread(act: Callable[[], object]) -> None:
    threading.Thread(target=act, name="surefoot-stop", daemon=True).start()
