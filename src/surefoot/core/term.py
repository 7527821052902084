"""A term of a store ends when its last commits may have been lost: a standby took over, or a backup was restored.

Nobody can tell what was lost: a request may have left whose intent is gone. So a new term ends every claim, and what a
run of an earlier term declares for the first time begins in doubt, as if an earlier try had been interrupted. The
contract then says what may be done: a key protects a repeat, a receiver is asked, and a person decides the rest.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .effect import Do, Effect, Event, Evidence, Status, apply
from .run import Run, RunDo, RunStatus, apply_run

CAUTION_SECONDS = 900.0
"""For so long every run counts as begun before the failover: one that was lost as a whole is started again by then."""
FAILED_OVER = "the database failed over and may have lost its last commits"
SHAPES_OF_THE_MOMENT = ("uuid7", "sequence")
"""Keys that hold the time of their intent: that of a lost intent cannot be made again."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """`number` counts failovers; nothing that was committed before `lost_since` is lost. Seconds since the epoch."""

    number: int = 0
    noticed_at: float = 0.0
    lost_since: float = 0.0


FIRST = Term()


def as_of(run: Run, term: Term) -> Run:
    """The run as it stands in this term: a claim that was made in an earlier one is over."""
    if run.term >= term.number or run.status is not RunStatus.RUNNING:
        return run
    return apply_run(run, RunDo.RELEASE, run.updated_at, why=FAILED_OVER)


def stamped(before: Run | None, after: Run, term: Term) -> Run:
    """The run with the term in which it was made, and that of its last claim."""
    if before is None:
        return replace(after, born=term.number, term=term.number)
    return replace(after, term=term.number) if after.fence > before.fence else after


def may_be_lost(term: Term, run: Run | None, at: float) -> bool:
    """True if this run, or a call outside any, may have declared the effect before, and the record of it is gone."""
    return term.number > 0 and ((run is not None and run.born < term.number) or at < term.noticed_at + CAUTION_SECONDS)


def doubted(effect: Effect, term: Term, *, at: float, deadline_at: float, fresh: bool = False) -> Effect:
    """An open effect as it is taken in this term for the first time: a try that nobody remembers may have been made.

    What receivers showed before says nothing about that try, so it counts as one more. `fresh`: it is the first that
    is remembered.
    """
    why = f"{FAILED_OVER}; an earlier try may be among them"
    after = effect
    if after.status is Status.ATTEMPTED:
        after = apply(after, Event(do=Do.LOSE, at=at, reason=why))
    if not fresh:
        after = apply(after, Event(do=Do.ATTEMPT, at=at, deadline_at=deadline_at))
        after = apply(after, Event(do=Do.LOSE, at=at, reason=why))
    first = min(after.first_sent_at, term.lost_since or after.first_sent_at)
    after = replace(after, first_sent_at=first, taken_over=True, term=term.number)
    if after.contract.shape not in SHAPES_OF_THE_MOMENT:
        return after
    text = "the key of the try that may be lost was made of its moment, so nobody knows it"
    evidence = Evidence(at=at, kind="answer", found="expired", text=text, attempt=after.attempts)
    return replace(after, evidence=(*after.evidence, evidence))
