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
from asyncio import CancelledError as CancelledError
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from ..core.errors import NotDeterministic, Suspend
from .ending import warn
from .scope import Scope, current
from .session import Session

T = TypeVar("T")
QUIET_SECONDS = 0.05
CANCEL_AGAIN_SECONDS = 15.0
"""How long a task may clean up after itself before it is cancelled once more."""
_JOINING = (
    *("asyncio.taskgroups", "asyncio.locks", "asyncio.queues", "asyncio.tasks._wait"),
    f"{__package__}.waits._any_done",
)
"""Where a task waits for others of its run: in any function of these modules, or in these functions."""
_WAYS = (
    "use surefoot.first(...) or surefoot.timeout(...), which record the choice, or move it inside a step; an agent "
    'framework that does this by itself runs inside `with surefoot.http.scope("agent"):`'
)


class RunTask(asyncio.Task[Any]):
    """A task of a run. It refuses what would make the run depend on time or on finishing order."""

    timed_out_by = ""
    session: Session | None = None
    held: contextvars.Context | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse a timer of the workflow's own code; one inside a step's body is that step's business.

        A timer around a step cancels the task while it is in the step's body: then `refuse_timer` decides where the
        cancellation leaves the body, since a timer inside the body catches its own.
        """
        scope = self.held.get(current) if self.held is not None else None
        self.timed_out_by = "" if scope is not None and scope.loose else _timer_on_stack()
        if self.timed_out_by and scope is not None and scope.branch is not None:
            scope.session.stop(_timer_refusal(self.timed_out_by), scope.session.state.root)
        return super().cancel(msg)

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Refuse the callbacks of `asyncio.wait` (unless it waits for all, without time-out) and `as_completed`."""
        name = getattr(fn, "__qualname__", "")
        if name == "_wait.<locals>._on_completion":
            held = inspect.getclosurevars(cast("Callable[..., Any]", fn)).nonlocals
            if held.get("return_when") != asyncio.ALL_COMPLETED or held.get("timeout_handle") is not None:
                self._refuse("asyncio.wait with FIRST_COMPLETED, FIRST_EXCEPTION or a timeout")
        elif "as_completed" in name or "_AsCompletedIterator" in name:
            self._refuse("asyncio.as_completed")
        super().add_done_callback(fn, context=context)

    def watch(self, fn: Callable[[asyncio.Task[Any]], object]) -> None:
        """Add a callback of ours."""
        super().add_done_callback(fn)

    def _refuse(self, what: str) -> None:
        error = NotDeterministic(
            f"{what} around steps chooses by finishing order, which a replay could not repeat; {_WAYS}"
        )
        assert self.session is not None
        raise self.session.stop(error, self.session.state.root)


def _timer_on_stack() -> str:
    """The timer that cancels, if one does: it calls `cancel` directly, or through the tasks and futures between."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module == "asyncio.timeouts":
            return "asyncio.timeout"
        if module == "asyncio.tasks" and function == "_cancel_and_wait":
            return "asyncio.wait_for"
        if module.startswith("anyio."):
            return "an anyio cancel scope"
        if module == "asyncio.events":
            return ""
        frame = frame.f_back
    return ""


def _timer_refusal(by: str) -> NotDeterministic:
    return NotDeterministic(f"{by} around steps ended one by time, and a replay could not know that it did; {_WAYS}")


def refuse_timer(error: BaseException) -> NotDeterministic | None:
    """Called where a cancellation leaves a step: what to raise if a timer outside the step sent it."""
    task = asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError) or not isinstance(task, RunTask):
        return None
    by, task.timed_out_by = task.timed_out_by, ""
    return _timer_refusal(by) if by and task.cancelling() else None


def open_branch_task(
    session: Session, scope: Scope, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> RunTask:
    """A task with a child branch of `scope`'s."""
    context: contextvars.Context | None = options.pop("context", None)
    context = contextvars.copy_context() if context is None else context.copy()
    assert scope.branch is not None
    branch = session.state.replay.open_child(scope.branch)
    if session.decided.get(scope.branch.path):
        session.decided[branch.path] = 1
    context.run(current.set, Scope(session, branch))
    task = _run_task(session, loop, coroutine, context, **options)

    def note(ended: asyncio.Task[Any]) -> None:
        if ended.cancelled():
            session.state.cut.add(branch.path)

    task.watch(note)
    return task


def _run_task(
    session: Session,
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    context: contextvars.Context,
    **options: Any,
) -> RunTask:
    options.pop("eager_start", None)
    task = RunTask(coroutine, loop=loop, context=context, **options)
    task.session, task.held = session, context
    session.tasks.add(task)
    task.watch(session.tasks.discard)
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
        if scope is not None and scope.branch is not None and not scope.loose:
            return open_branch_task(scope.session, scope, loop, coroutine, **options)
        before = self.before or _plain_task
        task = before(loop, coroutine, **options)
        if scope is not None and scope.loose:
            scope.session.loose.add(task)
            task.add_done_callback(scope.session.loose.discard)
        return task


def _plain_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


def install_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Give this loop our task factory, around the one it has."""
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))


async def stand_still(session: Session, reason: str, *, seconds: float | None = None) -> None:
    """This branch cannot go on for `seconds` (None: for ever); when no other moves either, the run suspends."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    session.still.add(over)
    timer = None if seconds is None else loop.call_later(seconds, _is_over, over)
    if session.watch is None:
        session.watch = loop.call_later(QUIET_SECONDS, _suspend_if_quiet, session, loop, reason, session.moves)
    try:
        await over
    finally:
        session.still.discard(over)
        if timer is not None:
            timer.cancel()


def _is_over(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _suspend_if_quiet(session: Session, loop: asyncio.AbstractEventLoop, reason: str, moves: int) -> None:
    """One watch a run: it looks again and again while a branch stands still, and ends with the last one that does."""
    session.watch = None
    if session.root_task is None or session.root_task.done() or not session.still:
        return
    quiet = session.moves == moves and not session.active and not session.calling
    if not quiet or not all(task.done() or stands_still(session, task) for task in session.tasks | session.loose):
        session.watch = loop.call_later(QUIET_SECONDS, _suspend_if_quiet, session, loop, reason, session.moves)
        return
    for timer in _bare_timers(session, loop):
        warn(
            "run %r is given back inside %s, which begins anew whenever it is taken up, and so may never fire; use "
            "surefoot.timeout(...) or within=, which are recorded",
            session.state.run_id,
            timer,
        )
    session.stopped = session.stopped or Suspend(reason)
    session.root_task.cancel()


def _bare_timers(session: Session, loop: asyncio.AbstractEventLoop) -> set[str]:
    """The timers of the workflow's own code that are running, as far as the loop shows them (uvloop does not)."""
    found: set[str] = set()
    for handle in cast("list[Any]", getattr(loop, "_scheduled", ())):
        owner = getattr(getattr(handle, "_callback", None), "__self__", None)
        module = type(owner).__module__
        task = getattr(owner, "_task" if module == "asyncio.timeouts" else "_host_task", None)
        if handle.cancelled() or not isinstance(task, RunTask) or task not in session.tasks:
            continue
        scope = task.held.get(current) if task.held is not None else None
        if (scope is None or not scope.loose) and module.startswith(("asyncio.timeouts", "anyio.")):
            found.add("asyncio.timeout" if module == "asyncio.timeouts" else "an anyio cancel scope")
    return found


def stands_still(session: Session, task: asyncio.Task[Any]) -> bool:
    """True if the task waits for a person, a message, or another task of the run, and for nothing else.

    One whose wait has just ended moves as soon as the loop comes to it, however long the loop is held up until then.
    """
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is not None and waiter.done():
        return False
    if waiter in session.still or isinstance(waiter, asyncio.Task) or type(waiter).__name__ == "_GatheringFuture":
        return True
    inner: Any = task.get_coro()
    while inspect.iscoroutine(getattr(inner, "cr_await", None)):
        inner = inner.cr_await
    frame = getattr(inner, "cr_frame", None)
    module = frame.f_globals.get("__name__", "") if frame is not None else ""
    place = f"{module}.{frame.f_code.co_name}" if frame is not None else ""
    return waiter is not None and (module in _JOINING or place in _JOINING)


async def uncancelled(*steps: Coroutine[Any, Any, Any]) -> None:
    """Do all of `steps` whatever happens to this task; a cancellation is raised when they are done."""

    async def work() -> None:
        for step in steps:
            await step

    task = asyncio.get_running_loop().create_task(work())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:
            break  # it is raised below
    task.result()
    if cancelled is not None:
        raise cancelled


async def end_tasks(session: Session) -> None:
    """Cancel what is left of a run's tasks, and a framework's in the middle of an effect; wait until they are gone.

    One that swallows its cancellation is cancelled again: frameworks take one that arrives while they await a task of
    their own for that task's end.
    """
    ours = {asyncio.current_task()}
    loop, run_id = asyncio.get_running_loop(), session.state.run_id
    while rest := [
        task for task in (session.tasks | session.sending) - ours if not task.done() and task.get_loop() is loop
    ]:
        for task in rest:
            task.cancel()
        ended = asyncio.gather(*rest, return_exceptions=True)
        if (await asyncio.wait({ended}, timeout=CANCEL_AGAIN_SECONDS))[1]:
            late = ", ".join(getattr(task.get_coro(), "__qualname__", "a task") for task in rest if not task.done())
            warn("run %r ends, and cancels once more what has swallowed that or takes long: %s", run_id, late)


async def outlast(root: asyncio.Task[T]) -> T:
    """Wait for the root task; if this task is cancelled meanwhile, the run stops first and is released."""
    loop = asyncio.get_running_loop()
    while not root.done():
        ended: asyncio.Future[None] = loop.create_future()

        def end(_: object, ended: asyncio.Future[None] = ended) -> None:
            if not ended.done():
                ended.set_result(None)

        root.add_done_callback(end)
        try:
            await ended
        except asyncio.CancelledError:
            root.cancel()
    return root.result()
