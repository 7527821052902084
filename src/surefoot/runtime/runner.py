"""Runs workflows: opens the run, replays and executes the function, and ends the run as its end deserves."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ..core import flows, perform
from ..core.budget import Budget
from ..core.commands import Commit, Flow, ask
from ..core.digest import digest
from ..core.errors import LeaseLost, RunBusy, RunWaiting, Stopping, UsageError
from ..core.flows import spill
from ..core.ids import check_id
from ..core.journal import Entry
from ..core.meter import Meter
from ..core.run import FINAL, Claimed, Run, RunDo, RunStatus
from ..core.writes import EndRun
from .cancelling import end_cancelled, release
from .children import ChildRuns
from .ending import Ending, Plan, ending_of, ends_children, finish, parks, stored_result, undoes, warn
from .engine import Engine
from .handle import Handle
from .outside import state_of
from .scope import Scope, current
from .session import Session
from .step import Workflow, budget_until, check_budget, count_live_runs
from .stopping import StopSwitch
from .waiting import off_loop

if TYPE_CHECKING:
    import asyncio

    from .worker import Worker

OUTWAIT_SECONDS_MIN, OUTWAIT_SECONDS_MAX = 0.05, 0.4


@functools.cache
def _tasks() -> ModuleType:
    """asyncio, and what runs in it: imported for the first `async def` workflow, since it takes long to load."""
    from . import tasks

    return tasks


class Claim(msgspec.Struct, frozen=True):
    """A run that a worker of this process has taken; `calls` was counted before."""

    run: Run
    workflow: Workflow[..., Any]
    calls: int


class Runner:
    """Runs workflows for one `Surefoot`."""

    def __init__(self, engine: Engine, switch: StopSwitch, *, pipelined: bool) -> None:
        """`switch` tells when the process is to stop."""
        self._engine, self._switch, self._pipelined = engine, switch, pipelined
        self._local: dict[str, object] = {}
        self._sessions: set[Session] = set()
        self._threads: set[threading.Thread] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.workers: set[Worker] = set()
        self.calls = 0
        """How often somebody here has begun to run, or cancel, a run by its id."""
        self._opening = Session(engine, state_of(engine))
        self._children = ChildRuns(engine, self)
        engine.stop_check, engine.tend = switch.check, self._children.tend

    # --- entry points -----------------------------------------------------------------------------------------------

    def plan(
        self,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run_id: str | None,
        when_running: str,
        budget: Budget | None = None,
    ) -> Plan:
        """Check everything that can be checked before anything is written."""
        scope = current.get()
        if scope is not None and scope.branch is not None:
            raise UsageError(
                f"a run was started inside run {scope.session.state.run_id!r} with Surefoot.run or start, which "
                "its journal would not know; write surefoot.call(workflow, ...) or surefoot.start_child(workflow, ...)"
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
            version=chosen.version,
            budget=(limit := check_budget(budget) or chosen.budget),
            budget_until=budget_until(limit, self._engine.time) if limit else 0.0,
            claims=(Claimed(at=now, owner=self._engine.owner, fence=1, why="started", who=self._engine.name),),
            stamp=next(self._engine.stamps),
        )
        return Plan(chosen, proposal, blobs, when_running, (*args[: chosen.skip], *restored), named)

    def run(self, plan: Plan) -> Any:
        """See `Surefoot.run`."""
        if plan.workflow.is_async:
            return self._run_async(plan)
        return self._run_sync(plan)

    def start(self, handle: Handle, plan: Plan) -> None:
        """Put the run into the store and go on with it in a thread, or in a task; see `Surefoot.start`."""
        self._switch.install()
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

        handle.thread = self.in_background(f"surefoot-run-{plan.proposal.id}", work)

    def in_background(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """A thread that `close` waits for; `work` must not raise."""

        def do() -> None:
            work()
            self._threads.discard(thread)

        thread = threading.Thread(target=do, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()
        return thread

    def run_stored(self, run: Run, workflow: Workflow[..., Any]) -> Any:
        """Go on here with a run as the store has it, as if `run` were called again; a coroutine for `async def`."""
        args, kwargs = workflow.arguments.restore(self._opening.drive(flows.unspill(run.arguments)))
        plan = Plan(workflow, replace(run, stamp=next(self._engine.stamps)), (), "wait", args, kwargs)
        return self._run_async(plan) if workflow.is_async else self._run_sync(plan)

    # --- def --------------------------------------------------------------------------------------------------------

    def _run_sync(self, plan: Plan) -> Any:
        token = object()
        self.calls += 1
        while self._local.setdefault(plan.proposal.id, token) is not token:
            self._refuse_local(plan)
            self._engine.clock.sleep(flows.POLL_SECONDS)
        self._switch.enter()
        count_live_runs(1)
        try:
            while True:
                self._switch.check()
                run, entries = self._opening.drive(self._open(plan))
                if run.status in FINAL:
                    return self._stored(plan, run)
                session = self._session(run, entries, rides=plan.rides)
                try:
                    return self._execute(plan, session)
                except LeaseLost:
                    self._refuse_lost(plan)
                except RunWaiting as waiting:
                    if not waiting.ends or parks(session):
                        raise
                    self._outwait(plan)
                finally:
                    self._leave(session)
        except Stopping:
            raise self._stopped(plan) from None
        finally:
            count_live_runs(-1)
            del self._local[plan.proposal.id]
            self._switch.leave()

    def _stopped(self, plan: Plan) -> BaseException:
        """What ends a run that was stopped: the program, if a signal asked for it."""
        if self._switch.asked is not None:
            return self._switch.end()
        return RunWaiting(plan.proposal.id, "its Surefoot was closed while it ran; run it again to resume it")

    def _execute(self, plan: Plan, session: Session) -> Any:
        token = current.set(Scope(session, session.state.root))
        try:
            try:
                value = plan.workflow.function(*plan.args, **plan.kwargs)
                ending = ending_of(plan, session, value, None)
            except BaseException as error:
                ending = ending_of(plan, session, None, error)
            try:
                if undoes(plan, session, ending):
                    session.drive(perform.settle_open(session.state, unread=False))
                    for undo in session.undos():
                        undo()
            except BaseException as error:
                ending = ending_of(plan, session, None, error)
        finally:
            current.reset(token)
        session.drive(finish(session, ending, self._engine.stamps, self._engine.clock.now))
        self._end_children(session, ending)
        return ending.give()

    # --- async def --------------------------------------------------------------------------------------------------

    async def _run_async(self, plan: Plan) -> Any:
        token = object()
        self.calls += 1
        while self._local.setdefault(plan.proposal.id, token) is not token:
            self._refuse_local(plan)
            await self._engine.clock.sleep_async(flows.POLL_SECONDS)
        self._switch.enter()
        count_live_runs(1)
        stopped: BaseException | None = None
        try:
            while True:
                self._switch.check()
                run, entries = await self._open_async(plan)
                if run.status in FINAL:
                    return self._stored(plan, run)
                session = self._session(run, entries, rides=plan.rides)
                try:
                    return await self._execute_async(plan, session)
                except LeaseLost:
                    self._refuse_lost(plan)
                except RunWaiting as waiting:
                    if not waiting.ends or parks(session):
                        raise
                    await self._outwait_async(plan)
                finally:
                    self._leave(session)
        except Stopping:
            stopped = self._stopped(plan)
        finally:
            count_live_runs(-1)
            del self._local[plan.proposal.id]
            self._switch.leave()
        while self._switch.users and not isinstance(stopped, Exception):
            await self._engine.clock.sleep_async(0.01)  # SystemExit ends the loop: others must have released first
        raise stopped

    async def _open_async(self, plan: Plan) -> tuple[Run, Any]:
        """Open the run; a cancellation that arrives meanwhile leaves it released, not held."""
        try:
            return await self._opening.drive_async(self._open(plan))
        except _tasks().CancelledError:
            await _tasks().uncancelled(self._opening.drive_async(release(plan.proposal.id, self._engine)))
            raise

    async def _execute_async(self, plan: Plan, session: Session) -> Any:
        tasks, session.asynchronous = _tasks(), True
        root = tasks.start_root(session, self._root(plan, session))
        try:
            ending: Ending = await tasks.outlast(root)
        except tasks.CancelledError as cancelled:  # before the workflow's first line
            ending = ending_of(plan, session, None, cancelled)
        ends = finish(session, ending, self._engine.stamps, self._engine.clock.now)
        if session.state.is_settled() and all(task.done() for task in session.tasks):
            await session.drive_async(ends)  # one commit, which cannot be cancelled
        else:
            await tasks.uncancelled(tasks.end_tasks(session), session.drive_async(ends))
        self._end_children(session, ending)
        return ending.give()

    async def _root(self, plan: Plan, session: Session) -> Ending:
        try:
            ending = ending_of(plan, session, await plan.workflow.function(*plan.args, **plan.kwargs), None)
        except BaseException as error:
            ending = ending_of(plan, session, None, error)
        if undoes(plan, session, ending):
            try:
                await session.drive_async(perform.settle_open(session.state, unread=False))
                for undo in session.undos():
                    undone = undo()
                    if hasattr(undone, "__await__"):
                        await undone
            except BaseException as error:
                ending = ending_of(plan, session, None, error)
        return ending

    # --- runs that a worker of this process has claimed ---------------------------------------------------------------

    def work(self, claimed: Claim) -> Run:
        """Go on with a claimed run on this thread; the run as its end left it in the store.

        Raises LeaseLost, or the store's errors; the run is then still claimed.
        """
        token = object()
        while self._local.setdefault(claimed.run.id, token) is not token:
            self._check_claim(claimed)
            self._engine.clock.sleep(flows.POLL_SECONDS)
        count_live_runs(1)
        try:
            opened = self._opening.drive(self._open_claimed(claimed))
            return opened if isinstance(opened, Run) else self._finish(*opened)
        finally:
            count_live_runs(-1)
            del self._local[claimed.run.id]

    async def work_async(self, claimed: Claim) -> Run:
        """The same in this task."""
        token = object()
        while self._local.setdefault(claimed.run.id, token) is not token:
            self._check_claim(claimed)
            await self._engine.clock.sleep_async(flows.POLL_SECONDS)
        count_live_runs(1)
        try:
            opened = await self._opening.drive_async(self._open_claimed(claimed))
            return opened if isinstance(opened, Run) else await self._finish_async(*opened)
        finally:
            count_live_runs(-1)
            del self._local[claimed.run.id]

    def _finish(self, plan: Plan, session: Session) -> Run:
        try:
            self._execute(plan, session)
        except BaseException:
            if session.ended is None:
                raise
        finally:
            self._leave(session)
        assert session.ended is not None
        return session.ended

    async def _finish_async(self, plan: Plan, session: Session) -> Run:
        try:
            await self._execute_async(plan, session)
        except BaseException:
            if session.ended is None:
                raise
        finally:
            self._leave(session)
        assert session.ended is not None
        return session.ended

    def _check_claim(self, claimed: Claim) -> None:
        """While somebody here runs the same id: they have it if they claimed it after we did."""
        run = self._engine.store.find_run(claimed.run.id)
        if run is None or run.fence != claimed.run.fence or run.status is not RunStatus.RUNNING:
            raise LeaseLost("somebody else in this process has this run now")

    def _open_claimed(self, claimed: Claim) -> Flow[Run | tuple[Plan, Session]]:
        """A claimed run, ready to be executed; or as it stands, if its arguments do not fit the code."""
        run, entries = claimed.run, list[Entry]()
        if run.fence > 1 or claimed.calls != self.calls:  # else nobody has ever worked on it
            run, entries = yield from flows.read_whole(run, self._engine.clock.now(), self._engine.stamps)
            if run.fence != claimed.run.fence or run.status is not RunStatus.RUNNING:
                raise LeaseLost("somebody else in this process has this run now")
        workflow = claimed.workflow
        try:
            args, kwargs = workflow.arguments.restore((yield from flows.unspill(run.arguments)))
            workflow.arguments.bind(args, kwargs)
        except (UsageError, TypeError, ValueError) as error:
            reason = f"its stored arguments do not fit the code: {error}"
            return (yield from self._diverge(run, reason))
        session = self._session(run, entries)
        session.patient = True
        return Plan(workflow, run, (), "wait", args, kwargs), session

    def _diverge(self, run: Run, reason: str) -> Flow[Run]:
        at, stamp = self._engine.clock.now(), next(self._engine.stamps)
        end = EndRun(run_id=run.id, fence=run.fence, do=RunDo.DIVERGE, at=at, reason=reason[:4000], stamp=stamp)
        answer = yield from ask(Commit(end))
        flows.check(answer)
        return answer.run or run

    def has(self, run_id: str) -> bool:
        """True if somebody in this process runs it."""
        return run_id in self._local

    def stop_claimed(self) -> None:
        """Let the runs of a worker be released at their next step."""
        for session in list(self._sessions):
            if session.patient:
                session.stopped = session.stopped or Stopping("its worker is stopping")

    # --- alike ------------------------------------------------------------------------------------------------------

    def _session(self, run: Run, entries: Any, *, rides: bool = False) -> Session:
        session = Session(self._engine, state_of(self._engine, run, entries), pipelined=self._pipelined)
        session.cancelled = (run.reason or "cancelled") if run.cancel_at else None
        session.queue, session.rides = run.queue, rides
        if run.budget is not None:
            session.meter = Meter(run.id, run.budget, run.budget_until, entries)
        self._sessions.add(session)
        return session

    def _leave(self, session: Session) -> None:
        self._sessions.discard(session)
        session.let_go()

    def _open(self, plan: Plan) -> Flow[tuple[Run, Any]]:
        return flows.open_run(plan.proposal, self._engine.stamps, plan.blobs, plan.when_running)

    def _outwait(self, plan: Plan) -> None:
        """Wait, holding nothing, until the run can go on: its time has come, a message has, or somebody else has it."""
        pause = OUTWAIT_SECONDS_MIN
        while (seconds := self._still_waits(plan.proposal.id)) > 0:
            self._engine.clock.sleep(min(seconds, pause))
            pause = min(pause * 1.5, OUTWAIT_SECONDS_MAX)

    async def _outwait_async(self, plan: Plan) -> None:
        pause, engine = OUTWAIT_SECONDS_MIN, self._engine
        while (seconds := await off_loop(engine, lambda: self._still_waits(plan.proposal.id))) > 0:
            await engine.clock.sleep_async(min(seconds, pause))
            pause = min(pause * 1.5, OUTWAIT_SECONDS_MAX)

    def _still_waits(self, run_id: str) -> float:
        """For how many seconds it waits, as far as is known now; 0 if it may go on."""
        self._switch.check()
        run = self._engine.store.find_run(run_id)
        if run is None or run.status is not RunStatus.WAITING:
            return 0.0
        self._children.check(run)
        return run.wake_at - self._engine.time() if run.wake_at else math.inf

    def _refuse_local(self, plan: Plan) -> None:
        if plan.when_running == "refuse":
            raise RunBusy(plan.proposal.id, "this process, in another thread or task")

    def _refuse_lost(self, plan: Plan) -> None:
        warn("run %r was taken over by another owner while it ran here", plan.proposal.id)
        if plan.when_running == "refuse":
            raise RunBusy(plan.proposal.id, "another process, which took it over") from None

    def _stored(self, plan: Plan, run: Run) -> Any:
        return stored_result(self._engine.store, plan.workflow, run)

    # --- cancelling and closing -------------------------------------------------------------------------------------

    def end_cancelled(self, run_id: str, reason: str) -> None:
        """End a cancelled run at once if nobody works on it and it left no effect open."""
        self.calls += 1
        if run_id in self._local:
            return
        session = Session(self._engine, state_of(self._engine, run_id=run_id))
        for child in session.drive(end_cancelled(session.state, self._engine, reason)):
            self.end_cancelled(child, f"its parent, run {run_id!r}, was cancelled")

    def _end_children(self, session: Session, ending: Ending) -> None:
        if ends_children(ending):
            for child in sorted(session.children):
                self.end_cancelled(child, f"its parent, run {session.state.run_id!r}, was cancelled")

    def close(self) -> None:
        """Stop background runs at their next step and wait for them."""
        for worker in list(self.workers):
            worker.stop()
        self._switch.close()
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
