"""What a write sees and answers: the records inside one transaction, and a verdict.

Stores implement `View` and `Desk` (`stores.base.Overlay`); writes are the only callers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from .dispatch import Queue, Ready, Served
from .effect import Effect
from .journal import Draft
from .lease import Owner
from .mail import Mail
from .run import Run
from .term import Term

if TYPE_CHECKING:
    from .schedule import Schedule

Blobs = tuple[tuple[bytes, bytes], ...]


class Verdict(StrEnum):
    """What became of a write. Only `done` and `took` changed the caller's own record."""

    DONE = "done"
    TOOK = "took"
    EXISTS = "exists"
    BUSY = "busy"
    FENCED = "fenced"
    CANCELLED = "cancelled"
    ENDED = "ended"
    DISAGREES = "disagrees"
    MISSING = "missing"
    ABSENT = "absent"
    ILLEGAL = "illegal"


class Answer(msgspec.Struct, frozen=True):
    """The verdict, and the record as it stands now."""

    verdict: Verdict
    run: Run | None = None
    effect: Effect | None = None
    holder: str = ""
    runs: tuple[Run, ...] = ()


DONE = Answer(Verdict.DONE)


class Desk(Protocol):
    """What a write may see and change of queues and mail, inside this transaction."""

    def ready(self, served: Served, now: float, limit: int) -> list[Ready]:
        """Rows that nobody has, due by now, that this worker can run: highest priority first, then oldest."""
        ...

    def taken(self, queues: tuple[str, ...]) -> list[Ready]:
        """Rows of these queues that somebody has."""
        ...

    def queue(self, name: str) -> Queue | None:
        """A queue that has limits."""
        ...

    def put_queue(self, queue: Queue) -> None:
        """Save it at the end of this transaction."""
        ...

    def mail(self, run_id: str) -> list[Mail]:
        """All messages to this run, in order."""
        ...

    def put_mail(self, mail: Mail) -> None:
        """Save it at the end of this transaction."""
        ...

    def schedule(self, name: str) -> Schedule | None:
        """A schedule by its name."""
        ...

    def put_schedule(self, schedule: Schedule) -> None:
        """Save it at the end of this transaction."""
        ...

    def drop_schedule(self, name: str) -> None:
        """Forget it at the end of this transaction."""
        ...

    def drop_owner(self, owner_id: int) -> None:
        """Forget a process at the end of this transaction."""
        ...


class View(Protocol):
    """What a write may see and change: records as they stand inside this transaction."""

    again: bool
    term: Term

    @property
    def desk(self) -> Desk:
        """Queues and mail, in the same transaction."""
        ...

    def run(self, run_id: str) -> Run | None:
        """The run as it stands, earlier writes of this batch included."""
        ...

    def effect(self, key: str) -> Effect | None:
        """The effect as it stands, earlier writes of this batch included."""
        ...

    def owner(self, owner_id: int) -> Owner | None:
        """A process that works, or worked, on this store."""
        ...

    def put_run(self, run: Run) -> None:
        """Save it at the end of this transaction."""
        ...

    def put_effect(self, effect: Effect) -> None:
        """Save it at the end of this transaction."""
        ...

    def put_owner(self, owner: Owner) -> None:
        """Save it at the end of this transaction."""
        ...

    def put_blobs(self, blobs: Blobs) -> None:
        """Save large values under their hashes, once."""
        ...

    def append(self, run_id: str, draft: Draft) -> None:
        """Seal it and put it at the end of the run's journal."""
        ...

    def has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        """True if the journal holds it already (asked only when a write is tried again)."""
        ...

    def seal_of(self, run_id: str) -> tuple[int, bytes]:
        """Length and last digest of the run's journal."""
        ...


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all writes. `run_id` is the run whose order it belongs to ("" for none)."""

    run_id: str = ""
    stamp: int = 0

    def decide(self, view: View) -> Answer:
        """Judge and change what `view` shows; raises nothing but bugs."""
        raise NotImplementedError
