"""The writes by which runs are queued, taken by workers, freed from dead ones, sent mail and retried.

Like all writes they decide for themselves inside the store's transaction, and may be tried again; see `writes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from .dispatch import (
    DEATHS_MAX,
    PROBATION_DEATHS,
    PROBATION_PAUSE_SECONDS,
    WAKE_NOW,
    Limits,
    Queue,
    Ready,
    Served,
    choose,
    spent,
)
from .errors import Damaged
from .lease import Vantage
from .mail import Mail
from .run import FINAL, Run, RunDo, RunStatus, apply_run
from .view import Answer, Verdict, View, Write
from .writes import put_from_outside

OVERSAMPLE = 4


class ClaimReady(Write, frozen=True, kw_only=True):
    """Take up to `slots` ready runs that this worker can run, as the queues' limits allow; `turns`: see `choose`.

    Of runs on probation it takes one at a time, so that the one which kills is found without blaming those beside it.
    """

    served: Served
    slots: int
    vantage: Vantage
    turns: Mapping[tuple[str, str], int] = {}

    def decide(self, view: View) -> Answer:
        """Took, with the runs (each under a higher fence token); absent when there is none to take."""
        owner, now = self.vantage.owner, self.vantage.at
        if view.again:
            mine = [view.run(row.run_id) for row in view.desk.taken(self.served.queues) if row.owner == owner]
            taken = tuple(run for run in mine if run is not None and run.stamp == self.stamp)
            if taken:
                return Answer(Verdict.TOOK, runs=taken)
        ready = view.desk.ready(self.served, now, self.slots * OVERSAMPLE)
        named = dict.fromkeys(row.queue for row in ready)
        queues = {name: queue for name in named if (queue := view.desk.queue(name)) is not None}
        counted = _counted(ready, queues)
        under_way = view.desk.taken(counted) if counted else []
        while True:
            chosen = choose(ready, under_way, queues, owner=owner, slots=self.slots, now=now, turns=self.turns)
            found = [_read(view, row) for row in chosen]
            if all(readable for _, readable in found):
                break
            damaged = {row.run_id for row, (_, readable) in zip(chosen, found, strict=True) if not readable}
            ready = [row for row in ready if row.run_id not in damaged]
        probation = _Probation(view, self.served.queues, owner)
        pairs = zip(chosen, found, strict=True)
        runs = tuple(run for row, (held, _) in pairs if (run := self._take(view, row, held, probation)) is not None)
        for name, queue in queues.items():
            count = sum(run.queue == name for run in runs)
            if count and queue.limits.rate:
                view.desk.put_queue(spent(queue, count, now))
        return Answer(Verdict.TOOK if runs else Verdict.ABSENT, runs=runs)

    def _take(self, view: View, row: Ready, run: Run | None, probation: _Probation) -> Run | None:
        if run is None or run.status not in (RunStatus.PENDING, RunStatus.WAITING):
            return None
        if is_on_probation(view, run) and not probation.admits():
            # out of the way of others for a while
            view.put_run(replace(run, wake_at=self.vantage.at + PROBATION_PAUSE_SECONDS))
            return None
        why = run.reason or ("its time has come" if run.status is RunStatus.WAITING else "it was ready")
        taken = apply_run(run, RunDo.CLAIM, self.vantage.at, owner=self.vantage.owner, who=self.vantage.name, why=why)
        taken = replace(taken, queue=run.queue or row.queue, stamp=self.stamp)
        view.put_run(taken)
        return taken


def _read(view: View, row: Ready) -> tuple[Run | None, bool]:
    """(run, it can be read): a damaged one stops alone, in front of nobody; `surefoot doctor` names it."""
    try:
        return view.run(row.run_id), True
    except Damaged:
        return None, False


class _Probation:
    """Whether one more run on probation may be taken by this owner; looked up only if there is one."""

    def __init__(self, view: View, queues: tuple[str, ...], owner: int) -> None:
        self._view, self._queues, self._owner = view, queues, owner
        self._full: bool | None = None

    def admits(self) -> bool:
        """True once, unless the owner has one already that has not got further."""
        if self._full is None:
            mine = [row for row in self._view.desk.taken(self._queues) if row.owner == self._owner]
            runs = [self._view.run(row.run_id) for row in mine]
            self._full = any(run is not None and is_on_probation(self._view, run) for run in runs)
        admitted, self._full = not self._full, True
        return admitted


def is_on_probation(view: View, run: Run) -> bool:
    """True if processes died in a row while they ran it, and its journal has not grown since."""
    return run.deaths >= PROBATION_DEATHS and recorded_length(view, run) == run.deaths_length


def recorded_length(view: View, run: Run) -> int:
    """How many entries its journal holds that its owners made."""
    return view.seal_of(run.id)[0] - run.fences


def _counted(ready: list[Ready], queues: Mapping[str, Queue]) -> tuple[str, ...]:
    """The queues whose runs under way matter: those with limits, and all where there are turns to take."""
    turns = {(row.queue, row.key) for row in ready}
    return tuple({*queues, *(queue for queue, _ in turns)} if len(turns) > 1 else queues)


class FreeRun(Write, frozen=True, kw_only=True):
    """Free a run whose owner is dead, for whoever is next; one that keeps killing its owners is quarantined.

    `beside`: how many other runs that owner had, any of which may have killed it.
    """

    vantage: Vantage
    deaths_max: int = DEATHS_MAX
    beside: int = 0

    def decide(self, view: View) -> Answer:
        """Done; busy while its owner may live; absent when nobody has it."""
        run = view.run(self.run_id)
        if run is None:
            return Answer(Verdict.MISSING)
        if run.stamp == self.stamp:
            return Answer(Verdict.DONE, run=run)
        if run.status is not RunStatus.RUNNING and run.term < view.term.number:
            view.put_run(replace(run, stamp=self.stamp))  # as it is seen in this term: nobody's
            return Answer(Verdict.DONE, run=run)
        if run.status is not RunStatus.RUNNING:
            return Answer(Verdict.ABSENT, run=run)
        holder = view.owner(run.owner)
        if run.owner == self.vantage.owner or not self.vantage.may_take_from(run.owner, holder):
            return Answer(Verdict.BUSY, run=run, holder=holder.name() if holder else "")
        name = holder.name() if holder else "a process that is gone"
        at, limit = self.vantage.at, self.deaths_max
        length = recorded_length(view, run)
        freed = free(run, at, name, length=length, deaths_max=limit, beside=self.beside)
        freed = replace(freed, stamp=self.stamp)
        put_from_outside(view, run, freed, at, "free")
        return Answer(Verdict.DONE, run=freed)


def free(run: Run, at: float, holder: str, *, length: int, deaths_max: int, beside: int = 0) -> Run:
    """The run after its owner's death. Deaths count as long as its journal, now of `length`, has not grown between.

    The last death has to be its own: one that others were `beside` may be theirs. But a run that always has company is
    not spared for ever.
    """
    deaths = run.deaths + 1 if run.deaths and run.deaths_length == length else 1
    if deaths < (2 * deaths_max - 1 if beside else deaths_max):
        freed = apply_run(run, RunDo.RELEASE, at, why=f"{holder} died while it ran")
    else:
        recorded = "1 entry" if length == 1 else f"{length} entries"
        company = f"beside {beside} other runs" if beside else "alone"
        why = (
            f"{deaths} processes died in a row while they ran it, each with {recorded} in its journal; the last "
            f"was {holder}, where it ran {company}; it is not started again by itself. Look at what it does there "
            f"(`surefoot show {run.id}`), then `surefoot retry {run.id}`"
        )
        freed = apply_run(run, RunDo.QUARANTINE, at, why=why)
    return replace(freed, deaths=deaths, deaths_length=length)


class RetryRun(Write, frozen=True, kw_only=True):
    """Let a run go on that was quarantined, diverged, damaged or waiting: workers may take it again."""

    at: float
    why: str

    def decide(self, view: View) -> Answer:
        """Done, ended, missing, or illegal when it runs or is ready already."""
        run = view.run(self.run_id)
        if run is None:
            return Answer(Verdict.MISSING)
        if run.stamp == self.stamp:
            return Answer(Verdict.DONE, run=run)
        if run.status in FINAL:
            return Answer(Verdict.ENDED, run=run)
        if run.status in (RunStatus.PENDING, RunStatus.RUNNING):
            return Answer(Verdict.ILLEGAL, run=run)
        after = replace(apply_run(run, RunDo.RETRY, self.at, why=self.why), stamp=self.stamp)
        view.put_run(after)
        return Answer(Verdict.DONE, run=after)


class SendMail(Write, frozen=True, kw_only=True):
    """Keep a message for a run and wake it. With `first_only` a name takes one message for ever: the first wins."""

    mail: Mail
    first_only: bool = False

    def decide(self, view: View) -> Answer:
        """Done (also when this id was sent before); disagrees: with another message; exists: another was first.

        Ended, or missing: nobody will read it.
        """
        run = view.run(self.run_id)
        if run is None:
            return Answer(Verdict.MISSING)
        before = view.desk.mail(self.run_id)
        sent = next((m for m in before if m.id == self.mail.id), None)
        if sent is not None:
            same = (sent.name, sent.value) == (self.mail.name, self.mail.value)
            return Answer(Verdict.DONE if same else Verdict.DISAGREES, run=run)
        if run.status in FINAL:
            return Answer(Verdict.ENDED, run=run)
        if self.first_only and any(m.name == self.mail.name for m in before):
            return Answer(Verdict.EXISTS, run=run)
        view.desk.put_mail(replace(self.mail, number=run.mail + 1))
        woken = run.status is RunStatus.WAITING and any(w.name == self.mail.name for w in run.waits)
        after = replace(run, mail=run.mail + 1, wake_at=WAKE_NOW if woken else run.wake_at)
        view.put_run(after)
        return Answer(Verdict.DONE, run=after)


class SetQueue(Write, frozen=True, kw_only=True):
    """Give a queue its limits; they hold for every worker from the next claim on."""

    name: str
    limits: Limits
    at: float

    def decide(self, view: View) -> Answer:
        """Always done. What was started under the old limits counts under the new."""
        held = view.desk.queue(self.name)
        if held is None or held.limits != self.limits:
            begun = held.recent if held is not None else ()
            recent = tuple((at, count) for at, count in begun if at > self.at - self.limits.period_seconds)
            view.desk.put_queue(Queue(name=self.name, limits=self.limits, recent=recent, stamp=self.stamp))
        return Answer(Verdict.DONE)


class Leave(Write, frozen=True, kw_only=True):
    """The row of an owner that has nothing any more goes; with `seen`, only if it has not renewed its lease since."""

    owner_id: int
    seen: int = 0

    def decide(self, view: View) -> Answer:
        """Done, or busy: it lives after all."""
        held = view.owner(self.owner_id)
        if self.seen and held is not None and held.stamp != self.seen:
            return Answer(Verdict.BUSY, holder=held.name())
        view.desk.drop_owner(self.owner_id)
        return Answer(Verdict.DONE)
