"""`surefoot.start_child` and `surefoot.call`: runs that a run starts, and waits for as it waits for anything.

A child is a run like any other: a worker takes it from its queue. A run that no queue started has no worker to count
on, so its process runs such children itself, each on a thread, unless a worker of the default queue is quicker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr, replace

from ..core import child as core
from ..core.commands import Commit, ask
from ..core.digest import digest
from ..core.errors import RunCancelled, RunWaiting, StoreError, SurefootError, Suspend, UsageError
from ..core.failures import rebuild_failure
from ..core.flows import Begun, check, preview_of, spill
from ..core.ids import check_id
from ..core.journal import Branch, Draft
from ..core.run import FINAL, Run, RunStatus, Waits
from ..core.writes import Answer, Append, Verdict
from .scope import require
from .session import Session
from .step import Workflow, budget_until, find_workflow
from .waiting import pause, pause_async

if TYPE_CHECKING:
    from .engine import Engine
    from .runner import Runner

R = TypeVar("R")


class Child(msgspec.Struct, Generic[R], frozen=True):
    """A run that this run has started: `child.result()` in a `def` workflow, `await child` in an `async def` one."""

    id: str
    workflow: Workflow[..., Any]
    started: Any = None

    def result(self) -> R:
        """Wait for its end and return its result, or raise what it raised; RunCancelled if it was cancelled.

        The end is recorded in this run's journal. The wait holds nothing in a worker.
        """
        session, branch = require("Child.result()")
        if session.asynchronous:
            raise UsageError("in an async def workflow write `await child`")
        draft, recorded = _take_end(session, branch, self)
        if recorded is None:
            wait = _wait_of(self)
            recorded = _record_end(session, branch, draft, pause(session, branch, wait, _look(session, branch, self)))
        return _value(self.workflow, self.id, recorded)

    def __await__(self) -> Generator[Any, None, R]:
        """The same in an `async def` workflow."""
        return self._join().__await__()

    async def _join(self) -> R:
        session, branch = require("await child")
        if not session.asynchronous:
            raise UsageError("in a def workflow write child.result()")
        draft, recorded = _take_end(session, branch, self)
        if recorded is None:
            if self.started is not None:
                _check_started(session, branch, self.workflow.name, self.id, await self.started)
            found = await pause_async(session, branch, _wait_of(self), _look(session, branch, self))
            recorded = _record_end(session, branch, draft, found)
        return _value(self.workflow, self.id, recorded)


def start_child(
    workflow: Workflow[..., Any], *args: Any, id: str | None = None, queue: str | None = None, **kwargs: Any
) -> Child[Any]:
    """Start a run of another workflow from inside this one, and go on; join it with `.result()` or `await`.

    Its id is made of this run's and the place in the code, or given; either way it is started once. It goes to
    `queue`, else to the queue of this run, else this process runs it. In a `def` workflow it is durable when this
    returns; in `async def` it is so before anything that comes later. It is cancelled with its parent. Raises
    UsageError if the id is another run's, ValueRefused for arguments that cannot be stored.
    """
    session, branch = require("surefoot.start_child()")
    chosen = _check_workflow(workflow)
    encoded = chosen.arguments.encode(chosen.arguments.bind(args, kwargs))
    given = None if id is None else check_id(id, "a child's id")
    place = session.queue if queue is None else check_id(queue, "a queue's name")
    session.enter(branch, chosen.name)
    try:
        draft, known = core.take_start(session.state, branch, chosen.name, encoded, preview_of(encoded))
        if known:
            session.children.add(known)
            return Child(known, chosen)
        session.state.begin(Begun.CHILD)
        write = _start_write(session, chosen, encoded, draft, given, place)
        session.children.add(write.child.id)
        if session.asynchronous:
            return Child(write.child.id, chosen, _begin(session, write))
        answer = session.drive(ask(Commit(write)))
        _check_started(session, branch, chosen.name, write.child.id, answer)
        _go(session, write.child)
        return Child(write.child.id, chosen)
    except BaseException as error:
        raise session.stop(error, branch) from error.__cause__
    finally:
        branch.busy = ""


def call(
    workflow: Workflow[..., Any], *args: Any, id: str | None = None, queue: str | None = None, **kwargs: Any
) -> Any:
    """Start a child run and wait for its result; in an `async def` workflow, await it. See `start_child`."""
    session, _ = require("surefoot.call()")
    started = start_child(workflow, *args, id=id, queue=queue, **kwargs)
    return started._join() if session.asynchronous else started.result()  # pyright: ignore[reportPrivateUsage]


# --- starting ---------------------------------------------------------------------------------------------------------


def _check_workflow(workflow: Any) -> Workflow[..., Any]:
    if not isinstance(workflow, Workflow):
        raise UsageError(f"a child needs a workflow, found {workflow!r}; decorate the function with @workflow")
    chosen = cast("Workflow[..., Any]", workflow)
    needed = chosen.arguments.ignored_without_default()
    if chosen.skip or needed:
        why = "is a method" if chosen.skip else f"keeps {', '.join(map(repr, needed))} out of the record"
        raise UsageError(
            f"workflow {chosen.name!r} {why}, so another process could not call it; a child takes all that it needs "
            "from its recorded arguments"
        )
    return chosen


def _start_write(
    session: Session, workflow: Workflow[..., Any], encoded: bytes, draft: Draft, given: str | None, queue: str
) -> core.StartChild:
    engine, state = session.engine, session.state
    stored, blobs = spill(encoded, state.inline_bytes)
    now, stamp = engine.clock.now(), next(engine.stamps)
    run = Run(
        id=given or core.child_id(state.run_id, draft.slot),
        workflow=workflow.name,
        status=RunStatus.PENDING,
        arguments=stored,
        args_digest=digest(encoded),
        fence=0,
        owner=0,
        created_at=now,
        updated_at=engine.time(),
        queue=queue,
        version=workflow.version,
        budget=workflow.budget,
        budget_until=budget_until(workflow.budget, engine.time),
        parent=state.run_id,
        stamp=stamp,
    )
    placed = replace(draft, value=core.encode_id(run.id), at=now)
    return core.StartChild(run_id=state.run_id, fence=state.fence, child=run, draft=placed, blobs=blobs, stamp=stamp)


def _begin(session: Session, write: core.StartChild) -> Any:
    """Queue the write in order; the future is done when it is on disk, and then the child may begin."""
    from .drive_async import commit_future

    future = commit_future(session, write)

    def begun(done: Any) -> None:
        if done.exception() is None and done.result().verdict is Verdict.DONE:
            _go(session, write.child)

    future.add_done_callback(begun)
    return future


def _check_started(session: Session, branch: Branch, name: str, child: str, answer: Answer) -> None:
    try:
        check(answer)
    except BaseException as error:
        raise session.stop(error, branch) from None
    if answer.verdict is Verdict.EXISTS and answer.run is not None:
        session.children.discard(child)
        held = answer.run
        whose = f"was started by run {held.parent!r}" if held.parent else "was not started by a run"
        raise UsageError(
            f"child {child!r} of run {session.state.run_id!r} cannot be {name!r} here: that id is a run of "
            f"{held.workflow}({preview_of(held.arguments)}), which {whose}. Give the child another id"
        )


def _go(session: Session, child: Run) -> None:
    session.engine.on_change()
    if not child.queue:
        session.engine.tend(child.id)


# --- joining ----------------------------------------------------------------------------------------------------------


def _take_end(session: Session, branch: Branch, child: Child[Any]) -> tuple[Draft, bytes | None]:
    session.enter(branch, child.workflow.name)
    try:
        draft, recorded = core.take_end(session.state, branch, child.workflow.name, child.id)
        if recorded is not None and recorded[:1] == b"\x00":
            recorded = session.engine.store.read_blob(recorded[1:])
        return draft, recorded
    except BaseException as error:
        raise session.stop(error, branch) from None
    finally:
        branch.busy = ""


def _wait_of(child: Child[Any]) -> Waits:
    return Waits(kind="child", name=child.id, detail=f"run {child.id!r} of {child.workflow.name}")


def _look(session: Session, branch: Branch, child: Child[Any]) -> Callable[[], Run | None]:
    """A look at the child; where no worker is counted on, this process sees to it that somebody runs it."""
    tended = False

    def look() -> Run | None:
        nonlocal tended
        run = session.engine.store.find_run(child.id)
        if run is None:
            raise session.stop(StoreError(f"child {child.id!r} vanished from the store"), branch)
        if run.parent != session.state.run_id:  # its end wakes its parent, and nobody else
            raise UsageError(
                f"run {child.id!r} is a child of run {run.parent!r}, which alone can wait for it; found run "
                f"{session.state.run_id!r}. Start a child here, or hand its result over as a message or an argument"
            )
        if run.status in FINAL:
            return run
        if not run.queue and not session.patient:
            stopped = session.engine.tend(child.id, again=not tended)
            tended = True
            if stopped is not None:
                raise session.stop(Suspend(f"its child {child.id!r} stands still: {_why(stopped)}"), branch)
        return None

    return look


def _record_end(session: Session, branch: Branch, draft: Draft, run: Run) -> bytes:
    """Queue the child's end in order; whatever is sent later waits for it."""
    engine, state = session.engine, session.state
    try:
        result = run.result
        if result[:1] == b"\x00":
            result = engine.store.read_blob(result[1:])
        value = core.joined_value(run, result)
        stored, blobs = spill(value, state.inline_bytes)
        force_setattr(draft, "value", stored)
        force_setattr(draft, "at", engine.clock.now())
        session.pipeline(Append(run_id=state.run_id, fence=state.fence, draft=draft, blobs=blobs))
    except BaseException as error:
        raise session.stop(error, branch) from None
    return value


def _value(workflow: Workflow[..., Any], child: str, recorded: bytes) -> Any:
    joined = core.joined_of(recorded)
    match joined.status:
        case RunStatus.CANCELLED:
            raise RunCancelled(child)
        case RunStatus.FAILED:
            raise rebuild_failure(bytes(joined.value), workflow.name, workflow.raises, "workflow")
        case _:
            return workflow.codec.decode(bytes(joined.value))


# --- in the foreground ------------------------------------------------------------------------------------------------


def _why(stopped: BaseException) -> str:
    return str(stopped) if isinstance(stopped, SurefootError) else f"it raised {type(stopped).__name__}: {stopped}"


class ChildRuns:
    """Runs the children of runs that no worker started, each on a thread of its own."""

    def __init__(self, engine: Engine, runner: Runner) -> None:
        """No thread yet."""
        self._engine, self._runner = engine, runner
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self.stopped: dict[str, BaseException] = {}
        """Children that came to a stop here without an end: only a person, or a change of the code, helps."""

    def tend(self, run_id: str, *, again: bool = True) -> BaseException | None:
        """See to it that somebody runs it; why it stands still, if it does (with `again` it is tried once more)."""
        with self._lock:
            if run_id in self._busy:
                return None
            if run_id in self.stopped and not again:
                return self.stopped[run_id]
            self.stopped.pop(run_id, None)
            self._busy.add(run_id)
        self._runner.in_background(f"surefoot-child-{run_id}", lambda: self._run(run_id))
        return None

    def check(self, run: Run) -> None:
        """Raises RunWaiting if a child that this run waits for stands still here."""
        for wait in run.waits:
            if wait.kind == "child" and wait.name in self.stopped:
                why = _why(self.stopped[wait.name])
                raise RunWaiting(run.id, f"its child {wait.name!r} stands still: {why}")

    def _run(self, run_id: str) -> None:
        stopped: BaseException | None = None
        try:
            self._run_to_its_end(run_id)
        except BaseException as error:
            stopped = error
        run = self._engine.store.find_run(run_id)
        with self._lock:
            self._busy.discard(run_id)
            if stopped is not None and (run is None or run.status not in FINAL):
                self.stopped[run_id] = stopped

    def _run_to_its_end(self, run_id: str) -> None:
        run = self._engine.store.find_run(run_id)
        if run is None or run.status in FINAL:
            return
        workflow = find_workflow(run.workflow, run.version)
        if workflow is None:
            which = f"{run.workflow!r}" + (f" of version {run.version!r}" if run.version else "")
            raise UsageError(f"its workflow {which} is not known in this process: import its module")
        outcome = self._runner.run_stored(run, workflow)
        if isinstance(outcome, Coroutine):
            import asyncio

            asyncio.run(cast("Coroutine[Any, Any, Any]", outcome))
