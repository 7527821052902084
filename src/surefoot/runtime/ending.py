"""How a workflow's function ended, and what that means for its run.

Exactly one of these is written: succeeded, failed, cancelled; or, to be resumed: waiting (a person), diverged, damaged,
released. A lost lease and a store that failed write nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ..core import flows, perform
from ..core.child import children_of
from ..core.commands import Flow
from ..core.errors import (
    CancelRequested,
    Damaged,
    Diverged,
    Halt,
    LeaseLost,
    NotDeterministic,
    OverBudget,
    RunCancelled,
    RunWaiting,
    Signal,
    SurefootError,
    Suspend,
    UsageError,
)
from ..core.failures import encode_failure, message_of, rebuild_failure
from ..core.flows import spill
from ..core.outcome import storable_text
from ..core.run import Run, RunDo, RunStatus, Waits
from ..core.writes import Answer, Blobs, EndRun
from ..stores.base import Store
from .cancelling import cancel_children
from .session import Session
from .step import Workflow

MAIL_MAX = 1 << 53
"""What a run has seen of its mail when it waits for none."""


def warn(message: str, *values: object) -> None:
    """Say it in the log; logging is imported only now, since most programs never come here."""
    import logging

    logging.getLogger("surefoot").warning(message, *values)


class Plan(msgspec.Struct, frozen=True):
    """A checked request to run something: nothing about it can fail any more but the store and the world."""

    workflow: Workflow[..., Any]
    proposal: Run
    blobs: Blobs
    when_running: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rides: bool = False
    """It runs inside an engine, which waits in its place: the run is given back whenever it would wait."""


class Ending(msgspec.Struct):
    """How a run's function ended: what to write, and what the caller of `run` gets."""

    do: RunDo | None
    error: BaseException | None = None
    value: Any = None
    result: bytes = b""
    reason: str = ""
    settle: bool = False
    stopped: bool = False
    """It passed its budget: its children are cancelled, and what only a person can settle stays parked."""

    def give(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


def finish(session: Session, ending: Ending, stamps: Any, at: Callable[[], float]) -> Flow[Answer | None]:
    """Settle what is open, then write the end. An effect that has to wait for a person turns it into a suspension."""
    state = session.state
    if ending.settle:
        parked = yield from perform.settle_open(state)
        if parked and not ending.stopped:
            names = ", ".join(f"{e.name} ({e.key[:12]}): {e.reason}" for e in parked)
            reason = f"parked effects of branches that ended: {names}"
            ending.do, ending.reason, ending.result = RunDo.SUSPEND, reason, b""
            ending.error = RunWaiting(state.run_id, reason)
    if ending.do is None:
        return None
    if ends_children(ending):
        session.children.update(children_of(state.replay.unread()))
        yield from cancel_children(sorted(session.children), session.engine, state.run_id)
    result, blobs = spill(ending.result, state.inline_bytes)
    write = EndRun(
        run_id=state.run_id,
        fence=state.fence,
        do=ending.do,
        at=at(),
        reason=storable_text(ending.reason[:4000]),
        result=result,
        blobs=blobs,
        length_at_claim=state.length,
        stamp=next(stamps),
    )
    if ending.do is RunDo.SUSPEND:
        write = _waiting(session, write)
    answer = yield from flows.end_run(state, write)
    session.ended = answer.run
    return answer


def _waiting(session: Session, write: EndRun) -> EndRun:
    waits = waits_of(session)
    wake_at = min((wait.until for wait in waits if wait.until), default=0.0)
    seen = min((session.looked[key] for key in session.waits if key in session.looked), default=MAIL_MAX)
    return replace(write, waits=waits, wake_at=wake_at, mail_seen=seen)


def waits_of(session: Session) -> tuple[Waits, ...]:
    """What the run waits for. The end of a block that it is in counts too, unless only a person can help it."""
    waits = tuple(session.waits.values())
    meter = session.meter
    if meter is not None and meter.until:
        waits = (
            *waits,
            Waits(kind="budget", name="wall", until=meter.until, detail="the end of its budget's wall time"),
        )
    if all(wait.kind == "doubt" for wait in session.waits.values()):
        return waits
    return *waits, *session.deadlines.values()


def stopped_by(session: Session, error: BaseException | None) -> BaseException | None:
    """What ended the function. A signal counts even if it was swallowed; a run whose time is up waits no longer."""
    stopped = session.stopped or error
    if session.suspended and (stopped is None or isinstance(stopped, Exception) or _is_group_of_stops(stopped)):
        stopped = next(iter(session.suspended.values()))  # a framework told its model of it, and went on
    return (session.over_budget() or stopped) if isinstance(stopped, Suspend) else stopped


def _is_group_of_stops(error: BaseException) -> bool:
    """True for what a framework's task group makes of a stop: a group of nothing but stops and failures."""
    if not isinstance(error, BaseExceptionGroup):
        return False
    held = cast("BaseExceptionGroup[BaseException]", error)
    return held.split((Suspend, Exception))[1] is None


def ends_children(ending: Ending) -> bool:
    """True if what this run has started is cancelled with it."""
    return ending.do is RunDo.CANCEL or (ending.do is RunDo.FAIL and ending.stopped)


def undoes(plan: Plan, session: Session, ending: Ending) -> bool:
    """True if what this run did is undone before it ends; from here on nothing else of it begins."""
    if ending.do is RunDo.FAIL:
        session.stopped = None if plan.workflow.compensate else session.stopped
        return plan.workflow.compensate
    run = session.engine.store.find_run(session.state.run_id) if ending.do is RunDo.CANCEL else None
    if run is None or not run.undo:
        return False
    session.cancelled = session.cancelled or ending.reason
    session.stopped, session.undoing = None, True
    return True


def parks(session: Session) -> bool:
    """True if the run is given back to its engine for what it waits for; its children are run here, by who waits."""
    return session.rides and all(wait.kind != "child" for wait in session.waits.values())


def stored_result(store: Store, workflow: Workflow[..., Any], run: Run) -> Any:
    """What a run that has ended gave: its value, or its exception, raised."""
    if run.status is RunStatus.CANCELLED:
        raise RunCancelled(run.id)
    result = run.result
    if result[:1] == b"\x00":
        result = store.read_blob(result[1:])
    if run.status is RunStatus.FAILED:
        raise rebuild_failure(result, workflow.name, workflow.raises, "workflow")
    return workflow.codec.decode(result)


def ending_of(plan: Plan, session: Session, value: Any, error: BaseException | None) -> Ending:
    """What a function's end means for its run. A signal counts even if the workflow swallowed it."""
    run_id = session.state.run_id
    match stopped_by(session, error):
        case (None | Exception()) as end if session.cancelled is not None:
            reason = (
                session.cancelled if end is None else f"{session.cancelled}; {type(end).__name__}: {message_of(end)}"
            )
            return Ending(RunDo.CANCEL, error=RunCancelled(run_id), reason=reason, settle=True)
        case None:
            return _success(plan, session, value)
        case Halt(error=Diverged() | NotDeterministic() as why):
            return Ending(RunDo.DIVERGE, error=why, reason=str(why))
        case Halt(error=Damaged() as why):
            return Ending(RunDo.DAMAGE, error=why, reason=str(why))
        case Halt(error=why):
            return Ending(None, error=why)
        case Suspend(reason=reason):
            ends = any(wait.kind != "doubt" for wait in session.waits.values())
            return Ending(RunDo.SUSPEND, error=RunWaiting(run_id, reason, ends=ends), reason=reason)
        case CancelRequested() as cancelled:
            return Ending(RunDo.CANCEL, error=RunCancelled(run_id), reason=str(cancelled), settle=True)
        case LeaseLost() as lost:
            return Ending(None, error=lost)
        case OverBudget(error=exceeded):
            stored = encode_failure(exceeded)
            return Ending(RunDo.FAIL, error=exceeded, result=stored, reason=str(exceeded), settle=True, stopped=True)
        case Signal() as stopping:
            return Ending(RunDo.RELEASE, error=stopping, reason=str(stopping))
        case Exception() as failure:
            return _failure(plan, failure)
        case interrupt if session.patient:
            # nobody interrupts a worker's run: it raised this itself, and would again for whoever is next
            return _failure(
                plan, SurefootError(f"the workflow raised {type(interrupt).__name__}: {message_of(interrupt)}")
            )
        case interrupt:
            return Ending(RunDo.RELEASE, error=interrupt, reason=f"interrupted by {type(interrupt).__name__}")


def _success(plan: Plan, session: Session, value: Any) -> Ending:
    try:
        stored, after = plan.workflow.codec.settle(value)
    except UsageError as refused:
        return _failure(plan, refused)
    unread = session.state.replay.unread()
    reason = ""
    if unread:
        reason = f"the code no longer asked for: {'; '.join(e.text() for e in unread[:8])}"
        warn("run %r: %s", session.state.run_id, reason)
    return Ending(RunDo.SUCCEED, value=after, result=stored, reason=reason, settle=True)


def _failure(plan: Plan, failure: Exception) -> Ending:
    stored = encode_failure(failure)
    error = rebuild_failure(stored, plan.workflow.name, plan.workflow.raises, "workflow")
    error.__cause__ = failure
    reason = f"{type(failure).__name__}: {message_of(failure)}"
    return Ending(RunDo.FAIL, error=error, result=stored, reason=reason, settle=True)
