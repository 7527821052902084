"""A run in this process: answers its flows' commands, for `def` and for `async def`.

One table of handlers each; the flows are the same. Whatever has to stop the run is kept in `stopped`, so that a bare
`except:` in a workflow cannot swallow it: the next step raises it again.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from ..core.calls import is_scope
from ..core.commands import (
    AskReceiver,
    Command,
    Commit,
    Execute,
    Flow,
    Look,
    Now,
    ReadBlob,
    ReadEffect,
    ReadRun,
    Record,
    RenewLease,
    SendEffect,
    Sleep,
    Time,
)
from ..core.errors import (
    CancelRequested,
    Damaged,
    Diverged,
    Halt,
    LeaseLost,
    NotDeterministic,
    OverBudget,
    Signal,
    Stopping,
    StoreError,
    SurefootError,
    Suspend,
    UsageError,
)
from ..core.flows import Begun, RunState, begin_nothing, check, wait_for_nobody
from ..core.journal import NOTE, Branch, Draft, EntryKind
from ..core.meter import Meter
from ..core.outcome import Answered, InDoubt
from ..core.run import Run, Waits
from ..core.writes import Answer, Append, Blobs, ClaimRun, StartRun, TakeEffect, Write
from .committer import Pending
from .engine import Engine
from .scope import Scope, current

if TYPE_CHECKING:
    import asyncio

    from .calls import Calls
    from .waiting import Contest

T = TypeVar("T")
PIPELINE_MAX = 4096
HALTING = (StoreError, Diverged, Damaged, NotDeterministic)


class Session:
    """Drives the flows of one run, or (`state.run_id` is "") of effects outside any run."""

    def __init__(self, engine: Engine, state: RunState, *, pipelined: bool = False) -> None:
        """`compensations` collects the undo of each confirmed effect, in order.

        `waits` is what its branches wait for now, each in its place, `looked` how much of the run's mail each has seen,
        `remarks` what else there is to say of it, `deadlines` when the blocks end that they are in. `heard` are the
        messages that were read, one wait `reading` at a time; `contests` are the waits among which `first` decides. A
        `patient` run gives itself back while it waits, as one does that `rides` in an engine; another waits for its
        timers where it is. `cancelled` is the reason when the run was asked to stop, `undoing`: it ends by undoing its
        effects; `ended` is the run as its end left it in the store. `queue` is the run's own; `children` are those that
        it has started.
        """
        self.engine, self.state, self.pipelined = engine, state, pipelined
        self.stopped: BaseException | None = None
        self.waits: dict[tuple[str, str], Waits] = {}
        self.looked: dict[tuple[str, str], int] = {}
        self.remarks: dict[tuple[str, str], str] = {}
        self.deadlines: dict[tuple[str, str], Waits] = {}
        self.heard: set[int] = set()
        self.reading = threading.Lock()
        self.contests: dict[str, tuple[Contest, int]] = {}
        self.patient = self.rides = False
        self.ended: Run | None = None
        self.cancelled: str | None = None
        self.undoing = False
        self.queue = ""
        self.children: set[str] = set()
        state.begin, state.catch_up = self.begin, self.catch_up
        self.compensations: list[tuple[tuple[int, ...], Callable[[], Any]]] = []
        self.body_scope: Scope | None = Scope(self, None)
        self.step_scope: Scope | None = Scope(self, None)
        self.meter: Meter | None = None
        self.counting = threading.Lock()
        self.reports = itertools.count()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.root_task: asyncio.Task[Any] | None = None
        self.active = self.calling = 0
        self.loose: set[asyncio.Task[Any]] = set()
        self.sending: set[asyncio.Task[Any]] = set()
        self.suspended: dict[str, Suspend] = {}
        self.calls: Calls | None = None
        self.threads: set[threading.Thread] = set()
        self.caught_up: set[Any] = set()
        self.still: set[asyncio.Future[None]] = set()
        self.watch: asyncio.TimerHandle | None = None
        self.moves = 0
        self.decided: dict[str, int] = {}
        self.patches: dict[tuple[str, str], bool] = {}
        self.asynchronous = False
        self._in_pipeline = 0
        self._pipeline_error: BaseException | None = None

    # --- entering ---------------------------------------------------------------------------------------------------

    def enter(self, branch: Branch, name: str) -> None:
        """Begin a step or effect in a branch; UsageError if another is in flight there."""
        self.engine.committer.check_process()
        stopped = self.stopped or branch.stopped
        if stopped is not None:
            raise stopped
        self.check_stop()
        if branch.busy:
            raise UsageError(
                f"{name!r} was called while {branch.busy!r} is in flight in the same branch of run "
                f"{self.state.run_id!r}: two threads or tasks share it, so their order would not be the same on "
                "replay. Use surefoot.gather or surefoot.map, or asyncio tasks, which get a branch each."
            )
        branch.busy = name
        self.moves += 1

    def begin(self, begun: Begun) -> None:
        """Nothing new begins in a run that was cancelled or has passed its budget, but what undoes its effects."""
        if self.cancelled is not None and begun not in (Begun.UNDO, Begun.RESEND):
            raise CancelRequested(self.cancelled)
        if self.meter is not None:
            with self.counting:
                exceeded = self.meter.begin(begun, self.engine.time())
            if exceeded is not None:
                raise OverBudget(exceeded)

    def over_budget(self) -> OverBudget | None:
        """What stops the run now, if it has passed its budget."""
        exceeded = None if self.meter is None else self.meter.over(self.engine.time())
        return None if exceeded is None else OverBudget(exceeded)

    def catch_up(self, branch: Branch) -> Flow[None]:
        """Wait for those beside it that may still read what is recorded in the branch's call scope."""
        from .siblings import catch_up

        yield from catch_up(self, branch)

    def report(self, draft: Draft, blobs: Blobs = ()) -> None:
        """Queue an entry that a body reports, in order; a failure of the store stops the run at its next record."""
        write = self.appending(Record(draft, blobs, wait=False))
        self.engine.committer.submit(Pending(write, callback=self._piped))

    def note(self, text: str) -> None:
        """Put a remark into the run's timeline; durable no later than whatever is recorded next."""
        slot = f"{NOTE}{self.state.fence}.{next(self.reports)}"
        self.report(Draft(EntryKind.MARK, slot, b"", "", msgspec.json.encode(text), 0.0))

    def check_stop(self) -> None:
        """Stop the run here if the process is to stop."""
        try:
            self.engine.stop_check()
        except Stopping as stopping:
            self.stopped = stopping
            raise

    def stop(self, error: BaseException, branch: Branch) -> BaseException:
        """What to raise instead of `error`: store errors, divergence and damage halt the run.

        A signal is remembered, so that swallowing it does not help; a suspension stops only its own branch.
        """
        if not self.state.run_id:
            return (
                error
                if not isinstance(error, LeaseLost)
                else SurefootError("another process took this effect over meanwhile; call again to get its outcome")
            )
        if isinstance(error, HALTING):
            if isinstance(error, Diverged):
                error.place = user_place()
            error = Halt(error)
        if isinstance(error, Suspend) and branch is not self.state.root:
            branch.stopped = error
            if is_scope(branch.path):
                self.suspended.setdefault(branch.path, error)
        elif isinstance(error, Signal) and self.stopped is None:
            self.stopped = error
        return error

    def in_body(self, body: Callable[[], T]) -> T:
        """Call `body` where steps are plain calls."""
        token = current.set(self.body_scope)
        try:
            return body()
        finally:
            current.reset(token)

    def check_decided(self, branch: Branch, names: tuple[str, ...]) -> None:
        """On replay, where a recorded choice ended this branch or block: end at the first thing not recorded."""
        if self.decided.get(branch.path) and not self.state.replay.is_recorded(branch, *names):
            import asyncio

            raise asyncio.CancelledError("a recorded choice ended this branch here")

    def refuse_timer(self, error: BaseException, branch: Branch) -> None:
        """Halts the run if a timer outside a step cut it short; see `tasks`."""
        from .tasks import refuse_timer

        scope = current.get()
        if self.state.run_id and not (scope is not None and scope.loose):
            refused = refuse_timer(error)
            if refused is not None:
                raise self.stop(refused, branch) from None

    async def wait_for_person(self, branch: Branch, doubt: InDoubt) -> None:
        """Let only this branch stand still; the run suspends when nothing else moves.

        When there is no other branch this returns at once, and the caller suspends the run.
        """
        from .tasks import stand_still

        self.waits[branch.path, f"doubt:{doubt.effect}"] = Waits(kind="doubt", name=doubt.effect, detail=doubt.name)
        if branch is not self.state.root or any(task is not self.root_task for task in self.tasks):
            await stand_still(self, f"effect {doubt.name!r} is in doubt: {doubt.reason}. Decide: {doubt.how()}")

    def let_go(self) -> None:
        """Nobody works on the run here any more: without what refers back to it, it is freed at once."""
        self.state.begin, self.state.catch_up = begin_nothing, wait_for_nobody
        self.body_scope = self.step_scope = self.root_task = None

    def undos(self) -> list[Callable[[], Any]]:
        """How to undo what is confirmed, last first, by place in the code: finishing order would differ on replay."""
        for call, settled in self.state.settled_late:
            call.register_undo(self, settled)
        self.state.settled_late.clear()
        return [undo for _, undo in sorted(self.compensations, key=lambda item: item[0], reverse=True)]

    # --- driving ----------------------------------------------------------------------------------------------------

    def drive(self, flow: Flow[T]) -> T:
        """Run a flow on this thread."""
        handlers = self.engine.sync_handlers
        resume: Callable[[Any], Command[Any]] = flow.send
        value: Any = None
        while True:
            try:
                command = resume(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = handlers[type(command)](self, command)
                resume = flow.send
            except BaseException as error:
                value, resume = error, flow.throw

    async def drive_async(self, flow: Flow[T]) -> T:
        """Run a flow in this task."""
        handlers = self.engine.async_handlers
        resume: Callable[[Any], Command[Any]] = flow.send
        value: Any = None
        while True:
            try:
                command = resume(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = await handlers[type(command)](self, command)
                resume = flow.send
            except BaseException as error:
                value, resume = error, flow.throw

    # --- what both drivers do alike ---------------------------------------------------------------------------------

    def prepare(self, write: Write) -> Write:
        """Before a claim: be present in the store, and forget an earlier failure of this run."""
        kind = type(write)
        if kind is StartRun or kind is ClaimRun or kind is TakeEffect:
            self.engine.join()
            if kind is not TakeEffect:
                self.engine.committer.forgive(write.run_id)
        return write

    def appending(self, command: Record) -> Append:
        """The write that appends a draft, stamped with the time."""
        force_setattr(command.draft, "at", self.engine.clock.now())
        state = self.state
        draft, blobs, undoing = command.draft, command.blobs, self.undoing
        return Append(run_id=state.run_id, fence=state.fence, draft=draft, blobs=blobs, undoing=undoing)

    def pipeline(self, write: Append) -> None:
        """Queue an entry without waiting; an earlier one that failed stops the run here."""
        if self._pipeline_error is not None:
            raise self._pipeline_error
        if self._in_pipeline >= PIPELINE_MAX:
            self.engine.committer.flush()
        self._in_pipeline += 1
        self.engine.committer.submit(Pending(write, callback=self._piped))

    def _piped(self, pending: Pending) -> None:
        self._in_pipeline = max(
            self._in_pipeline - 1, 0
        )  # not exact between threads, and need not be: it only bounds memory
        try:
            check(pending.result())
        except BaseException as error:  # kept, and raised by the next step
            self._pipeline_error = self._pipeline_error or error

    def may_begin(self, command: SendEffect) -> Answered | None:
        """None if the attempt may still begin; else the answer that says it was certainly not sent."""
        engine, clock = self.engine, self.engine.clock
        not_paused = engine.lease_clock.earliest() <= command.lease_until
        if clock.now() <= command.begin_until and not_paused and engine.leased():
            return None
        return Answered(kind="unsent", reason="this process was paused too long between the intent and the send")


def user_place() -> str:
    """File and line of the innermost frame that is the user's: not ours, nor that of a package that stands between."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    innermost = ""
    while frame is not None:
        module, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if module.partition(".")[0] not in (__name__.partition(".")[0], "asyncio", "threading"):
            innermost = innermost or f"{file}:{frame.f_lineno}"
            if "site-packages" not in file:
                return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return innermost


Handler = Callable[[Session, Any], Any]
AsyncHandler = Callable[[Session, Any], Awaitable[Any]]


def _commit(session: Session, command: Commit) -> Answer:
    return session.engine.committer.commit(session.prepare(command.write))


def _record(session: Session, command: Record) -> None:
    write = session.appending(command)
    if session.pipelined or not command.wait:
        session.pipeline(write)
    else:
        check(session.engine.committer.commit(write))


def _renew(session: Session, command: RenewLease) -> None:
    session.engine.join()
    if (write := session.engine.renew_for(command.until)) is not None:
        session.engine.renew(write)


def _send(session: Session, command: SendEffect) -> Answered:
    return session.may_begin(command) or command.call.send(session, command.effect)


def _sleep(session: Session, command: Sleep) -> None:
    session.engine.clock.sleep(command.seconds)
    session.check_stop()


SYNC_HANDLERS: dict[type[Command[Any]], Handler] = {
    Now: lambda session, _: session.engine.clock.now(),
    Time: lambda session, _: session.engine.time(),
    Look: lambda session, command: session.engine.look(command.suspect),
    Commit: _commit,
    Record: _record,
    Execute: lambda session, command: command.call.run(session, command.attempt),
    SendEffect: _send,
    AskReceiver: lambda session, command: command.call.ask(session, command.effect),
    Sleep: _sleep,
    RenewLease: _renew,
    ReadRun: lambda session, command: session.engine.store.read_run(command.run_id),
    ReadEffect: lambda session, command: session.engine.store.read_effect(command.key),
    ReadBlob: lambda session, command: session.engine.store.read_blob(command.hash),
}
