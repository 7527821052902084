"""asyncio tasks of a run: each gets a branch when it is created, so finishing order never matters.

A choice that depends on time or on who finishes first cannot be repeated by a replay, so it has to be recorded:
`surefoot.first` and `surefoot.timeout` do that. A bare `asyncio.timeout`, `wait_for`, `wait(FIRST_COMPLETED)` or
`as_completed` around steps is refused, here, where it would take effect. Inside a step's body all of them are fine.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

from ..core.errors import NotDeterministic, Suspend
from .scope import Scope, current
from .session import Session

QUIET_SECONDS = 0.05
_WAYS = "use surefoot.first(...) or surefoot.timeout(...), which record the choice, or move it inside a step"


class RunTask(asyncio.Task[Any]):
    """A task of a run. It refuses what would make the run depend on time or on finishing order."""

    timed_out_by = ""
    session: Session | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Remember whether a timer cancels; whether that may be is decided where the cancellation arrives."""
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        module = caller.f_globals.get("__name__", "")
        if module == "asyncio.timeouts":
            self.timed_out_by = "asyncio.timeout"
        elif module == "asyncio.tasks" and caller.f_code.co_name in ("_cancel_and_wait", "wait_for"):
            self.timed_out_by = "asyncio.wait_for"
        elif module.startswith("anyio."):
            self.timed_out_by = "an anyio cancel scope"
        else:
            self.timed_out_by = ""
        return super().cancel(msg)

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Refuse the callbacks of `asyncio.wait` (unless it waits for all, without time-out) and `as_completed`."""
        name = getattr(fn, "__qualname__", "")
        if name == "_wait.<locals>._on_completion":
            held = inspect.getclosurevars(cast("Callable[..., Any]", fn)).nonlocals
            if held.get("return_when") != asyncio.ALL_COMPLETED or held.get("timeout_handle") is not None:
                raise self._refusal("asyncio.wait with FIRST_COMPLETED, FIRST_EXCEPTION or a timeout")
        elif "as_completed" in name or "_AsCompletedIterator" in name:
            raise self._refusal("asyncio.as_completed")
        super().add_done_callback(fn, context=context)

    def _refusal(self, what: str) -> NotDeterministic:
        return NotDeterministic(
            f"{what} around steps chooses by finishing order, which a replay could not repeat; {_WAYS}"
        )


def refuse_timer(error: BaseException) -> None:
    """Called where a cancellation reaches a step: raises NotDeterministic if a timer outside the step sent it."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and isinstance(task, RunTask) and task.timed_out_by:
        by, task.timed_out_by = task.timed_out_by, ""
        raise NotDeterministic(
            f"{by} around steps ended one by time, and a replay could not know that it did; {_WAYS}"
        ) from None


def open_branch_task(
    session: Session, scope: Scope, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> RunTask:
    """A task with a child branch of `scope`'s."""
    context: contextvars.Context | None = options.pop("context", None)
    context = contextvars.copy_context() if context is None else context.copy()
    assert scope.branch is not None
    child = Scope(session, session.state.replay.open_child(scope.branch))
    if session.decided.get(scope.branch.path) and child.branch is not None:
        session.decided[child.branch.path] = 1
    context.run(current.set, child)
    return _run_task(session, loop, coroutine, context, **options)


def _run_task(
    session: Session,
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    context: contextvars.Context,
    **options: Any,
) -> RunTask:
    options.pop("eager_start", None)
    task = RunTask(coroutine, loop=loop, context=context, **options)
    task.session = session
    session.tasks.add(task)
    task.add_done_callback(session.tasks.discard)
    return task


def start_root(session: Session, coroutine: Coroutine[Any, Any, Any]) -> RunTask:
    """The task that runs the workflow itself, in the root branch."""
    loop = asyncio.get_running_loop()
    install_factory(loop)
    context = contextvars.copy_context()
    context.run(current.set, Scope(session, session.state.root))
    task = _run_task(session, loop, coroutine, context)
    session.root_task = task
    return task


class _Factory:
    """Makes run tasks where the context is in a workflow, and leaves all others to whoever made them before."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        context = options.get("context")
        scope = current.get() if context is None else context.get(current)
        if scope is not None and scope.branch is not None:
            return open_branch_task(scope.session, scope, loop, coroutine, **options)
        if self.before is not None:
            return self.before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)


def install_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Give this loop our task factory, around the one it has."""
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))


async def stand_still(session: Session, reason: str) -> None:
    """This branch cannot go on. Wait for ever; when no other branch moves any more, the run suspends."""
    session.waiting += 1
    try:
        loop = asyncio.get_running_loop()
        loop.call_later(QUIET_SECONDS, _suspend_if_quiet, session, loop, reason, session.moves)
        await loop.create_future()
    finally:
        session.waiting -= 1


def _suspend_if_quiet(session: Session, loop: asyncio.AbstractEventLoop, reason: str, moves: int) -> None:
    if session.root_task is None or session.root_task.done() or not session.waiting:
        return
    if session.active or session.moves != moves:
        loop.call_later(QUIET_SECONDS, _suspend_if_quiet, session, loop, reason, session.moves)
        return
    session.stopped = session.stopped or Suspend(reason)
    session.root_task.cancel()


async def end_tasks(session: Session) -> None:
    """Cancel what is left of a run's tasks and wait until it is gone."""
    while rest := [task for task in session.tasks if task is not asyncio.current_task() and not task.done()]:
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
