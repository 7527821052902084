"""`Surefoot`: an open store, and the runs that this process works on."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload

from ..core import flows
from ..core.budget import Budget
from ..core.dispatch_writes import SendMail
from ..core.errors import RunEnded, RunNotFound, UsageError
from ..core.ids import check_id, check_text
from ..core.mail import Mail
from ..core.run import Run, RunStatus
from ..core.values import encode_message
from ..core.writes import CancelRun, Verdict
from ..stores.base import Store, Waits
from . import queues
from .clock import Clock, SystemClock, random_uuid
from .engine import Engine
from .handle import Handle
from .opening import open_store as open_store
from .outside import enter_engine, leave_engine
from .runner import Runner
from .session import SYNC_HANDLERS
from .step import Workflow
from .stopping import StopSwitch
from .view import RunView, view_of
from .waiting import check_message_name, refuse_in_workflow

if TYPE_CHECKING:
    from .decisions import ApprovalView
    from .schedules import ScheduleView
    from .worker import Worker

R = TypeVar("R")
WhenRunning = Literal["wait", "refuse"]
Durability = Literal["sync", "pipelined"]


class Surefoot:
    """Opens a store and runs workflows in it. Use as `with` or `async with`.

    `namespace` separates the keys of, say, staging and production. `durability="pipelined"` lets a step return before
    its record is on disk; effects and the end of the run still wait for all earlier records. `lease` (seconds) bounds
    how long a hung process keeps its runs; a dead one loses them at once.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        *,
        namespace: str = "default",
        durability: Durability = "sync",
        lease: float = 15.0,
        grace: float = 10.0,
        inline_bytes: int = flows.INLINE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        """Raises UsageError, StoreRefused or NotCommitted, before anything is written."""
        check_id(namespace, "namespace")
        if durability not in ("sync", "pipelined"):
            raise UsageError(f'durability must be "sync" or "pipelined", found {durability!r}')
        for name, value, low, high in (("lease", lease, 0.1, 86400), ("grace", grace, 0, 86400)):
            if not low <= value <= high:
                raise UsageError(f"{name} must be {low} to {high} seconds, found {value!r}")
        if inline_bytes < 0:
            raise UsageError(f"inline_bytes must be 0 or more, found {inline_bytes!r}")
        self._owns_store = isinstance(url, str | os.PathLike)
        self.store: Store = open_store(url) if isinstance(url, str | os.PathLike) else url
        self.namespace = namespace
        at_once = self.store.wait_no_longer if isinstance(self.store, Waits) else bool
        switch = self._switch = StopSwitch(grace, at_once)
        self.engine = Engine(
            self.store,
            clock or SystemClock(switch.woken),
            namespace=namespace,
            lease_seconds=lease,
            inline_bytes=inline_bytes,
        )
        self.engine.sync_handlers = SYNC_HANDLERS
        self._runner = Runner(self.engine, switch, pipelined=durability == "pipelined")
        self._closed = False
        enter_engine(self.engine)

    # --- running ----------------------------------------------------------------------------------------------------

    @overload
    def run(
        self,
        workflow: Workflow[..., Coroutine[Any, Any, R]],
        *args: Any,
        id: str,
        when_running: WhenRunning = "wait",
        budget: Budget | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def run(
        self,
        workflow: Workflow[..., R],
        *args: Any,
        id: str,
        when_running: WhenRunning = "wait",
        budget: Budget | None = None,
        **kwargs: Any,
    ) -> R: ...
    def run(
        self,
        workflow: Workflow[..., Any],
        *args: Any,
        id: str | None = None,
        when_running: WhenRunning = "wait",
        budget: Budget | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the workflow under this id, resume it, or return its stored result; await it if it is `async def`.

        `budget` counts from the first call with this id, and instead of the workflow's own. Raises RunMismatch (the id
        has other arguments), RunBusy (live elsewhere, `when_running="refuse"`), RunWaiting (a person has to decide),
        Diverged, Damaged, RunCancelled, BudgetExceeded, StoreError, or what the workflow raised. The result is on disk
        when it returns. A crash inside leaves the run to be resumed by the next call with the same id.
        """
        self.check_open()
        return self._runner.run(self._runner.plan(workflow, args, kwargs, id, when_running, budget))

    def start(
        self,
        workflow: Workflow[..., Any],
        *args: Any,
        id: str | None = None,
        when_running: WhenRunning = "wait",
        queue: str | None = None,
        priority: int | None = None,
        delay: timedelta | float | None = None,
        key: str | None = None,
        dedupe: str | None = None,
        budget: Budget | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Begin a run in the background (a thread, or a task for `async def`) and return a handle to it.

        With `queue=` the run is left to a worker: higher `priority` first, not before `delay` (seconds), and runs of
        one `key` (a customer, say) take turns with those of others. `dedupe` makes the id, of the workflow's name and
        this text, where no `id` is given. The run is in the store when this returns, so a crash right after leaves
        it to be resumed; the same id again is the same run.
        """
        self.check_open()
        if queue is None:
            queues.refuse_options(workflow, priority=priority, delay=delay, key=key)
        run_id = queues.id_of(workflow, id, dedupe)
        plan = self._runner.plan(workflow, args, kwargs, run_id, when_running, budget)
        if queue is not None:
            return queues.put(self, plan, queue=queue, priority=priority, delay=delay, key=key)
        handle = Handle(plan.proposal.id, self)
        self._runner.start(handle, plan)
        return handle

    # --- workers ----------------------------------------------------------------------------------------------------

    def worker(
        self,
        workflows: Workflow[..., Any] | Sequence[Workflow[..., Any]] = (),
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 100,
    ) -> Worker:
        """A worker for these queues, to be used as `with` or `async with` beside other code; see `work`."""
        from .worker import Worker

        self.check_open()
        return Worker(
            self.engine, self._runner, self._switch, workflows=workflows, queues=queues, concurrency=concurrency
        )

    def work(
        self,
        workflows: Workflow[..., Any] | Sequence[Workflow[..., Any]] = (),
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 100,
    ) -> None:
        """Work on queued runs until SIGTERM, Ctrl-C or `close`; at most `concurrency` at a time in this process.

        `def` workflows run in threads, `async def` ones on one loop in a thread of its own; all that were imported, or
        those that are given. When it returns, every run has been given back. A crash inside leaves them to be freed
        and gone on with by other workers at once.
        """
        self.worker(workflows, queues=queues, concurrency=concurrency).run()

    async def work_async(
        self,
        workflows: Workflow[..., Any] | Sequence[Workflow[..., Any]] = (),
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 100,
    ) -> None:
        """The same until this task is cancelled; `async def` workflows run on this loop."""
        await self.worker(workflows, queues=queues, concurrency=concurrency).run_async()

    def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_worker: int | None = None,
        per_key: int | None = None,
        rate: tuple[int, timedelta | float] | None = None,
    ) -> None:
        """Set what a queue allows: runs under way everywhere, in one worker, of one key; starts in so many seconds.

        What is left out has no limit. It holds for every worker from its next claim on, and is durable on return.
        """
        self.check_open()
        limits = queues.read_limits(name, concurrency=concurrency, per_worker=per_worker, per_key=per_key, rate=rate)
        queues.set_limits(self.engine, name, limits)

    def retry(self, id: str, *, why: str = "retried by its user") -> RunView:
        """Let a run go on that was quarantined, diverged, damaged or waits; a worker may take it from now on.

        Raises RunNotFound, and UsageError for a run that has ended, is ready or runs.
        """
        self.check_open()
        return self._view(queues.retry(self.engine, id, why))

    # --- schedules --------------------------------------------------------------------------------------------------

    def schedule(
        self,
        name: str,
        workflow: Workflow[..., Any],
        *args: Any,
        cron: str | None = None,
        tz: str = "UTC",
        every: timedelta | float | None = None,
        catch_up: str = "none",
        queue: str = "default",
        jitter: timedelta | float = 0.0,
        **kwargs: Any,
    ) -> ScheduleView:
        """Let the clock start a workflow: by `cron` in time zone `tz`, or `every` so many seconds from now on.

        Each occurrence is one run, `schedule:{name}:{instant in UTC}`, put into `queue` by whichever worker looks
        first, up to `jitter` seconds later. Occurrences that nobody was there for (a minute late and more) are skipped,
        or with `catch_up` only the "last" is made up for, or "all" (the last 1,000). Durable when it returns; the same
        definition again changes nothing, another one counts from now on. Raises UsageError, also for a pattern that
        never fires.
        """
        from . import schedules

        self.check_open()
        plan = self._runner.plan(workflow, args, kwargs, f"schedule:{schedules.check_name(name)}", "wait")
        return schedules.define(
            self.engine, plan, name, cron=cron, tz=tz, every=every, catch_up=catch_up, queue=queue, jitter=jitter
        )

    def unschedule(self, name: str) -> None:
        """Take a schedule away, durably; the runs that it started stay. UsageError if there is none."""
        from . import schedules

        self.check_open()
        schedules.remove(self.engine, name)

    def schedules(self) -> list[ScheduleView]:
        """All schedules by name, with their next three occurrences and their last run."""
        from . import schedules

        self.check_open()
        return schedules.list_schedules(self.engine)

    def pause_schedule(self, name: str) -> ScheduleView:
        """Let it start nothing until it is resumed; UsageError if there is none."""
        from . import schedules

        self.check_open()
        return schedules.pause(self.engine, name, paused=True)

    def resume_schedule(self, name: str) -> ScheduleView:
        """Let it go on from now; what fell into the pause is not made up for. UsageError if there is none."""
        from . import schedules

        self.check_open()
        return schedules.pause(self.engine, name, paused=False)

    # --- messages ---------------------------------------------------------------------------------------------------

    def signal(
        self, id: str, name: str, value: Any = None, *, message: str | None = None, first: bool = False, who: str = ""
    ) -> bool:
        """Send a message to a run that waits, or will wait, for it with `surefoot.wait_for(name)`; durable on return.

        The same `message` id again is the same message. With `first=True` only the first message of this name counts:
        False says that another was first. Raises RunNotFound, RunEnded, ValueRefused, and UsageError if this id was
        another message. In a workflow, call it inside a step, with a `message` id: a step may run again.
        """
        self.check_open()
        refuse_in_workflow("signal()")
        mail = Mail(
            run_id=check_id(id, "run id"),
            number=0,
            id=check_id(message, "message id") if message is not None else str(random_uuid()),
            name=check_message_name(name, "signal"),
            at=self.engine.time(),
            value=encode_message(value, f"signal {name!r}"),
            who=check_text(who, "who", 200),
        )
        return self.send(mail, first=first)

    def send(self, mail: Mail, *, first: bool) -> bool:
        """Commit a message to a run; False if another message of its name was first."""
        stamp = next(self.engine.stamps)
        answer = self.engine.committer.commit(SendMail(run_id=mail.run_id, mail=mail, first_only=first, stamp=stamp))
        if answer.verdict is Verdict.MISSING:
            raise RunNotFound(mail.run_id)
        if answer.verdict is Verdict.ENDED and answer.run is not None:
            raise RunEnded(mail.run_id, str(answer.run.status), f"message {mail.name!r}")
        if answer.verdict is Verdict.DISAGREES:
            raise UsageError(
                f"message {mail.id!r} was sent to run {mail.run_id!r} before, with another name or value; that one "
                "counts. Send this one under an id of its own"
            )
        self.engine.on_change()
        return answer.verdict is Verdict.DONE

    # --- approvals --------------------------------------------------------------------------------------------------

    def approvals(self) -> list[ApprovalView]:
        """What runs ask approval for and nobody has decided, the soonest to expire first."""
        from . import decisions

        self.check_open()
        return decisions.list_pending(self.engine)

    def approval(self, id: str, *, run: str | None = None) -> ApprovalView:
        """One approval with its whole artifact, by its id or 4 or more of its first characters; ApprovalNotFound.

        Name its `run`, and nothing is searched: that counts where many thousand runs wait.
        """
        from . import decisions

        self.check_open()
        return decisions.find(self.engine, id, run)

    def approve(self, id: str, *, who: str, digest: str, why: str = "", run: str | None = None) -> ApprovalView:
        """Approve exactly the artifact of this digest, durably; its run goes on. The first decision counts.

        Raises ApprovalNotFound, or ApprovalClosed: decided already, expired, another digest, or its run has ended.
        """
        from . import decisions

        self.check_open()
        return decisions.decide(self.engine, id, approved=True, who=who, why=why, digest=digest, run_id=run)

    def deny(self, id: str, *, who: str, why: str, digest: str | None = None, run: str | None = None) -> ApprovalView:
        """Deny it: `approve` raises Denied in its run, with this reason. Raises as `approve` does."""
        from . import decisions

        self.check_open()
        return decisions.decide(self.engine, id, approved=False, who=who, why=why, digest=digest, run_id=run)

    def approval_link(
        self,
        id: str,
        base_url: str,
        secret: str | bytes,
        *,
        who: str | None = None,
        within: timedelta | float | None = None,
    ) -> str:
        """A signed link to decide this approval as `who` (else whoever it asks), on the page of `web.approval_app`.

        Whoever has the link may use it, once, until the approval expires, or `within` (seconds).
        """
        from .approval_links import make_link

        self.check_open()
        return make_link(self.engine, id, base_url, secret, who=who, within=within)

    # --- looking ----------------------------------------------------------------------------------------------------

    def get(self, id: str) -> RunView:
        """The run as it stands; RunNotFound if there is none."""
        self.check_open()
        run = self.store.find_run(check_id(id, "run id"))
        if run is None:
            raise RunNotFound(id)
        return self._view(run)

    def list(self, status: str | Sequence[str] = (), *, limit: int = 1000) -> Sequence[RunView]:
        """Runs in these statuses (all by default), newest first."""
        self.check_open()
        names = (status,) if isinstance(status, str) else tuple(status)
        try:
            statuses = [RunStatus(name) for name in names]
        except ValueError:
            raise UsageError(f"unknown status in {names}; expected some of {[str(s) for s in RunStatus]}") from None
        return [self._view(run) for run in self.store.find_runs(statuses, limit=limit)]

    def cancel(self, id: str, *, reason: str = "cancelled by its user", compensate: bool = False) -> RunView:
        """Ask a run to stop. When this returns, no new intent will be made; what was sent is settled, not dropped.

        Its unfinished children are cancelled with it. With `compensate=True` it undoes its confirmed effects, last
        first, before it ends; RunEnded if it has ended without. A run that nobody works on ends now; one that has
        something to settle or to undo does so when a worker takes it, or the next time that it is run.
        """
        self.check_open()
        check_id(id, "run id")
        check_text(reason, "reason")
        if not isinstance(cast("Any", compensate), bool):
            raise UsageError(f"compensate= takes True or False, found {compensate!r}")
        self.engine.join()
        stamp, vantage = next(self.engine.stamps), self.engine.look(0)
        write = CancelRun(run_id=id, vantage=vantage, reason=reason, undo=compensate, stamp=stamp)
        answer = self.engine.committer.commit(write)
        if answer.verdict is Verdict.MISSING or answer.run is None:
            raise RunNotFound(id)
        if answer.verdict is Verdict.ENDED and compensate and not answer.run.undo:
            raise RunEnded(
                id, str(answer.run.status), "", "its effects are not undone any more, only those of a live run"
            )
        self._runner.end_cancelled(id, reason)
        self.engine.on_change()
        return self.get(id)

    def _view(self, run: Run) -> RunView:
        return view_of(run, self._fetch(run.arguments), self._fetch(run.result))

    def _fetch(self, value: bytes) -> bytes:
        return self.store.read_blob(value[1:]) if value[:1] == b"\x00" else value

    # --- closing ----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises UsageError once it is closed."""
        if self._closed:
            raise UsageError("this Surefoot is closed; open another one")
        self.engine.committer.check_process()

    def close(self) -> None:
        """Release this process's runs and close the store; background runs are stopped at their next step."""
        if self._closed:
            return
        self._closed = True
        leave_engine(self.engine)
        if not self.engine.is_ours():
            return
        self._runner.close()
        self.engine.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, off the event loop, once this loop's background runs have been stopped."""
        import asyncio

        await self._runner.close_async()
        await asyncio.to_thread(self.close)
