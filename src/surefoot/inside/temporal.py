"""Inside a Temporal activity: one activity is one run, and its workflow waits for a signal while the run is parked.

The run's id is the workflow's id, its run id and the activity's id: the pair that Temporal calls stable between the
attempts of one activity and unique among executions (https://docs.temporal.io/activity-definition#idempotency), so that
a workflow that continues as new, or whose id is used again, does new work. `per="workflow"` leaves the run id out: then
an execution that was reset, retried or started again goes on with the same run, and must not mean new work.

`execute` is for workflow code, `ride` and `ride_sync` are for activities, `waking` is for the worker's process.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any, Literal

from ..core.errors import RunCancelled, SurefootError, UsageError
from ..runtime.app import Surefoot
from ..runtime.riding import position
from .parked import Parked, leave_address, run_id_of
from .riding import AnyWorkflow, Done, attempt, attempt_async, is_final, look_seconds
from .waking import Waker

PARKED, SIGNAL = "SurefootParked", "surefoot_decided"
"""The type of the error by which an activity says that its run is parked; the signal that says it may go on."""
Per = Literal["execution", "workflow"]
BEATS_PER_TIMEOUT = 4
BEAT_SECONDS_MAX, CANCEL_LOOK_SECONDS = 10.0, 0.5


def _activity() -> Any:
    return import_module("temporalio.activity")


def run_id(per: Per = "execution") -> str:
    """The id of this activity's run; UsageError outside an activity of a workflow."""
    activity = _activity()
    if per not in ("execution", "workflow"):
        raise UsageError(f'per must be "execution" or "workflow", found {per!r}')
    info = activity.info() if activity.in_activity() else None
    if info is None or not info.workflow_id:
        raise UsageError("this is not an activity of a Temporal workflow; give the run's id with id=")
    own = (info.workflow_run_id,) if per == "execution" else ()
    return run_id_of(info.workflow_id, *own, info.activity_id)


# --- in the activity --------------------------------------------------------------------------------------------------


async def ride(
    sf: Surefoot, workflow: AnyWorkflow, *args: Any, per: Per = "execution", id: str | None = None, **kwargs: Any
) -> Any:
    """In an async activity: run the workflow, resume it, or return its result; a `def` workflow runs in a thread.

    Beats with the run's position where the activity has a heartbeat timeout. Where the run is parked it raises
    ApplicationError of type PARKED, not retryable, with `Parked.plain()` as its detail. A failure that another try
    would repeat is not retryable either. If the activity is cancelled by its workflow, so is the run; if its worker
    shuts down, the run is released for the next attempt.
    """
    own = id or run_id(per)
    beat = asyncio.create_task(_beat(sf, own))
    try:
        done = await attempt_async(sf, workflow, args, kwargs, own)
        if isinstance(done, Parked):
            await asyncio.to_thread(_leave, sf, own)
    except asyncio.CancelledError:
        if _is_asked_to_cancel():
            await asyncio.shield(asyncio.to_thread(_cancel, sf, own))
        raise
    except Exception as error:
        raise _error_of(sf, own, error) from error
    finally:
        beat.cancel()
    return _give(own, done)


def ride_sync(
    sf: Surefoot, workflow: AnyWorkflow, *args: Any, per: Per = "execution", id: str | None = None, **kwargs: Any
) -> Any:
    """The same in an activity that is `def` and runs in a thread; the workflow is `def` too.

    Temporal would stop a cancelled thread anywhere, in the middle of a send too. So that is held off here, and the run
    is cancelled instead, which stops it at its next step.
    """
    own = id or run_id(per)
    with _activity().shield_thread_cancel_exception(), _beating(sf, own):
        try:
            done = attempt(sf, workflow, args, kwargs, own)
            if isinstance(done, Parked):
                _leave(sf, own)
        except Exception as error:
            raise _error_of(sf, own, error) from error
    return _give(own, done)


def _leave(sf: Surefoot, run_id: str) -> None:
    info = _activity().info()
    leave_address(sf, run_id, "temporal", {"workflow": info.workflow_id, "namespace": info.namespace})


def _give(run_id: str, done: Done | Parked) -> Any:
    if isinstance(done, Done):
        return done.value
    exceptions = import_module("temporalio.exceptions")
    raise exceptions.ApplicationError(
        f"run {run_id!r} is parked: {done.reason}", done.plain(), type=PARKED, non_retryable=True
    )


def _error_of(sf: Surefoot, run_id: str, error: Exception) -> BaseException:
    exceptions = import_module("temporalio.exceptions")
    if isinstance(error, RunCancelled) and _is_asked_to_cancel():
        return exceptions.CancelledError(str(error))
    return exceptions.ApplicationError(
        str(error), {"run": run_id}, type=type(error).__name__, non_retryable=is_final(sf, run_id, error)
    )


def _is_asked_to_cancel() -> bool:
    details = _activity().cancellation_details()
    return details is not None and details.cancel_requested


def _cancel(sf: Surefoot, run_id: str) -> None:
    try:
        sf.cancel(run_id, reason="its Temporal activity was cancelled")
    except SurefootError:
        return  # it was never begun, or the store is out: then the next attempt, or `surefoot cancel`, ends it


# --- heartbeat --------------------------------------------------------------------------------------------------------


def _say_position(sf: Surefoot, run_id: str) -> None:
    at = position(sf, run_id)
    detail = {"run": run_id, "asked": at.asked, "replaying": at.replaying} if at is not None else {"run": run_id}
    _activity().heartbeat(detail)


def _beat_seconds() -> float | None:
    timeout: timedelta | None = _activity().info().heartbeat_timeout
    if timeout is None or not timeout.total_seconds():
        return None
    return min(timeout.total_seconds() / BEATS_PER_TIMEOUT, BEAT_SECONDS_MAX)


async def _beat(sf: Surefoot, run_id: str) -> None:
    seconds = _beat_seconds()
    while seconds is not None:
        _say_position(sf, run_id)
        await asyncio.sleep(seconds)


@contextmanager
def _beating(sf: Surefoot, run_id: str) -> Generator[None]:
    """Beat from a thread, and cancel the run when the activity is asked to."""
    stop, context, seconds = threading.Event(), contextvars.copy_context(), _beat_seconds()

    def work() -> None:
        cancelled = False
        while not stop.wait(CANCEL_LOOK_SECONDS if seconds is None else seconds):
            if seconds is not None:
                _say_position(sf, run_id)
            if not cancelled and _is_asked_to_cancel():
                cancelled = True
                _cancel(sf, run_id)

    if seconds is not None:
        _say_position(sf, run_id)
    thread = threading.Thread(target=context.run, args=(work,), name="surefoot-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# --- in the workflow --------------------------------------------------------------------------------------------------


def parked_in(error: BaseException) -> Parked | None:
    """What a workflow caught, if it means that a run is parked."""
    cause = getattr(error, "cause", None)
    if getattr(cause, "type", None) != PARKED:
        return None
    return Parked.read(cause.details[0])  # pyright: ignore[reportOptionalMemberAccess]


async def execute(
    activity: Callable[..., Any] | str, *args: Any, activity_id: str | None = None, **options: Any
) -> Any:
    """In a workflow: execute an activity that rides; while its run is parked, wait durably, then execute it again.

    It waits for the signal SIGNAL that a waker sends, and looks by itself after a minute, two, four, up to an hour.
    `options` are those of `workflow.execute_activity`; a cancelled workflow waits until the activity has cancelled its
    run, of which an activity hears by its heartbeats. The id of the activity stays the same, so the run does; it is
    the activity's name and its number in this workflow, unless given.
    """
    workflow: Any = import_module("temporalio.workflow")
    exceptions: Any = import_module("temporalio.exceptions")
    mailbox = _mailbox(workflow)
    named = activity if isinstance(activity, str) else activity.__name__
    own = activity_id or f"{named}-{mailbox.number(named)}"
    # else the workflow ends before the activity has heard of it, and the run is never cancelled
    options.setdefault("cancellation_type", workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED)
    looks = 0
    while True:
        try:
            return await workflow.execute_activity(activity, args=list(args), activity_id=own, **options)
        except exceptions.ActivityError as error:
            parked = parked_in(error)
            if parked is None:
                raise
        await mailbox.wait(workflow, parked, looks)
        looks += 1


class _Mailbox:
    """What one workflow execution was told about its runs; made anew, in the same order, by each replay."""

    def __init__(self, workflow: Any) -> None:
        self._decided: set[str] = set()
        self._counts: dict[str, int] = {}
        workflow.set_signal_handler(SIGNAL, self.hear)

    def hear(self, run_id: str) -> None:
        self._decided.add(run_id)

    def number(self, name: str) -> int:
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name]

    async def wait(self, workflow: Any, parked: Parked, looks: int) -> None:
        seconds = look_seconds(parked, looks, workflow.now().timestamp())
        try:
            await workflow.wait_condition(lambda: parked.run in self._decided, timeout=timedelta(seconds=seconds))
        except TimeoutError:
            pass
        self._decided.discard(parked.run)


def _mailbox(workflow: Any) -> _Mailbox:
    instance = workflow.instance()
    held = getattr(instance, "_surefoot_mailbox", None)
    if held is None:
        held = instance._surefoot_mailbox = _Mailbox(workflow)
    return held


# --- in the worker's process ------------------------------------------------------------------------------------------


@asynccontextmanager
async def waking(sf: Surefoot, client: Any, *, every: float = 1.0) -> AsyncGenerator[Waker]:
    """Signal the workflow of each parked run that may go on; `async with` it around the worker."""
    loop = asyncio.get_running_loop()

    async def send(run_id: str, address: dict[str, Any]) -> None:
        await client.get_workflow_handle(address["workflow"]).signal(SIGNAL, run_id)

    def poke(run_id: str, address: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(send(run_id, address), loop).result(10)

    waker = Waker(sf, "temporal", poke, every=every)
    await asyncio.to_thread(waker.__enter__)
    try:
        yield waker
    finally:
        await asyncio.to_thread(waker.__exit__, None, None, None)


__all__: Sequence[str] = ("PARKED", "SIGNAL", "execute", "parked_in", "ride", "ride_sync", "run_id", "waking")
