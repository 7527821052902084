"""A handle to a run in the background."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from .view import RunView

if TYPE_CHECKING:
    import asyncio

    from .app import Surefoot


@dataclass
class Handle:
    """A run in the background."""

    id: str
    owner: Surefoot
    thread: threading.Thread | None = None
    task: asyncio.Task[Any] | None = None
    outcome: list[tuple[bool, Any]] = field(default_factory=list[tuple[bool, Any]])

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end (at most `timeout` seconds, else TimeoutError) and return the result, or raise."""
        if self.thread is None:
            raise UsageError("this run is a task: `await handle` gives its result")
        self.thread.join(timeout)
        if not self.outcome:
            raise TimeoutError(f"run {self.id!r} has not ended after {timeout} s")
        ok, value = self.outcome[0]
        if not ok:
            raise value
        return value

    def __await__(self) -> Generator[Any, None, Any]:
        """The result of an `async def` run."""
        if self.task is None:
            raise UsageError("this run is a thread: `handle.result()` gives its result")
        return self.task.__await__()

    def status(self) -> str:
        """The run's status in the store."""
        return str(self.owner.get(self.id).status)

    def cancel(self) -> RunView:
        """Ask the run to stop; see `Surefoot.cancel`."""
        return self.owner.cancel(self.id)
