"""The effect protocol as a graph: every state, and every move that is possible in it.

Two workers, one effect, one receiver, one person. In `one run` both workers fight over one run; in `two runs` each has
its own, and they meet under one identity. Any worker may die, or sleep past its lease and wake, between any two moves;
any commit may have an unknown outcome, in both ways; any request may be late; any answer may be lost.

The rules are the real ones: `core.writes` decides, `core.policy` chooses, `core.flows` builds the writes (`workers`).
What is written here is only who may move, and what must never be (`Broken`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from surefoot.core.effect import TERMINAL, Do, Effect, IllegalMove, Status
from surefoot.core.ids import render_key
from surefoot.core.run import Run, RunStatus
from surefoot.core.writes import (
    Append,
    ClaimRun,
    DecideEffect,
    ParkUnasked,
    RecordEffect,
    TakeEffect,
    Verdict,
    Write,
)

from .records import CURRENT, GONE, STALE, Setting, age, fold, fold_run, fold_stale
from .storeview import Journal, Transaction
from .workers import KEY, Hands, is_stale, stale_write
from .world import UNTOUCHED, Receiver, Request

WORKERS = 2
PERSON = 7
IN_FLIGHT_MAX = 2
UNSURE_EVENTS = (Do.ATTEMPT, Do.CONFIRM, Do.REFUSE, Do.PARK, Do.ABSENT)
MAY_BE_UNSURE = 0
"""The worker whose commits may have an unknown outcome; the other one is like it, so one is enough."""


class Worker(NamedTuple):
    """Where a worker stands. `effect` and `write` are numbers; `until` is an instant; `said` what it was told."""

    at: str = "idle"
    fence: int = 0
    effect: int = -1
    write: int = -1
    until: float = 0.0
    said: str = ""
    marked: bool = False


IDLE = Worker()


class State(NamedTuple):
    """Everything. `first_left` and `left`: what really left since it was last known not to have happened."""

    effect: int
    run: int
    journals: tuple[Journal, ...]
    workers: tuple[Worker, ...]
    network: tuple[Request, ...]
    receiver: Receiver
    first_left: float
    left: int


@dataclass(frozen=True)
class Decided:
    """What one write does to one state of the store."""

    verdict: Verdict
    effect: int
    run: int
    journals: tuple[Journal, ...]
    raised_effect: bool
    raised_run: bool
    marked: bool
    changed: bool
    denied: bool
    broken: str = ""


Step = tuple[tuple[Any, ...], State, str]
"""(what happened, the state after it, which rule it broke or "")."""


class Protocol:
    """All moves of one setting."""

    def __init__(
        self,
        setting: Setting,
        *,
        two_runs: bool,
        unsure: bool = False,
        drops: bool = True,
        second_request: bool = False,
    ) -> None:
        """`unsure`: commits may have an unknown outcome. `drops`: the code may stop asking for the effect."""
        self.setting, self.two_runs, self.unsure, self.drops = setting, two_runs, unsure, drops
        self.run_ids = ["run-a", "run-b"] if two_runs else ["run-a", "run-a"]
        self.journal_of = [0, 1] if two_runs else [0, 0]
        self.variants = [0, 1 if second_request else 0]
        self.effects: list[Effect] = []
        self.runs: list[Run] = []
        self.writes: list[Write] = []
        self._numbers: dict[Any, int] = {}
        self.decided = lru_cache(None)(self._decided)
        self.next_of = lru_cache(None)(self._next_of)
        self.hands = lru_cache(None)(self._hands)
        self.aged_effect = lru_cache(None)(self._aged_effect)
        self.stale_effect = lru_cache(None)(self._stale_effect)
        self.stale_write = lru_cache(None)(self._stale_write)
        self.sent_key = render_key(KEY, setting.contract.shape)

    # --- numbers for records --------------------------------------------------------------------------------------

    def number(self, value: Any, shelf: list[Any]) -> int:
        """The number of a record, a run or a write."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(shelf)
            shelf.append(value)
        return found

    def _hands(self, worker: int, fence: int) -> Hands:
        return Hands(self.setting, worker, self.run_ids[worker], fence, self.variants[worker])

    def _aged_effect(self, number: int) -> int:
        return self.number(age(self.effects[number], self.setting), self.effects) if number >= 0 else number

    def _stale_effect(self, number: int, taken: bool) -> int:
        return self.number(fold_stale(self.effects[number], taken=taken), self.effects) if number >= 0 else number

    def _stale_write(self, number: int, effect: bool, run: bool) -> int:
        if number < 0:
            return number
        return self.number(stale_write(self.writes[number], effect=effect, run=run), self.writes)

    # --- the beginning --------------------------------------------------------------------------------------------

    def start(self) -> State:
        """Nothing has happened yet; with one run it exists and nobody works on it."""
        run = Run(
            id="run-a",
            workflow="w",
            status=RunStatus.PENDING,
            arguments=b"{}",
            args_digest=b"",
            fence=CURRENT,
            owner=0,
            created_at=0.0,
            updated_at=0.0,
        )
        journals: tuple[Journal, ...] = ((0, ""), (0, "")) if self.two_runs else ((0, ""),)
        number = self.number(run, self.runs)
        return State(-1, number, journals, (IDLE,) * WORKERS, (), UNTOUCHED, 0.0, 0)

    # --- one commit -----------------------------------------------------------------------------------------------

    def _decided(
        self, write: int, effect: int, run: int, journals: tuple[Journal, ...], lapsed: bool, again: bool
    ) -> Decided:
        """The real decision of a write, with the invariants that belong to a single commit."""
        asked = self.writes[write]
        before = self.effects[effect] if effect >= 0 else None
        runs = {"run-a": self.runs[run]}
        if self.two_runs:
            plain = replace(self.runs[run], status=RunStatus.RUNNING)
            runs = {name: replace(plain, id=name) for name in self.run_ids}
        named = dict(zip(dict.fromkeys(self.run_ids), journals, strict=True))
        view = Transaction(again, runs, before, lapsed, named)
        try:
            answer = asked.decide(view)
        except IllegalMove as bug:
            rule = f"I5: a fenced worker's write was judged: {bug}" if is_stale(asked) else f"I3: {bug}"
            return Decided(Verdict.ILLEGAL, effect, run, journals, False, False, False, True, False, rule)
        after = view.effect_after or before
        broken = self._commit_breaks(asked, before, after, answer.verdict, view)
        raised = before is not None and after is not None and after.fence > CURRENT
        if after is not None:
            stamp = after.stamp if after.stamp != PERSON else 0
            after = replace(fold(after, self.setting, stamp), fence=CURRENT)
        ran = view.run_after
        raised_run = ran is not None and ran.fence > CURRENT
        ran_number = self.number(replace(fold_run(ran, ran.stamp), fence=CURRENT), self.runs) if ran else run
        number = self.number(after, self.effects) if after is not None else -1
        marked = view.effect_after is not None and view.effect_after.status is Status.ATTEMPTED
        books = tuple(named.values())
        changed = (number, ran_number, books) != (effect, run, journals)
        event = getattr(asked, "event", None)
        denied = changed and event is not None and event.do in (Do.ABSENT, Do.DID_NOT_HAPPEN)
        return Decided(answer.verdict, number, ran_number, books, raised, raised_run, marked, changed, denied, broken)

    def _commit_breaks(
        self, write: Write, before: Effect | None, after: Effect | None, verdict: Verdict, view: Transaction
    ) -> str:
        if view.twice or any(intents > 1 for intents, _ in view.journals.values()):
            return "R1: one thing is in the journal twice"
        stale = is_stale(write)
        same = before is after or (before and after and replace(after, evidence=()) == replace(before, evidence=()))
        if stale and (not same or view.run_after is not None):
            return "I5: a fenced worker changed a row"
        taken = isinstance(write, TakeEffect | ParkUnasked) and before is not None and not same
        if taken and before is not None and before.owner not in (0, GONE, write.vantage.owner):  # type: ignore[union-attr]
            if not view.lapsed and before.holder != write.run_id:
                return "I5: an effect was taken from a live owner"
        if isinstance(write, DecideEffect) and before is not None and before.status is not Status.PARKED and not same:
            return "I3: a person's decision changed an effect that was not parked"
        if isinstance(write, RecordEffect) and verdict in (Verdict.FENCED, Verdict.EXISTS) and after is not None:
            landed = write.late is not None and write.late.found == "landed"
            if landed and not any(e.kind == "late" and e.found == "landed" for e in after.evidence):
                return "I5: a late answer was thrown away"
        if verdict is Verdict.DISAGREES and after is not None:
            if not any(e.kind == "disagreement" for e in after.evidence):
                return "R4: the other proposal was thrown away"
        left_terminal = before is not None and after is not None and before.status in TERMINAL
        if left_terminal and after is not None and before is not None and after.status is not before.status:
            return f"I3: an effect that was {before.status} became {after.status}"
        return self._journal_breaks(view, after)

    def _journal_breaks(self, view: Transaction, after: Effect | None) -> str:
        for _, outcome in view.journals.values():
            if outcome and (after is None or outcome != after.status):
                return f"I3: the journal says {outcome}, the effect is {after and after.status}"
        return ""

    def commit(self, state: State, i: int, write: int, until: float = 0.0, *, again: bool = False) -> Iterator[Step]:
        """Commit a write: it is answered, or its outcome stays unknown, whether it was applied or not.

        A taker meets a holder whose lease lasts, and one whose lease has lapsed: any worker may be that slow.
        """
        if not again:
            state = self.without_stamp(state, i + 1)
        done = self.decided(write, state.effect, state.run, state.journals, False, again)
        yield from self._committed(state, i, write, until, again, done)
        if isinstance(self.writes[write], ClaimRun | TakeEffect | ParkUnasked):
            taken = self.decided(write, state.effect, state.run, state.journals, True, again)
            if taken != done:
                yield from self._committed(state, i, write, until, again, taken, lapsed=True)

    def _committed(
        self, state: State, i: int, write: int, until: float, again: bool, done: Decided, *, lapsed: bool = False
    ) -> Iterator[Step]:
        after = self.applied(state, i, done)
        settled = self.without_stamp(after, i + 1)
        label = ("takeover" if lapsed else "commit", i, write, done.verdict, again)
        yield label, self.answered(settled, i, write, done, until), done.broken
        if self.unsure and done.changed and not again and i == MAY_BE_UNSURE and self.may_be_unsure(write):
            # If it raised the fence itself, only its stamp still tells that it was here.
            held = self.stale_write(write, done.raised_effect, done.raised_run)
            waiting = after.workers[i]._replace(at="unsure", write=held, until=until, effect=-1, said="")
            yield ("unsure, applied", i, write), with_worker(after, i, waiting), done.broken
            waiting = state.workers[i]._replace(at="unsure", write=write, until=until, effect=-1, said="")
            yield ("unsure, not applied", i, write), with_worker(state, i, waiting), ""

    def may_be_unsure(self, write: int) -> bool:
        """Writes whose unknown outcome is looked at; `tests/core` tries every write a second time."""
        made = self.writes[write]
        if isinstance(made, RecordEffect):
            return made.event is not None and made.event.do in UNSURE_EVENTS
        return isinstance(made, TakeEffect | ParkUnasked | Append)

    def applied(self, state: State, i: int, done: Decided) -> State:
        """The state with what a write put; who held the old fence token holds a stale one now."""
        workers = list(state.workers)
        for j, worker in enumerate(workers):
            if j != i and (done.raised_effect or done.raised_run):
                workers[j] = self.outrun(worker, done)
        if done.marked and i < WORKERS:
            workers[i] = workers[i]._replace(marked=True)
        first_left, left = (state.first_left, state.left)
        if done.denied or (done.effect >= 0 and self.effects[done.effect].status in TERMINAL):
            first_left, left = 0.0, 0
        return state._replace(
            effect=done.effect,
            run=done.run,
            journals=done.journals,
            workers=tuple(workers),
            first_left=first_left,
            left=left,
        )

    def outrun(self, worker: Worker, done: Decided) -> Worker:
        """A worker after somebody else raised a fence token. One that has no more to tell is not looked at further."""
        effect, fence = worker.effect, worker.fence
        if done.raised_run and fence == CURRENT:
            fence = STALE
        if done.raised_effect or fence == STALE:
            effect = self.stale_effect(effect, done.raised_effect)
        write = self.stale_write(worker.write, done.raised_effect, done.raised_run)
        silent = (worker.at == "answered" and worker.said != "landed") or (
            worker.at == "asked" and worker.said != "found"
        )
        if (silent or worker.at == "loop") and (fence == STALE or done.raised_effect):
            return IDLE
        return worker._replace(effect=effect, fence=fence, write=write)

    def without_stamp(self, state: State, stamp: int) -> State:
        """A stamp is looked for only while its write is in question."""
        if state.effect >= 0 and self.effects[state.effect].stamp == stamp:
            effect = replace(self.effects[state.effect], stamp=0)
            state = state._replace(effect=self.number(effect, self.effects))
        if self.runs[state.run].stamp == stamp:
            state = state._replace(run=self.number(replace(self.runs[state.run], stamp=0), self.runs))
        return state

    def answered(self, state: State, i: int, write: int, done: Decided, until: float) -> State:
        """The state after worker `i` learned what became of its write; `moves` says what it does with that."""
        raise NotImplementedError


def with_worker(state: State, i: int, worker: Worker) -> State:
    """The state with another worker `i`."""
    workers = list(state.workers)
    workers[i] = worker
    return state._replace(workers=tuple(workers))
