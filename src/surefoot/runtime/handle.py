"""A handle to a run in the background: in this process, or in a queue, where any worker may take it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.errors import RunNotFound, RunWaiting, UsageError
from ..core.run import FINAL, Run, RunStatus
from .ending import stored_result
from .view import RunView

if TYPE_CHECKING:
    import asyncio

    from .app import Surefoot
    from .step import Workflow

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.005, 0.2


class Handle(msgspec.Struct):
    """A run in the background."""

    id: str
    owner: Surefoot
    thread: threading.Thread | None = None
    task: asyncio.Task[Any] | None = None
    outcome: list[tuple[bool, Any]] = msgspec.field(default_factory=list[tuple[bool, Any]])
    workflow: Workflow[..., Any] | None = None

    def __repr__(self) -> str:
        """Which run it is."""
        return f"Handle({self.id!r})"

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end (at most `timeout` seconds, else TimeoutError) and return the result, or raise.

        A queued run that only a person can help raises RunWaiting, with what to do.
        """
        if self.task is not None:
            raise UsageError("this run is a task: `await handle` gives its result")
        if self.thread is None:
            return self._watch(timeout)
        self.thread.join(timeout)
        if not self.outcome:
            raise TimeoutError(f"run {self.id!r} has not ended after {timeout} s")
        ok, value = self.outcome[0]
        if not ok:
            raise value
        return value

    def __await__(self) -> Generator[Any, None, Any]:
        """The result of an `async def` run, or of a queued one."""
        if self.task is not None:
            return self.task.__await__()
        if self.thread is not None:
            raise UsageError("this run is a thread: `handle.result()` gives its result")
        return self._watch_async().__await__()

    def status(self) -> str:
        """The run's status in the store."""
        return str(self.owner.get(self.id).status)

    def cancel(self) -> RunView:
        """Ask the run to stop; see `Surefoot.cancel`."""
        return self.owner.cancel(self.id)

    # --- a queued run: its end is read from the store ---------------------------------------------------------------

    def _watch(self, timeout: float | None) -> Any:
        clock = self.owner.engine.clock
        give_up = None if timeout is None else clock.lease_now() + timeout
        pause, never = POLL_SECONDS_MIN, threading.Event()
        while (run := self._ended()) is None:
            left = pause if give_up is None else min(pause, give_up - clock.lease_now())
            if left <= 0:
                raise TimeoutError(f"run {self.id!r} has not ended after {timeout} s; it is {self.status()}")
            never.wait(left)
            pause = min(pause * 1.5, POLL_SECONDS_MAX)
        return self._result_of(run)

    async def _watch_async(self) -> Any:
        import asyncio

        pause = POLL_SECONDS_MIN
        while (run := await asyncio.to_thread(self._ended)) is None:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS_MAX)
        return await asyncio.to_thread(self._result_of, run)

    def _ended(self) -> Run | None:
        self.owner.check_open()
        run = self.owner.store.find_run(self.id)
        if run is None:
            raise RunNotFound(self.id)
        return run if run.status in FINAL or _needs_a_person(run) else None

    def _result_of(self, run: Run) -> Any:
        if run.status not in FINAL:
            raise RunWaiting(run.id, run.reason)
        assert self.workflow is not None
        return stored_result(self.owner.store, self.workflow, run)


def _needs_a_person(run: Run) -> bool:
    """True if neither time, nor a message, nor a worker will let this run go on."""
    match run.status:
        case RunStatus.DIVERGED | RunStatus.DAMAGED | RunStatus.QUARANTINED:
            return True
        case RunStatus.WAITING:
            return not run.wake_at and all(wait.kind == "doubt" for wait in run.waits)
        case _:
            return False
