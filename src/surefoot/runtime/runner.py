"""Runs workflows: opens the run, replays and executes the function, and ends the run as its end deserves.

However the function ends, exactly one of these is written: succeeded, failed, cancelled; or, to be resumed: waiting
(a person), diverged, damaged, released. A lost lease writes nothing, since somebody else has the run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..core import flows, perform
from ..core.commands import Commit, Flow, ask
from ..core.digest import digest
from ..core.errors import (
    CancelRequested,
    Damaged,
    Diverged,
    Halt,
    LeaseLost,
    NotDeterministic,
    RunBusy,
    RunCancelled,
    RunWaiting,
    Signal,
    Stopping,
    Suspend,
    UsageError,
)
from ..core.failures import encode_failure, rebuild_failure
from ..core.flows import RunState, spill
from ..core.ids import check_id
from ..core.journal import EntryKind
from ..core.lease import Vantage
from ..core.run import FINAL, Claimed, Run, RunDo, RunStatus
from ..core.writes import Answer, Blobs, ClaimRun, EndRun, Verdict
from .engine import Engine
from .handle import Handle
from .outside import state_of
from .scope import Scope, current
from .session import Session
from .step import Workflow, count_live_runs
from .stopping import StopSwitch

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("surefoot")


@dataclass(frozen=True)
class Plan:
    """A checked request to run something: nothing about it can fail any more but the store and the world."""

    workflow: Workflow[..., Any]
    proposal: Run
    blobs: Blobs
    when_running: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class Ending:
    """How a run's function ended: what to write, and what the caller of `run` gets."""

    do: RunDo | None
    error: BaseException | None = None
    value: Any = None
    result: bytes = b""
    reason: str = ""
    settle: bool = False


def finish(state: RunState, ending: Ending, stamps: Any, at: Callable[[], float]) -> Flow[Answer | None]:
    """Settle what is open, then write the end. An effect that has to wait for a person turns it into a suspension."""
    if ending.settle:
        parked = yield from perform.settle_open(state)
        if parked:
            names = ", ".join(f"{e.name} ({e.key[:12]}): {e.reason}" for e in parked)
            reason = f"parked effects of branches that ended: {names}"
            ending.do, ending.reason, ending.result = RunDo.SUSPEND, reason, b""
            ending.error = RunWaiting(state.run_id, reason)
    if ending.do is None:
        return None
    result, blobs = spill(ending.result, state.inline_bytes)
    write = EndRun(
        run_id=state.run_id,
        fence=state.fence,
        do=ending.do,
        at=at(),
        reason=ending.reason[:4000],
        result=result,
        blobs=blobs,
        stamp=next(stamps),
    )
    return (yield from flows.end_run(state, write))


class Runner:
    """Runs workflows for one `Surefoot`."""

    def __init__(self, engine: Engine, switch: StopSwitch, *, pipelined: bool) -> None:
        """`switch` tells when the process is to stop."""
        self._engine, self._switch, self._pipelined = engine, switch, pipelined
        self._local: dict[str, object] = {}
        self._sessions: set[Session] = set()
        self._threads: set[threading.Thread] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opening = Session(engine, state_of(engine))
        engine.stop_check = switch.check

    # --- entry points -----------------------------------------------------------------------------------------------

    def plan(
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run_id: str | None, when_running: str
    ) -> Plan:
        """Check everything that can be checked before anything is written."""
        scope = current.get()
        if scope is not None and scope.branch is not None:
            raise UsageError(
                f"a run was started inside run {scope.session.state.run_id!r}; nested runs are not started by a call. "
                "Make the inner workflow a plain function, or start its run from a step's body"
            )
        if not isinstance(workflow, Workflow):
            bound: Any = getattr(workflow, "__func__", None)
            if isinstance(bound, Workflow):
                workflow, args = cast("Workflow[..., Any]", bound), (workflow.__self__, *args)
            else:
                raise UsageError(f"{workflow!r} is not a workflow; decorate the function with @workflow")
        if run_id is None:
            raise UsageError(
                f'run({workflow.name}, ...) needs id="...": the same id again resumes the run or returns its result, '
                "so take what identifies the work, such as the order or the ticket"
            )
        if when_running not in ("wait", "refuse"):
            raise UsageError(f'when_running must be "wait" or "refuse", found {when_running!r}')
        check_id(run_id, "run id")
        chosen = cast("Workflow[..., Any]", workflow)
        named_arguments = chosen.arguments.bind(args[chosen.skip :], kwargs)
        encoded = chosen.arguments.encode(named_arguments)
        restored, named = chosen.arguments.restore(encoded, named_arguments)
        stored, blobs = spill(encoded, self._engine.inline_bytes)
        now = self._engine.clock.now()
        proposal = Run(
            id=run_id,
            workflow=chosen.name,
            status=RunStatus.RUNNING,
            arguments=stored,
            args_digest=digest(encoded),
            fence=1,
            owner=self._engine.owner,
            created_at=now,
            updated_at=now,
            claims=(Claimed(at=now, owner=self._engine.owner, fence=1, why="started"),),
            stamp=next(self._engine.stamps),
        )
        return Plan(chosen, proposal, blobs, when_running, (*args[: chosen.skip], *restored), named)

    def run(
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run_id: str | None, when_running: str
    ) -> Any:
        """See `Surefoot.run`."""
        plan = self.plan(workflow, args, kwargs, run_id, when_running)
        if plan.workflow.is_async:
            return self._run_async(plan)
        return self._run_sync(plan)

    def start(self, handle: Handle, plan: Plan) -> None:
        """Put the run into the store and go on with it in a thread, or in a task; see `Surefoot.start`."""
        self._opening.drive(flows.begin_run(plan.proposal, plan.blobs))
        if plan.workflow.is_async:
            import asyncio

            handle.task = asyncio.get_running_loop().create_task(self._run_async(plan))
            self._tasks.add(handle.task)
            handle.task.add_done_callback(self._tasks.discard)
            return

        def work() -> None:
            try:
                outcome = (True, self._run_sync(plan))
            except BaseException as error:
                outcome = (False, error)
            handle.outcome.append(outcome)
            self._threads.discard(thread)

        thread = threading.Thread(target=work, name=f"surefoot-run-{plan.proposal.id}", daemon=True)
        handle.thread = thread
        self._threads.add(thread)
        thread.start()

    # --- def --------------------------------------------------------------------------------------------------------

    def _run_sync(self, plan: Plan) -> Any:
        token = object()
        while self._local.setdefault(plan.proposal.id, token) is not token:
            self._refuse_local(plan)
            self._engine.clock.sleep(flows.POLL_SECONDS)
        self._switch.enter()
        count_live_runs(1)
        try:
            while True:
                run, entries = self._opening.drive(self._open(plan))
                if run.status in FINAL:
                    return self._stored(plan, run)
                session = self._session(run, entries)
                try:
                    return self._execute(plan, session)
                except LeaseLost:
                    self._refuse_lost(plan)
                finally:
                    self._sessions.discard(session)
        except Stopping:
            raise self._switch.end() from None
        finally:
            count_live_runs(-1)
            self._switch.leave()
            del self._local[plan.proposal.id]

    def _execute(self, plan: Plan, session: Session) -> Any:
        token = current.set(Scope(session, session.state.root))
        try:
            try:
                value = plan.workflow.function(*plan.args, **plan.kwargs)
                ending = self._ending(plan, session, value, None)
            except BaseException as error:
                ending = self._ending(plan, session, None, error)
            try:
                if plan.workflow.compensate and ending.do is RunDo.FAIL:
                    session.drive(perform.settle_open(session.state))
                    for undo in reversed(session.compensations):
                        undo()
            except BaseException as error:
                ending = self._ending(plan, session, None, error)
        finally:
            current.reset(token)
        session.drive(finish(session.state, ending, self._engine.stamps, self._engine.clock.now))
        return self._give(ending)

    # --- async def --------------------------------------------------------------------------------------------------

    async def _run_async(self, plan: Plan) -> Any:
        token = object()
        while self._local.setdefault(plan.proposal.id, token) is not token:
            self._refuse_local(plan)
            await self._engine.clock.sleep_async(flows.POLL_SECONDS)
        self._switch.enter()
        count_live_runs(1)
        try:
            while True:
                run, entries = await self._opening.drive_async(self._open(plan))
                if run.status in FINAL:
                    return self._stored(plan, run)
                session = self._session(run, entries)
                try:
                    return await self._execute_async(plan, session)
                except LeaseLost:
                    self._refuse_lost(plan)
                finally:
                    self._sessions.discard(session)
        except Stopping:
            raise self._switch.end() from None
        finally:
            count_live_runs(-1)
            self._switch.leave()
            del self._local[plan.proposal.id]

    async def _execute_async(self, plan: Plan, session: Session) -> Any:
        from .tasks import end_tasks, start_root

        session.asynchronous = True
        root = start_root(session, self._root(plan, session))
        try:
            ending: Ending = await _outlast(root)
        finally:
            await end_tasks(session)
        await session.drive_async(finish(session.state, ending, self._engine.stamps, self._engine.clock.now))
        return self._give(ending)

    async def _root(self, plan: Plan, session: Session) -> Ending:
        try:
            ending = self._ending(plan, session, await plan.workflow.function(*plan.args, **plan.kwargs), None)
        except BaseException as error:
            ending = self._ending(plan, session, None, error)
        if plan.workflow.compensate and ending.do is RunDo.FAIL:
            try:
                await session.drive_async(perform.settle_open(session.state))
                for undo in reversed(session.compensations):
                    undone = undo()
                    if hasattr(undone, "__await__"):
                        await undone
            except BaseException as error:
                ending = self._ending(plan, session, None, error)
        return ending

    # --- alike ------------------------------------------------------------------------------------------------------

    def _session(self, run: Run, entries: Any) -> Session:
        session = Session(self._engine, state_of(self._engine, run.id, run.fence, entries), pipelined=self._pipelined)
        self._sessions.add(session)
        return session

    def _open(self, plan: Plan) -> Flow[tuple[Run, Any]]:
        return flows.open_run(plan.proposal, self._engine.stamps, plan.blobs, plan.when_running)

    def _refuse_local(self, plan: Plan) -> None:
        if plan.when_running == "refuse":
            raise RunBusy(plan.proposal.id, "this process, in another thread or task")

    def _refuse_lost(self, plan: Plan) -> None:
        log.warning("run %r was taken over by another owner while it ran here", plan.proposal.id)
        if plan.when_running == "refuse":
            raise RunBusy(plan.proposal.id, "another process, which took it over") from None

    def _ending(self, plan: Plan, session: Session, value: Any, error: BaseException | None) -> Ending:
        """What a function's end means for its run. A signal counts even if the workflow swallowed it."""
        run_id = session.state.run_id
        match session.stopped or error:
            case None:
                return self._success(plan, session, value)
            case Halt(error=Diverged() | NotDeterministic() as why):
                return Ending(RunDo.DIVERGE, error=why, reason=str(why))
            case Halt(error=Damaged() as why):
                return Ending(RunDo.DAMAGE, error=why, reason=str(why))
            case Halt(error=why):
                return Ending(None, error=why)
            case Suspend(reason=reason):
                return Ending(RunDo.SUSPEND, error=RunWaiting(run_id, reason), reason=reason)
            case CancelRequested():
                return Ending(RunDo.CANCEL, error=RunCancelled(run_id), reason="cancelled", settle=True)
            case LeaseLost() as lost:
                return Ending(None, error=lost)
            case Signal() as stopping:
                return Ending(RunDo.RELEASE, error=stopping, reason=str(stopping))
            case Exception() as failure:
                return self._failure(plan, failure)
            case interrupt:
                return Ending(RunDo.RELEASE, error=interrupt, reason=f"interrupted by {type(interrupt).__name__}")

    def _success(self, plan: Plan, session: Session, value: Any) -> Ending:
        try:
            stored, after = plan.workflow.codec.settle(value)
        except UsageError as refused:
            return self._failure(plan, refused)
        unread = session.state.replay.unread()
        reason = ""
        if unread:
            effects = [e.text() for e in unread if e.kind in (EntryKind.INTENT, EntryKind.OUTCOME)]
            reason = f"the code no longer asked for: {'; '.join(e.text() for e in unread[:8])}"
            (log.warning if effects else log.info)("run %r: %s", session.state.run_id, reason)
        return Ending(RunDo.SUCCEED, value=after, result=stored, reason=reason, settle=True)

    def _failure(self, plan: Plan, failure: Exception) -> Ending:
        stored = encode_failure(failure)
        error = rebuild_failure(stored, plan.workflow.name, plan.workflow.raises)
        error.__cause__ = failure
        reason = f"{type(failure).__name__}: {failure}"
        return Ending(RunDo.FAIL, error=error, result=stored, reason=reason, settle=True)

    def _give(self, ending: Ending) -> Any:
        if ending.error is not None:
            raise ending.error
        return ending.value

    def _stored(self, plan: Plan, run: Run) -> Any:
        if run.status is RunStatus.CANCELLED:
            raise RunCancelled(run.id)
        result = run.result
        if result[:1] == b"\x00":
            result = self._engine.store.read_blob(result[1:])
        if run.status is RunStatus.FAILED:
            raise rebuild_failure(result, plan.workflow.name, plan.workflow.raises)
        return plan.workflow.codec.decode(result)

    # --- cancelling and closing -------------------------------------------------------------------------------------

    def end_cancelled(self, run_id: str) -> None:
        """End a cancelled run at once if nobody works on it and it left no effect open."""
        if run_id in self._local:
            return
        session = Session(self._engine, state_of(self._engine, run_id))
        session.drive(_end_cancelled(session.state, self._engine))

    def close(self) -> None:
        """Stop background runs at their next step and wait for them."""
        for session in list(self._sessions):
            session.stopped = session.stopped or Stopping("Surefoot was closed")
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    async def close_async(self) -> None:
        """Stop background tasks of this loop and wait for them."""
        import asyncio

        tasks = [task for task in self._tasks if task.get_loop() is asyncio.get_running_loop()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end_cancelled(state: RunState, engine: Engine) -> Flow[None]:
    vantage: Vantage = engine.look(0)
    claim = ClaimRun(run_id=state.run_id, vantage=vantage, why="to cancel it", stamp=next(engine.stamps))
    answer = yield from ask(Commit(claim))
    if answer.verdict is Verdict.BUSY and answer.run is not None:
        vantage = engine.look(answer.run.owner)
        answer = yield from ask(Commit(replace(claim, vantage=vantage)))
    if answer.verdict is not Verdict.TOOK or answer.run is None:
        return
    state.fence = answer.run.fence
    entries = yield from flows.read_claimed(answer.run, vantage.at, engine.stamps)
    settled = {entry.slot for entry in entries if entry.kind == EntryKind.OUTCOME}
    open_effects = [e for e in entries if e.kind == EntryKind.INTENT and e.slot not in settled]
    reason = "cancelled"
    if open_effects:
        reason = f"cancelled; {len(open_effects)} effect(s) are to be settled: run it once more"
    end = EndRun(
        run_id=state.run_id,
        fence=state.fence,
        do=RunDo.RELEASE if open_effects else RunDo.CANCEL,
        at=engine.clock.now(),
        reason=reason,
        stamp=next(engine.stamps),
    )
    yield Commit(end)


async def _outlast(root: asyncio.Task[Ending]) -> Ending:
    """Wait for the root task; if this task is cancelled meanwhile, the run stops first and is released."""
    import asyncio

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
