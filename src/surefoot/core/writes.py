"""Everything that can be written, each as a frozen value that decides for itself.

A store only loads records, calls `decide`, and saves what was put, all in one transaction. So the rules (fence, lease,
identity, transition) are in one place, and two databases cannot disagree about them.

Every write can be tried again after a commit of unknown outcome: `stamp` is unique, and a record that already
carries it was already changed by this write. An entry is recognised by its slot and kind. A write that only adds
evidence leaves the stamp alone, so that it cannot hide another's.
"""

from __future__ import annotations

from msgspec.structs import replace

from .dispatch import WAKE_NOW
from .effect import TERMINAL, Do, Effect, Event, Evidence, Status, apply, with_evidence
from .effect import IllegalMove as IllegalMove
from .journal import FENCE, Draft, EntryKind
from .lease import Owner, Vantage
from .run import FINAL, Run, RunDo, RunStatus, Waits, apply_run
from .term import doubted, may_be_lost
from .view import DONE as DONE
from .view import Answer as Answer
from .view import Blobs as Blobs
from .view import Verdict as Verdict
from .view import View as View
from .view import Write as Write

RECORDED = frozenset({Verdict.DONE, Verdict.CANCELLED})
"""An entry stands in the journal; the owner of a cancelled run learns so, and asks for nothing more."""

CLOCK_ID = 0
"""The number of no process: of the row that keeps the clock."""


def owned(run: Run | None, fence: int) -> Verdict:
    """May the holder of this fence token write to this run?"""
    if run is None:
        return Verdict.MISSING
    if run.fence != fence or run.status is not RunStatus.RUNNING:
        return Verdict.FENCED
    return Verdict.DONE


def put_from_outside(view: View, run: Run, after: Run, at: float, what: str) -> None:
    """Change a run that its owner may still be writing, and take the next place in its journal (I5).

    An owner appends behind the last entry that it knows. So it finds that place taken, and has to look at its run
    before it writes anything: a fence that needs no lock.
    """
    number = run.fences + 1
    view.put_run(replace(after, fences=number))
    view.append(run.id, Draft(EntryKind.MARK, f"{FENCE}{number}.{what}", b"", "", b"", at))


def is_for(effect: Effect, run_id: str) -> bool:
    """True if it is in the hands of this run: whoever owns the run (its fence was checked) owns it, lease or not."""
    return run_id != "" and effect.holder == run_id


def wake_parent(view: View, child: Run) -> None:
    """A run that has ended wakes the parent that waits for it; its stamp stays, since this is not its owner's write."""
    parent = view.run(child.parent) if child.parent else None
    if parent is not None and parent.status is RunStatus.WAITING and waits_for(parent, child.id):
        view.put_run(replace(parent, wake_at=WAKE_NOW))


def waits_for(parent: Run, child: str) -> bool:
    """True if this is among what the run waits for."""
    return any(wait.kind == "child" and wait.name == child for wait in parent.waits)


def has_ended(view: View, run_id: str) -> bool:
    """True if nobody has to wait for that run any more."""
    run = view.run(run_id)
    return run is None or run.status in FINAL


class Join(Write, frozen=True, kw_only=True):
    """A process appears, or extends its lease."""

    owner: Owner

    def decide(self, view: View) -> Answer:
        """Always done: an owner's row is its own."""
        view.put_owner(self.owner)
        return DONE


class KeepClock(Write, frozen=True, kw_only=True):
    """Keep how the clock of timers is tied to the wall clock, once a boot: an owner's row that belongs to no process.

    `owner.started_at` is the instant at which the lease clock stood at 0.
    """

    owner: Owner

    def decide(self, view: View) -> Answer:
        """Always done; the first of a boot counts."""
        held = view.owner(CLOCK_ID)
        if held is None or held.boot != self.owner.boot:
            view.put_owner(self.owner)
        return DONE


class StartRun(Write, frozen=True, kw_only=True):
    """Create a run, claimed by its creator, unless the id is taken."""

    run: Run
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done, or exists with the run that holds the id."""
        held = view.run(self.run.id)
        if held is not None:
            same = held.stamp == self.run.stamp
            return Answer(Verdict.DONE if same else Verdict.EXISTS, run=held)
        view.put_run(self.run)
        if self.blobs:
            view.put_blobs(self.blobs)
        return Answer(Verdict.DONE, run=self.run)


class ClaimRun(Write, frozen=True, kw_only=True):
    """Take a run that nobody works on."""

    vantage: Vantage
    why: str

    def decide(self, view: View) -> Answer:
        """Took (with a higher fence token), busy, ended, or missing."""
        run = view.run(self.run_id)
        if run is None:
            return Answer(Verdict.MISSING)
        if run.stamp == self.stamp:
            return Answer(Verdict.TOOK, run=run)
        if run.status in FINAL:
            return Answer(Verdict.ENDED, run=run)
        holder = view.owner(run.owner) if run.owner else None
        if not self.vantage.may_take_from(run.owner, holder):
            return Answer(Verdict.BUSY, run=run, holder=holder.name() if holder else "")
        why = self.why or ("the owner died" if run.owner else run.reason or "it was released")
        taken = apply_run(run, RunDo.CLAIM, self.vantage.at, owner=self.vantage.owner, who=self.vantage.name, why=why)
        taken = replace(taken, stamp=self.stamp)
        if run.owner:
            put_from_outside(view, run, taken, self.vantage.at, "claim")
        else:
            view.put_run(taken)
        return Answer(Verdict.TOOK, run=taken)


class Append(Write, frozen=True, kw_only=True):
    """Put one entry at the end of a run's journal."""

    fence: int
    draft: Draft
    blobs: Blobs = ()
    undoing: bool = False

    def decide(self, view: View) -> Answer:
        """Done, or why this owner may not write any more."""
        run = view.run(self.run_id)
        if view.again and view.has_entry(self.run_id, self.draft.slot, self.draft.kind):
            return self._done(run)
        answer = self.judge(run)
        if answer.verdict in RECORDED:
            view.append(self.run_id, self.draft)
            if self.blobs:
                view.put_blobs(self.blobs)
        return answer

    def judge(self, run: Run | None) -> Answer:
        """What becomes of it, if the run is as it is seen here."""
        verdict = owned(run, self.fence)
        return self._done(run) if verdict is Verdict.DONE else Answer(verdict, run=run)

    def _done(self, run: Run | None) -> Answer:
        """It is recorded; a run that was cancelled goes on only with undoing its effects."""
        cancelled = run is not None and run.cancel_at and not self.undoing
        return Answer(Verdict.CANCELLED, run=run) if cancelled else DONE


class EndRun(Write, frozen=True, kw_only=True):
    """End an owner's work on a run: for good, or until somebody claims it again.

    A run that suspends says what it waits for, when time alone wakes it (`wake_at`), and how much mail it has seen:
    what came since wakes it at once.
    """

    fence: int
    do: RunDo
    at: float
    reason: str = ""
    result: bytes = b""
    blobs: Blobs = ()
    length_at_claim: int = 0
    waits: tuple[Waits, ...] = ()
    wake_at: float = 0.0
    mail_seen: int = 0

    def decide(self, view: View) -> Answer:
        """Done, or fenced."""
        run = view.run(self.run_id)
        if run is not None and run.stamp == self.stamp:
            return Answer(Verdict.DONE, run=run)
        verdict = owned(run, self.fence)
        if verdict is not Verdict.DONE or run is None:
            return Answer(verdict, run=run)
        ended = apply_run(run, self.do, self.at, why=self.reason, result=self.result)
        if ended.status in FINAL:
            length, head = view.seal_of(self.run_id)
            ended = replace(ended, length=length, head=head)
        if ended.status is RunStatus.DIVERGED:
            length, _ = view.seal_of(self.run_id)
            if length > self.length_at_claim:
                ended = replace(ended, tentative=(*run.tentative, (self.length_at_claim, length)))
        if ended.status is RunStatus.WAITING:
            missed = run.mail > self.mail_seen or run.cancel_at or self._missed_an_end(view)
            ended = replace(ended, waits=self.waits, wake_at=WAKE_NOW if self.waits and missed else self.wake_at)
        ended = replace(ended, stamp=self.stamp)
        view.put_run(ended)
        if ended.status in FINAL:
            wake_parent(view, ended)
        if self.blobs:
            view.put_blobs(self.blobs)
        return Answer(Verdict.DONE, run=ended)

    def _missed_an_end(self, view: View) -> bool:
        """True if a child that the run is about to wait for has ended already, so that nobody would wake it."""
        return any(wait.kind == "child" and has_ended(view, wait.name) for wait in self.waits)


class CancelRun(Write, frozen=True, kw_only=True):
    """Ask a run to stop: no new intent is made from now on. Ending it is its owner's work, or the next claimant's."""

    vantage: Vantage
    reason: str
    undo: bool = False

    def decide(self, view: View) -> Answer:
        """Done (the request stands in the run), ended, or missing."""
        run = view.run(self.run_id)
        if run is None:
            return Answer(Verdict.MISSING)
        if run.status in FINAL:
            return Answer(Verdict.DONE if run.stamp == self.stamp else Verdict.ENDED, run=run)
        if run.stamp == self.stamp:
            return Answer(Verdict.DONE, run=run)
        at = self.vantage.at
        undo = run.undo or self.undo
        changed = replace(run, cancel_at=run.cancel_at or at, undo=undo, reason=self.reason, stamp=self.stamp)
        if run.status is RunStatus.WAITING:
            changed = replace(changed, wake_at=WAKE_NOW)
        if run.owner:
            put_from_outside(view, run, changed, at, "cancel")
        else:
            view.put_run(changed)
        return Answer(Verdict.DONE, run=changed)


class TakeEffect(Write, frozen=True, kw_only=True):
    """Declare an intent and its first attempt, or take over the effect that stands under this identity.

    `effect` is the proposal, attempted. `draft` is the intent's journal entry. Without one, in a run, the intent was
    recorded before, and nothing is created. `release` says which approval is used for it.
    """

    fence: int
    effect: Effect
    vantage: Vantage
    names: tuple[str, ...] = ()
    draft: Draft | None = None
    release: Draft | None = None
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done: new, send it. Took: ours now, as shown. Exists: settled or parked. Busy. Disagrees. Absent."""
        held = view.effect(self.effect.key)
        if held is not None and held.stamp == self.stamp:
            return Answer(Verdict.DONE if held.attempts == 1 and held.fence == 1 else Verdict.TOOK, effect=held)
        if self.run_id:
            run = view.run(self.run_id)
            verdict = owned(run, self.fence)
            if (
                verdict is Verdict.DONE
                and run is not None
                and run.cancel_at
                and held is None
                and not self.effect.compensates
            ):
                verdict = Verdict.CANCELLED
            if verdict is not Verdict.DONE:
                return Answer(verdict, run=run)
        if held is None and self.run_id and self.draft is None:
            return Answer(Verdict.ABSENT)
        if held is None:
            return self._declare(view)
        return self._take_over(view, held)

    def _declare(self, view: View) -> Answer:
        term, at, proposal = view.term, self.vantage.at, self.effect
        lost = may_be_lost(term, view.run(self.run_id) if self.run_id else None, at)
        if lost:
            proposal = doubted(proposal, term, at=at, deadline_at=proposal.deadline_at, fresh=True)
        fresh = replace(proposal, holder=self.run_id, term=term.number, stamp=self.stamp)
        view.put_effect(fresh)
        self._record(view)
        return Answer(Verdict.TOOK if lost else Verdict.DONE, effect=fresh)

    def _record(self, view: View) -> None:
        for draft in (self.release, self.draft):
            if draft is not None and not (view.again and view.has_entry(self.run_id, draft.slot, draft.kind)):
                view.append(self.run_id, draft)
        if self.blobs:
            view.put_blobs(self.blobs)

    def _take_over(self, view: View, held: Effect) -> Answer:
        asked, at = self.effect, self.vantage.at
        if held.request_digest != asked.request_digest or held.name not in (asked.name, *self.names):
            if not any(e.value == asked.request and e.who == asked.run for e in held.evidence):
                proposal = Evidence(
                    at=at,
                    kind="disagreement",
                    found="other request",
                    value=asked.request,
                    who=asked.run,
                    text=asked.name,
                )
                view.put_effect(with_evidence(held, proposal))
            return Answer(Verdict.DISAGREES, effect=held)
        if held.status in TERMINAL or held.status is Status.PARKED:
            self._record(view)
            return Answer(Verdict.EXISTS, effect=held)
        holder = view.owner(held.owner) if held.owner else None
        if not is_for(held, self.run_id) and not self.vantage.may_take_from(held.owner, holder):
            return Answer(Verdict.BUSY, effect=held, holder=holder.name() if holder else "")
        moved = held.owner != self.vantage.owner
        open_effect = held
        if held.term < view.term.number:
            open_effect = doubted(held, view.term, at=at, deadline_at=asked.deadline_at)
        taken = replace(
            open_effect,
            fence=held.fence + 1,
            owner=self.vantage.owner,
            holder=self.run_id,
            taken_over=open_effect.taken_over or moved,
            can_ask=asked.can_ask,
        )
        if taken.status is Status.ATTEMPTED:
            why = "its sender stopped before the answer was recorded"
            taken = apply(taken, Event(do=Do.LOSE, at=at, reason=why))
        claim = Evidence(at=at, kind="claim", found=held.status, who=self.run_id, attempt=held.attempts)
        taken = replace(with_evidence(taken, claim), stamp=self.stamp)
        view.put_effect(taken)
        self._record(view)
        return Answer(Verdict.TOOK, effect=taken)


class RecordEffect(Write, frozen=True, kw_only=True):
    """Record what happened to an effect that this process holds, and the outcome's journal entry with it.

    Under a stale fence token nothing changes, but what was learned is kept as evidence.
    """

    key: str
    effect_fence: int
    run_fence: int
    event: Event | None
    evidence: Evidence | None = None
    late: Evidence | None = None
    draft: Draft | None = None
    release: bool = False
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done with the effect as it is now; fenced: the run is another's; exists: only the effect moved on."""
        held = view.effect(self.key)
        if held is None:
            return Answer(Verdict.MISSING)
        if held.stamp == self.stamp:
            return Answer(Verdict.DONE, effect=held)
        if self.run_id and owned(view.run(self.run_id), self.run_fence) is not Verdict.DONE:
            return self._keep_late(view, held, Verdict.FENCED)
        if held.fence != self.effect_fence or held.term < view.term.number:
            return self._keep_late(view, held, Verdict.EXISTS)
        after = with_evidence(held, self.evidence)
        if self.event is not None:
            after = apply(after, self.event)
        if after.status in TERMINAL or after.status is Status.PARKED:
            # whoever else was shown this effect may not act on what they saw
            after = replace(after, owner=0, fence=held.fence + 1)
        elif self.release:
            after = replace(after, owner=0)
        after = replace(after, stamp=self.stamp)
        view.put_effect(after)
        if self.draft is not None:
            view.append(self.run_id, self.draft)
        if self.blobs:
            view.put_blobs(self.blobs)
        mark_compensated(view, after, self.stamp)
        return Answer(Verdict.DONE, effect=after)

    def _keep_late(self, view: View, held: Effect, verdict: Verdict) -> Answer:
        learned = self.late or (self.event.evidence if self.event is not None else None)
        if learned is not None:
            late = replace(learned, kind="late", who=self.run_id)
            if late not in held.evidence:
                view.put_effect(with_evidence(held, late))
                if self.blobs:
                    view.put_blobs(self.blobs)
        return Answer(verdict, effect=held)


def mark_compensated(view: View, undo: Effect, stamp: int) -> None:
    """With the confirmation of an undo, its original becomes compensated."""
    original = view.effect(undo.compensates) if undo.compensates and undo.status is Status.CONFIRMED else None
    if original is not None and original.status is Status.CONFIRMED:
        event = Event(do=Do.COMPENSATE, at=undo.updated_at, reason=f"undone by {undo.key[:12]}")
        view.put_effect(replace(apply(original, event), stamp=stamp))


class ParkUnasked(Write, frozen=True, kw_only=True):
    """Park an open effect of this run that the code no longer asks for: nobody here could settle it."""

    key: str
    fence: int
    vantage: Vantage

    def decide(self, view: View) -> Answer:
        """Done with the effect as it is now; one that was certainly never sent ends refused.

        An effect of another run, or in a live owner's hands, is left to them.
        """
        verdict = owned(view.run(self.run_id), self.fence)
        held = view.effect(self.key)
        if verdict is not Verdict.DONE or held is None or held.stamp == self.stamp:
            return Answer(verdict if held is not None else Verdict.MISSING, effect=held)
        holder = view.owner(held.owner) if held.owner else None
        ours = is_for(held, self.run_id) or self.vantage.may_take_from(held.owner, holder)
        if held.run != self.run_id or not ours:
            return Answer(Verdict.DONE, effect=held)
        why, at = "the code of its run no longer asks for it", self.vantage.at
        after = held
        if held.term < view.term.number and held.status not in TERMINAL and held.status is not Status.PARKED:
            after = doubted(held, view.term, at=at, deadline_at=at + held.timeout_seconds)
        if after.status is Status.ATTEMPTED:
            after = apply(after, Event(do=Do.LOSE, at=at, reason=why))
        if after.status is Status.IN_DOUBT:
            after = apply(after, Event(do=Do.PARK, at=at, reason=why))
        elif after.status is Status.INTENDED:
            after = apply(after, Event(do=Do.GIVE_UP, at=at, reason=f"never sent: {why}"))
        if held.status is Status.PARKED and held.holder:
            view.put_effect(
                replace(held, holder="", stamp=self.stamp)
            )  # nobody's, should a person say "did not happen"
        elif after is not held:
            view.put_effect(replace(after, owner=0, holder="", fence=held.fence + 1, stamp=self.stamp))
        return Answer(Verdict.DONE, effect=after)


class DecideEffect(Write, frozen=True, kw_only=True):
    """A person ends a doubt. Who, when and why are kept as evidence."""

    key: str
    event: Event
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done, missing, or illegal when the effect is not parked."""
        held = view.effect(self.key)
        if held is None:
            return Answer(Verdict.MISSING)
        if held.stamp == self.stamp:
            return Answer(Verdict.DONE, effect=held)
        if held.status is not Status.PARKED:
            return Answer(Verdict.ILLEGAL, effect=held)
        moved = apply(held, self.event)
        after = replace(moved, owner=0, fence=held.fence + 1, term=view.term.number, stamp=self.stamp)
        run = view.run(held.run) if held.run else None
        if after.status is Status.INTENDED and run is not None and (run.status in FINAL or not held.holder):
            end = f"has {run.status}" if run.status in FINAL else "no longer asks for it"
            why = f"{self.event.reason}; never sent: its run {end}"
            after = apply(after, Event(do=Do.GIVE_UP, at=self.event.at, reason=why))
        view.put_effect(after)
        if run is not None and run.status is RunStatus.WAITING:
            view.put_run(replace(run, wake_at=WAKE_NOW))
        mark_compensated(view, after, self.stamp)
        if self.blobs:
            view.put_blobs(self.blobs)
        return Answer(Verdict.DONE, effect=after)
