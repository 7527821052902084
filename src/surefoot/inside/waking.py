"""Tells engines that a parked run may go on: `surefoot resolve`, an approval or a message came, or its time has.

A decision is made in the store, by a process that knows no engine. So a `Waker` in a process that knows it looks at the
runs that wait, and calls on whoever left an address. It may call twice and must be repeatable; a call that is lost is
made again, and each engine looks by itself now and then, so a waker makes it quick but is never what makes it right.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ..core.errors import SurefootError, UsageError
from ..core.run import Run, RunStatus
from ..runtime.app import Surefoot
from .parked import address_of

RUNS_MAX = 10_000
AGAIN_SECONDS = 30.0
log = logging.getLogger("surefoot")


class Waker:
    """Looks every `every` seconds, on a thread of its own; use as `with`."""

    def __init__(
        self, sf: Surefoot, engine: str, poke: Callable[[str, dict[str, Any]], object], *, every: float = 1.0
    ) -> None:
        """`poke(run_id, address)` reaches whoever left an address for `engine`; what it raises is logged."""
        if not every > 0:
            raise UsageError(f"every must be a positive number of seconds, found {every!r}")
        self._sf, self._engine, self._poke, self._every = sf, engine, poke, every
        self._told: dict[str, tuple[int, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"surefoot-waker-{engine}", daemon=True)

    def look(self) -> int:
        """One look; how many were called on."""
        now = self._sf.engine.time()
        waiting = self._sf.store.find_runs([RunStatus.WAITING], limit=RUNS_MAX)
        self._told = {run.id: self._told[run.id] for run in waiting if run.id in self._told}
        return sum(self._tell(run, now) for run in waiting if run.wake_at and run.wake_at <= now)

    def _tell(self, run: Run, now: float) -> bool:
        fence, at = self._told.get(run.id, (0, 0.0))
        address = address_of(self._sf, run)
        if address is None or address["engine"] != self._engine or (fence == run.fence and now < at + AGAIN_SECONDS):
            return False
        try:
            self._poke(run.id, address)
        except Exception as error:
            log.warning("run %r may go on, and %s could not be told, which is tried again: %s", run.id, address, error)
            return False
        self._told[run.id] = run.fence, now
        return True

    def _work(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.look()
            except SurefootError as error:
                log.warning("a waker cannot read its store, and tries again: %s", error)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join()
