"""`surefoot.timeout` and `surefoot.first`: what time decides is recorded, and on replay the record decides.

On replay a branch that lost, or a block that timed out, still hands out what it had recorded; at the first thing it
had not recorded it is cancelled, there and not by time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from ..core import flows
from ..core.errors import UsageError
from ..core.journal import Branch
from .scope import current
from .session import Session


async def _record(session: Session, branch: Branch, name: str, value: Any) -> Any:
    try:
        recorded = await session.drive_async(
            flows.mark(session.state, branch, name, msgspec.json.encode(value) if value is not None else None)
        )
    except BaseException as error:
        raise session.stop(error, branch) from None
    return None if recorded is None else msgspec.json.decode(recorded)


class Timeout:
    """An async context manager; see `surefoot.timeout`."""

    def __init__(self, session: Session, branch: Branch, seconds: float) -> None:
        """`fired` is None until it is known."""
        self._session, self._branch, self._seconds = session, branch, seconds
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self.fired: bool | None = None
        self._expired = False
        self._name = ""

    async def __aenter__(self) -> Self:
        """Start the timer, or take what is recorded."""
        self._task = asyncio.current_task()
        self._name = f"timeout:{self._branch.next_slot('timeout')[1]}"
        replay = self._session.state.replay
        if replay.is_recorded(self._branch, self._name):
            self.fired = await _record(self._session, self._branch, self._name, None)
        if self.fired:
            self._session.decided[self._branch.path] = self._session.decided.get(self._branch.path, 0) + 1
        if self.fired is not False:
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._fire)
        return self

    def _fire(self) -> None:
        self._handle = None
        self._expired = True
        assert self._task is not None
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record whether it fired, and raise TimeoutError if it did; the record decides on replay."""
        if self._handle is not None:
            self._handle.cancel()
        absorbed = False
        if self._expired and self._task is not None:
            self._task.uncancel()
            absorbed = kind is None and await self._absorb()
        if self.fired:
            self._session.decided[self._branch.path] -= 1
        elif self.fired is None:
            self.fired = self._expired and not absorbed
            if error is None or self.fired or isinstance(error, Exception):
                await _record(self._session, self._branch, self._name, self.fired)
        if self.fired and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise TimeoutError(f"surefoot.timeout({self._seconds:g}) fired") from error
        return False

    async def _absorb(self) -> bool:
        """True if the timer fired in the very moment the block ended: its cancellation, still pending, ends here."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return True
        return False


async def first_of(session: Session, branch: Branch, awaitables: Sequence[Awaitable[Any]]) -> tuple[int, Any]:
    """See `surefoot.first`."""
    for awaitable in awaitables:
        if not asyncio.iscoroutine(awaitable):
            raise UsageError(f"surefoot.first() takes coroutines, such as calls of async steps; found {awaitable!r}")
    name = f"first:{branch.next_slot('first')[1]}"
    winner: int | None = None
    if session.state.replay.is_recorded(branch, name):
        winner = await _record(session, branch, name, None)
    tasks = [_spawn(session, branch, a, lost=winner is not None and i != winner) for i, a in enumerate(awaitables)]
    try:
        if winner is None:
            await _any_done(tasks)
            winner = next(i for i, task in enumerate(tasks) if task.done())
            await _record(session, branch, name, winner)
        await asyncio.wait([tasks[winner]])
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return winner, tasks[winner].result()


def _spawn(session: Session, branch: Branch, awaitable: Any, *, lost: bool) -> asyncio.Task[Any]:
    async def run() -> Any:
        scope = current.get()
        if lost and scope is not None and scope.branch is not None:
            session.decided[scope.branch.path] = 1
        return await awaitable

    return asyncio.get_running_loop().create_task(run())


async def _any_done(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Like asyncio.wait(FIRST_COMPLETED), which run tasks refuse since it records nothing."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()

    def arrive(_: asyncio.Task[Any]) -> None:
        if not arrived.done():
            arrived.set_result(None)

    for task in tasks:
        task.add_done_callback(arrive)
    await arrived
