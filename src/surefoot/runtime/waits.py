"""`surefoot.timeout` and `surefoot.first`: what time decides is recorded, and on replay the record decides.

On replay a branch that lost, or a block that timed out, still hands out what it had recorded; at the first thing it
had not recorded it is cancelled, there and not by time. Until something is decided nobody decides by time before the
replay has caught up, since the time may have passed while no process was there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from ..core import flows
from ..core.calls import ROOT
from ..core.errors import Suspend, UsageError
from ..core.ids import branch_of
from ..core.journal import Branch
from ..core.run import Waits
from .children import Child
from .choices import is_bare_wait, mark
from .scope import current
from .session import Session
from .tasks import RunTask
from .waiting import Contest, has_read

CATCH_UP_SECONDS = 0.02
CATCH_UP_TRIES = 50
"""So often at most without getting on; what is left unread then belongs to code that changed."""


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
        self._tries = 0
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
        due = self._due()
        if self.fired is None:
            left = max(due - self._session.engine.time(), 0.0)
            self._handle = asyncio.get_running_loop().call_later(left, self._fire)
        return self

    def _due(self) -> float:
        """When the block ends; recorded when it is first entered, so that neither a crash nor a wait begins it anew."""
        name = f"until:{self._name}"
        if self.fired is not None and not self._session.state.replay.is_recorded(self._branch, name):
            return 0.0
        due: float = mark(name, lambda: self._session.engine.due_after(self._seconds), float)
        if self.fired is None:
            place = self._branch.path, self._name
            self._session.deadlines[place] = Waits(kind="timer", name=self._name, until=due)
        return due

    def _fire(self) -> None:
        assert self._task is not None
        self._handle = None
        if self._tries < CATCH_UP_TRIES and is_replaying(self._session, [self._branch.path]):
            self._tries += 1
            self._handle = asyncio.get_running_loop().call_later(CATCH_UP_SECONDS, self._fire)
            return
        self._expired = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Record whether it fired, and raise TimeoutError if it did; the record decides on replay."""
        if self._handle is not None:
            self._handle.cancel()
        if not isinstance(self._session.stopped, Suspend):
            self._session.deadlines.pop((self._branch.path, self._name), None)
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
    awaitables = [each._join() if isinstance(each, Child) else each for each in awaitables]  # pyright: ignore[reportPrivateUsage]
    for awaitable in awaitables:
        if not asyncio.iscoroutine(awaitable):
            raise UsageError(
                f"surefoot.first() takes coroutines, such as calls of async steps, and children; found {awaitable!r}"
            )
    name = f"first:{branch.next_slot('first')[1]}"
    winner: int | None = None
    if session.state.replay.is_recorded(branch, name):
        winner = await _record(session, branch, name, None)
    tasks = [_spawn(session, branch, a, lost=winner is not None and i != winner) for i, a in enumerate(awaitables)]
    paths = [_path_of(task) for task in tasks]
    try:
        if winner is None:
            contest = _open_contest(session, paths, [is_bare_wait(awaitable) for awaitable in awaitables])
            await _any_done(tasks)
            await _catch_up(session, tasks, paths)
            done = next(i for i, task in enumerate(tasks) if task.done())
            winner = contest.winner = done if contest.winner is None else contest.winner
            await _record(session, branch, name, winner)
        await asyncio.wait([tasks[winner]])
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for path in paths:
            session.contests.pop(path, None)
    return winner, tasks[winner].result()


def _open_contest(session: Session, paths: Sequence[str], bare: Sequence[bool]) -> Contest:
    """Of waits for messages only one may read: the message of one that lost would be gone.

    One that has read before a crash, although nothing was decided yet, has won.
    """
    contest = Contest()
    for index, path in enumerate(paths):
        if bare[index]:
            session.contests[path] = contest, index
            if contest.winner is None and has_read(session, path):
                contest.winner = index
    return contest


def is_replaying(session: Session, paths: Sequence[str]) -> bool:
    """True while something that these branches, or those below, have recorded is yet to be asked for."""
    unread = [f"{branch_of(entry.slot)}." for entry in session.state.replay.unread()]
    # a call scope is not a branch of anybody's: whoever runs beside may be the one that reads it
    return any(path == "" or place.startswith((f"{path}.", ROOT)) for place in unread for path in paths)


async def _catch_up(session: Session, tasks: Sequence[asyncio.Task[Any]], paths: Sequence[str]) -> None:
    """A timer that ran out while no process was there does not end what the others have recorded."""
    tries, before = 0, -1
    while tries < CATCH_UP_TRIES and is_replaying(session, paths) and not all(task.done() for task in tasks):
        left = len(session.state.replay.unread())
        tries, before = (tries + 1 if left == before else 0), left
        await asyncio.sleep(0)


def _path_of(task: asyncio.Task[Any]) -> str:
    scope = task.held.get(current) if isinstance(task, RunTask) and task.held is not None else None
    return scope.branch.path if scope is not None and scope.branch is not None else ""


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
