"""A worker: takes runs from queues, a few at a time, as the queues' limits allow, and goes on with each as `run` would.

The thread that claims never runs a user's code, so that a workflow that computes for a minute delays no claim, and
no look at other processes. What a worker cannot do (a store that is out, a run that it lost) never ends it; only its
user does, and then it takes nothing new and gives back what it has.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, cast

from msgspec.structs import replace

from ..core.dispatch import DEFAULT_QUEUE, Served
from ..core.dispatch_writes import ClaimReady
from ..core.errors import LeaseLost, SurefootError, UsageError
from ..core.ids import check_id
from ..core.run import Run, RunDo, RunStatus
from ..core.writes import EndRun
from ..stores.base import Rings
from .clock import random_number
from .engine import EVERYTHING, Engine
from .hands import Loop, Threads
from .reaper import Lookout, Reaper
from .runner import Claim, Runner
from .schedules import Alarm
from .step import Workflow, all_workflows, the_only
from .stopping import StopSwitch

CONCURRENCY = 100
CONCURRENCY_MAX = 10_000
CLAIMS_MAX = 50
TURNS_MAX = 1000
POLL_SECONDS = 0.2
TURN_SECONDS = 0.003
"""How long a worker that hears of a ready run leaves it to the one before: about what a claim takes."""
BEHIND_MAX = 3
SHOWN_MAX = 5
OUTAGE_SECONDS_MAX = 5.0
log = logging.getLogger("surefoot")


def workflows_served(
    given: Workflow[..., Any] | Sequence[Workflow[..., Any]],
) -> dict[tuple[str, str], Workflow[..., Any]]:
    """The code by name and version; all decorated workflows if none are given. UsageError where there is none."""
    if not isinstance(given, Workflow | list | tuple | set | frozenset):
        raise UsageError(f"workflows= takes decorated workflows, found {given!r:.120}")
    chosen = [given] if isinstance(given, Workflow) else list(given)
    if not chosen:
        chosen = [workflow for workflow in all_workflows() if not workflow.skip]
    for workflow in chosen:
        if not isinstance(cast("Any", workflow), Workflow):
            raise UsageError(f"workflows= takes decorated workflows, found {workflow!r}")
        if workflow.skip:
            raise UsageError(
                f"workflow {workflow.name!r} is a method: a worker has no object to call it on; make it a function"
            )
    if not chosen:
        raise UsageError("there is no workflow to work on: import the module that has them first, or give workflows=")
    named: dict[tuple[str, str], list[Workflow[..., Any]]] = {}
    for workflow in dict.fromkeys(chosen):
        for version in workflow.versions:
            named.setdefault((workflow.name, version), []).append(workflow)
    return {place: only for place, found in named.items() if (only := the_only(*place, found)) is not None}


class Worker:
    """Works on queued runs until it is stopped; see `Surefoot.worker`. Use as `with` or `async with`, or call `run`."""

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        switch: StopSwitch,
        *,
        workflows: Workflow[..., Any] | Sequence[Workflow[..., Any]] = (),
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Nothing is claimed or written yet."""
        if not isinstance(queues, str | list | tuple | set | frozenset):
            raise UsageError(f"queues= takes names of queues, found {queues!r:.120}")
        names = (queues,) if isinstance(queues, str) else tuple(dict.fromkeys(queues))
        if not names:
            raise UsageError(
                'a worker needs a queue; queues=("default",) is what start(queue="default") puts runs into'
            )
        if type(concurrency) is not int or not 1 <= concurrency <= CONCURRENCY_MAX:
            raise UsageError(f"concurrency must be a whole number, 1 to {CONCURRENCY_MAX}, found {concurrency!r}")
        self._engine, self._runner, self._switch = engine, runner, switch
        self._code = workflows_served(workflows)
        self.served = Served(queues=tuple(check_id(n, "a queue's name") for n in names), workflows=tuple(self._code))
        self._concurrency = concurrency
        self._reaper = Reaper(engine)
        self._lookout = Lookout(engine, self._reaper, self.ring)
        self._alarm = Alarm(engine)
        self._threads, self._loop = Threads(), Loop()
        self._active: dict[str, Run] = {}
        self._rung, self._rings = threading.Event(), list[float]()
        self._unhear: Callable[[], object] = bool
        self._asked = False
        self._left: dict[str, Run] = {}
        self._claim_is_unknown = False
        self._turns: dict[tuple[str, str], int] = {}
        self._turn_number = 0
        self._outage_seconds = 0.0
        self._looks = True
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failure: BaseException | None = None

    # --- being used -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until SIGTERM, Ctrl-C, `stop` or the end of the Surefoot; every run is given back when it returns.

        A second signal, or the end of the grace time, ends it at once.
        """
        self._enter()
        try:
            self._work()
            self._drain()
        except BaseException:
            self._abandon()
            raise
        finally:
            self._unhear()
            self._lookout.stop()
            self._engine.listeners.discard(self.ring)
            self._runner.workers.discard(self)
            self._threads.close()
            self._over.set()
            self._switch.leave()
        self._loop.close()

    def _enter(self) -> None:
        if self._runner.workers - {self}:
            raise UsageError("this Surefoot has a worker already; give that one more queues, or a higher concurrency")
        self._runner.workers.add(self)
        self._engine.listeners.add(self.ring)
        if isinstance(self._engine.store, Rings):
            self._unhear = self._engine.store.hear(self._hear)
        self._lookout.start()
        self._switch.enter()

    def start(self) -> Self:
        """Work on a thread of its own."""
        if self._thread is not None:
            raise UsageError("this worker was started already; make another one")
        self._switch.install()
        self._thread = threading.Thread(target=self._run_kept, name="surefoot-worker", daemon=True)
        self._thread.start()
        return self

    def _run_kept(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error
            log.exception("a worker has ended")

    def ask(self) -> None:
        """Let it take nothing new, and give back each run at its next step; returns at once."""
        self._asked = True
        self.ring()

    def stop(self) -> None:
        """The same, and wait until all is given back."""
        self.ask()
        if self._thread is None and self in self._runner.workers:
            self._over.wait()
        elif self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def ring(self) -> None:
        """Look for work now."""
        self._ring(0.0)

    def _hear(self, number: int | None) -> None:
        """All workers hear that a run is ready; it is one's turn, and the others look if that one has not taken it."""
        behind = 0 if number is None else self._reaper.behind(number)
        self._ring(min(behind, BEHIND_MAX) * TURN_SECONDS)

    def _ring(self, later: float) -> None:
        self._rings.append(later)
        self._rung.set()

    # --- the thread that claims -------------------------------------------------------------------------------------

    def _is_stopping(self) -> bool:
        return self._asked or self._switch.asked is not None

    def _work(self) -> None:
        announced = False
        while not self._is_stopping():
            try:
                if not announced:
                    self._engine.announce(self.served)
                    announced = True
                seconds = self._turn()
                self._outage_seconds = 0.0
            except Exception as error:
                seconds = self._after(error)
            if seconds:
                self._wait(seconds)

    def _turn(self) -> float:
        """One round; how long there is nothing to do."""
        self._give_back()
        slots = min(self._concurrency - len(self._active), CLAIMS_MAX)
        told = self._reaper.is_told  # of a process that is gone: its runs are freed first
        taken = self._claim(slots) if slots and not told else 0
        self._looks = not (taken and self._looks)  # not beside the beginning of what was just taken, but the next time
        made_ready = self._reaper.look_if_due() + self._alarm.look_if_due() if self._looks else 0
        if told or made_ready or (slots and taken == slots):
            return 0.0
        idle = slots and not taken  # else the end of a run rings before long
        return min(POLL_SECONDS * (0.75 + random_number() / 2), self._until_due() if idle else math.inf)

    def _until_due(self) -> float:
        due = self._engine.store.board.next_due(self.served)
        return math.inf if due is None else max(due - self._engine.time(), 0.001)

    def _claim(self, slots: int) -> int:
        engine = self._engine
        if not engine.leased():
            engine.announce(self.served)  # it was paused: nothing is taken on a lease that is over
        calls = self._runner.calls
        vantage = replace(engine.look(0), at=engine.time())
        write = ClaimReady(
            served=self.served, slots=slots, vantage=vantage, turns=self._turns, stamp=next(engine.stamps)
        )
        self._claim_is_unknown = True  # should the answer get lost
        taken = engine.committer.commit(write).runs
        self._claim_is_unknown = False
        for run in taken:
            engine.committer.forgive(run.id)
            self._active[run.id] = run
        self._remember_turns(taken)
        for run in taken:
            self._hand_out(Claim(run, self._code[run.workflow, run.version], calls))
        return len(taken)

    def _remember_turns(self, taken: Sequence[Run]) -> None:
        for run in taken:
            place = run.queue, run.key
            self._turns.pop(place, None)  # so that the order of the dictionary is that of the last turns
            self._turns[place] = self._turn_number = self._turn_number + 1
        while len(self._turns) > TURNS_MAX:
            del self._turns[next(iter(self._turns))]

    def _wait(self, seconds: float) -> None:
        # not a queue's get: with a timeout it may wait for ever when a signal comes near its end (before Python 3.13)
        if self._rung.wait(seconds) and (later := self._heard()):
            self._rung.wait(later)  # whatever rings meanwhile ends this
            self._heard()

    def _heard(self) -> float:
        """When to look because of what rang since the last call; a ring that is lost here is followed by a look."""
        self._rung.clear()
        rings, self._rings = self._rings, []
        return min(rings, default=0.0)

    def _after(self, error: Exception) -> float:
        """How long to rest. Even an error that nobody foresaw must not end the worker, and every run of it with it."""
        if not isinstance(error, SurefootError):
            log.error("a worker could not look for work, and tries again", exc_info=error)
        elif not self._outage_seconds:
            log.warning("a worker cannot use its store, and tries again: %s", error)
        self._outage_seconds = min(max(self._outage_seconds * 2, POLL_SECONDS), OUTAGE_SECONDS_MAX)
        return self._outage_seconds * (0.5 + random_number() / 2)

    def _give_back(self) -> None:
        """Release what this process has taken and does not work on: the commit of its claim, or of its end, failed."""
        if self._claim_is_unknown:
            self._left.update((run.id, run) for run in self._unknown())
            self._claim_is_unknown = False
        if self._left:
            left = list(self._left.values())
            self._release(left, "its worker could not reach the store")
            for run in left:
                self._left.pop(run.id, None)

    def _unknown(self) -> list[Run]:
        engine, here = self._engine, self._runner.has
        running = engine.store.find_runs([RunStatus.RUNNING], limit=EVERYTHING)
        mine = (run for run in running if run.owner == engine.owner and run.queue)
        return [run for run in mine if run.id not in self._active and not here(run.id)]

    def _release(self, runs: Sequence[Run], why: str) -> None:
        engine = self._engine
        for run in runs:
            engine.committer.forgive(run.id)
        at = engine.time()
        engine.committer.commit_all(
            [
                EndRun(run_id=r.id, fence=r.fence, do=RunDo.RELEASE, at=at, reason=why, stamp=next(engine.stamps))
                for r in runs
            ]
        )

    # --- the hands --------------------------------------------------------------------------------------------------

    def _hand_out(self, claim: Claim) -> None:
        if claim.workflow.is_async:
            self._loop.do(lambda: self._go_async(claim))
        else:
            self._threads.do(lambda: self._go(claim))

    def _go(self, claim: Claim) -> None:
        try:
            outcome: Run | BaseException = self._runner.work(claim)
        except BaseException as error:
            outcome = error
        self._ended(claim, outcome)

    async def _go_async(self, claim: Claim) -> None:
        try:
            outcome: Run | BaseException = await self._runner.work_async(claim)
        except BaseException as error:
            outcome = error
        self._ended(claim, outcome)

    def _ended(self, claim: Claim, outcome: Run | BaseException) -> None:
        run = claim.run
        if isinstance(outcome, LeaseLost):
            log.warning("run %r of %s was ended or taken over by another owner while it ran here", run.id, run.workflow)
        elif isinstance(outcome, BaseException):
            self._left[run.id] = run
            log.error("run %r of %s stopped here and is given back: %s", run.id, run.workflow, outcome)
        else:
            how = "given back" if outcome.status is RunStatus.PENDING else outcome.status
            log.info("run %r of %s: %s%s", run.id, run.workflow, how, outcome.reason and f" ({outcome.reason})")
        self._active.pop(run.id, None)
        self.ring()

    # --- stopping ---------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Wait until every run has been given back at its next step, but no longer than the grace time."""
        give_up = self._engine.clock.lease_now() + self._switch.grace_seconds
        log.info("a worker is stopping: %d runs are given back at their next step", len(self._active))
        while self._active:
            self._runner.stop_claimed()
            self._wait(POLL_SECONDS)
            if self._engine.clock.lease_now() > give_up:
                self._abandon()
                return
        try:
            self._give_back()
            self._engine.announce(None)
        except SurefootError as error:
            log.warning("a worker ended while its store was out; its runs are freed when its lease is over: %s", error)

    def _abandon(self) -> None:
        """What still runs here is given back as it is, if the store takes it: the process ends at once."""
        runs = [*self._active.values(), *self._left.values()]
        if runs:
            log.warning("a worker ends with %d steps under way; they are run again: %s", len(runs), _named(runs))
        try:
            self._release(runs, "its worker was told to end at once")
        except Exception as error:
            log.warning("a worker ended at once; its runs are freed by others: %s", error)

    # --- beside other code ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start it on a thread of its own."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and wait until all is given back."""
        self.stop()
        if error is None and self._failure is not None:
            raise self._failure

    async def run_async(self) -> None:
        """Work until this task is cancelled; `async def` workflows run on this loop."""
        import asyncio

        self._loop = Loop(asyncio.get_running_loop())
        self.start()
        try:
            await asyncio.to_thread(self._over.wait)
        finally:
            await _undisturbed(self.stop)
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Self:
        """Start it; `async def` workflows run on this loop."""
        import asyncio

        self._loop = Loop(asyncio.get_running_loop())
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and wait until all is given back."""
        await _undisturbed(self.stop)


def _named(runs: Sequence[Run]) -> str:
    names = [repr(run.id) for run in runs[:SHOWN_MAX]]
    return ", ".join(names) + (f" and {len(runs) - SHOWN_MAX} more" if len(runs) > SHOWN_MAX else "")


async def _undisturbed(work: Callable[[], None]) -> None:
    """Call it on a thread, and wait for its end whatever happens to this task meanwhile."""
    import asyncio

    thread = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not thread.done():
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
