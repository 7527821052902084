"""What a store must do: twelve operations, each atomic, and no rules of its own.

A store loads records, lets each write decide (`core.writes`), and saves what was put, in one transaction. `Overlay` is
that middle part, shared by every store; a database only supplies loads and saves.

A commit has three outcomes: `transact` returns (committed), raises NotCommitted (certainly not), or raises
CommitUnknown. After the last, `transact(..., again=True)` reads before it writes, and so decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from ..core.dispatch import WAKE_NOW, Queue, Ready, Served, ready_of
from ..core.effect import Effect, Status
from ..core.journal import Draft, Entry, Head, seal
from ..core.lease import Owner
from ..core.mail import Mail
from ..core.run import Run, RunStatus
from ..core.schedule import Schedule
from ..core.term import FIRST, Term, as_of, stamped
from ..core.view import Answer, Blobs, Write


class Store(Protocol):
    """A durable place for runs, entries, effects, owners and large values."""

    lease_boot: str
    """Names the boot of the lease clock: lease times of another boot mean nothing."""

    board: Board
    """Queues, mail and processes, for reading."""

    def transact(self, writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        """Decide and save all of `writes` in order, in one commit; one answer each. Durable when it returns."""
        ...

    def read_run(self, run_id: str) -> tuple[Run, list[Entry]] | None:
        """A run and its whole journal, chain verified, from one snapshot; Damaged names the entry that does not fit."""
        ...

    def find_run(self, run_id: str) -> Run | None:
        """A run without its journal."""
        ...

    def read_effect(self, key: str) -> Effect | None:
        """One effect by its key."""
        ...

    def read_owner(self, owner_id: int) -> Owner | None:
        """A process that works, or worked, on this store."""
        ...

    def read_blob(self, name: bytes) -> bytes:
        """A large value by its hash; Damaged if its bytes do not match."""
        ...

    def find_runs(self, statuses: Sequence[RunStatus] = (), *, limit: int = 1000) -> list[Run]:
        """Runs in these statuses (all when empty), newest first."""
        ...

    def find_effects(self, statuses: Sequence[Status] = (), *, run_id: str = "", limit: int = 1000) -> list[Effect]:
        """Effects in these statuses (all when empty) and of this run (any when empty), newest first."""
        ...

    def appear(self, owner_id: int) -> None:
        """Hold a mark that the operating system drops when this process ends, however it ends."""
        ...

    def is_gone(self, owner_id: int) -> bool:
        """True if that process's mark has certainly been dropped; a hint only, the fence is what protects."""
        ...

    def check(self) -> list[str]:
        """Read everything once, indexes against tables; what does not fit, in words. As slow as the store is large."""
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...


@runtime_checkable
class HasTerms(Protocol):
    """A store whose last commits can be lost, because another server may take over."""

    @property
    def term(self) -> Term:
        """The present term, as far as this process has noticed."""
        ...


@runtime_checkable
class Watches(Protocol):
    """A store that can tell the end of a process in the moment in which it ends."""

    def await_end(self, owner_id: int) -> bool | None:
        """Wait for it: True as soon as that owner is gone, False if it is not after a second, None if nobody knows.

        One thread at a time; what is told may only hasten a look.
        """
        ...


@runtime_checkable
class Rings(Protocol):
    """A store that can wake workers of other processes. A hint: all of them lost, a worker polls."""

    def hear(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        """Call `listener`, on a thread of the store's, when a run has become ready; what is returned ends that.

        It gets a number that is the same for all who hear this one and another the next time, or None.
        """
        ...


@runtime_checkable
class Waits(Protocol):
    """A store that waits for its database while that is away."""

    def wait_no_longer(self) -> None:
        """From now on what needs a connection fails if the first attempt to make it does; from any thread."""
        ...


class Board(Protocol):
    """What a store shows of its queues, mail and processes: read by workers and by `doctor`, outside transactions."""

    def next_due(self, served: Served) -> float | None:
        """When the earliest run is due that this worker could take and that is not due yet; None if there is none."""
        ...

    def backlog(self, *, limit: int = 1000) -> list[Ready]:
        """Queue rows, oldest first."""
        ...

    def read_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run, in order."""
        ...

    def find_owners(self) -> list[Owner]:
        """Processes that work here, or died here and left runs."""
        ...

    def find_queues(self) -> list[Queue]:
        """Queues that have limits."""
        ...

    def find_schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        ...


class Loads(Protocol):
    """What an overlay needs from its database, inside the open transaction."""

    def load_run(self, run_id: str) -> Run | None:
        """One run, or None."""
        ...

    def load_effect(self, key: str) -> Effect | None:
        """One effect, or None."""
        ...

    def load_owner(self, owner_id: int) -> Owner | None:
        """One owner, or None."""
        ...

    def load_head(self, run_id: str) -> Head:
        """The end of the run's journal."""
        ...

    def load_has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        """True if the journal holds such an entry."""
        ...

    def load_ready(self, served: Served, now: float, limit: int) -> list[Ready]:
        """Rows that nobody has; see `Desk.ready`. Rows that another transaction is taking are left out."""
        ...

    def load_taken(self, queues: tuple[str, ...]) -> list[Ready]:
        """Rows that somebody has."""
        ...

    def load_queue(self, name: str) -> Queue | None:
        """One queue that has limits, locked until the transaction ends."""
        ...

    def load_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run, in order."""
        ...

    def load_schedule(self, name: str) -> Schedule | None:
        """One schedule, locked until the transaction ends."""
        ...


class Overlay:
    """The view of one transaction: what is stored, with what this batch has put on top."""

    __slots__ = (
        "_found",
        "_loads",
        "again",
        "blobs",
        "dropped",
        "effects",
        "entries",
        "heads",
        "letters",
        "loaded",
        "owners",
        "queues",
        "runs",
        "schedules",
        "term",
    )

    def __init__(self, loads: Loads, *, again: bool, term: Term = FIRST) -> None:
        """`runs`, `effects`, `owners`, `heads`, `entries`, `blobs`, `queues`, `letters`, `dropped` and
        `schedules` (None: dropped) have to be saved.

        `loaded` names the effects that are stored already.
        """
        self._found: dict[str, Run | None] = {}
        self.queues: dict[str, Queue] = {}
        self.schedules: dict[str, Schedule | None] = {}
        self.letters: list[Mail] = []
        self.dropped: set[int] = set()
        self.loaded: set[str] = set()
        self._loads = loads
        self.again, self.term = again, term
        self.runs: dict[str, Run] = {}
        self.effects: dict[str, Effect] = {}
        self.owners: dict[int, Owner] = {}
        self.heads: dict[str, Head] = {}
        self.entries: list[tuple[str, Entry]] = []
        self.blobs: dict[bytes, bytes] = {}

    def run(self, run_id: str) -> Run | None:
        """The run as it stands in this batch."""
        held = self.runs.get(run_id)
        if held is None:
            held = self._found[run_id] = self._loads.load_run(run_id)
            if held is not None and self.term.number:
                held = as_of(held, self.term)
        return held

    def effect(self, key: str) -> Effect | None:
        """The effect as it stands in this batch."""
        held = self.effects.get(key)
        if held is None and (held := self._loads.load_effect(key)) is not None:
            self.loaded.add(key)
        return held

    def owner(self, owner_id: int) -> Owner | None:
        """The owner as it stands in this batch."""
        return self.owners.get(owner_id) or self._loads.load_owner(owner_id)

    def put_run(self, run: Run) -> None:
        """Save at the end."""
        if self.term.number:
            run = stamped(self.runs.get(run.id) or self._found.get(run.id), run, self.term)
        self.runs[run.id] = run

    def put_effect(self, effect: Effect) -> None:
        """Save at the end."""
        self.effects[effect.key] = effect

    def put_owner(self, owner: Owner) -> None:
        """Save at the end."""
        self.owners[owner.id] = owner

    def put_blobs(self, blobs: Blobs) -> None:
        """Save at the end, each once."""
        self.blobs.update(blobs)

    def append(self, run_id: str, draft: Draft) -> None:
        """Seal the draft behind the run's last entry."""
        head = self.heads.get(run_id) or self._loads.load_head(run_id)
        entry, self.heads[run_id] = seal(head, draft)
        self.entries.append((run_id, entry))

    def has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        """True if it is stored, or put by this batch."""
        mine = any(r == run_id and e.slot == slot and e.kind == kind for r, e in self.entries)
        return mine or self._loads.load_has_entry(run_id, slot, kind)

    def seal_of(self, run_id: str) -> tuple[int, bytes]:
        """Length and last digest of the run's journal."""
        head = self.heads.get(run_id) or self._loads.load_head(run_id)
        return head.length, head.digest

    # --- queues and mail ------------------------------------------------------------------------------------------

    @property
    def desk(self) -> Overlay:
        """Queues and mail, in the same transaction."""
        return self

    def queue_rows(self) -> tuple[list[Ready], list[str]]:
        """(rows to save, runs whose row goes) of the runs that this batch has put."""
        rows: list[Ready] = []
        gone: list[str] = []
        for run_id, run in self.runs.items():
            found = self._found.get(run_id)
            before, after = ready_of(found) if found is not None else None, ready_of(run)
            if after is not None and after != before:
                rows.append(after)
            elif after is None and before is not None:
                gone.append(run_id)
        return rows, gone

    def wakes(self) -> bool:
        """True if this batch made a run ready."""
        return bool(self.runs) and any(not row.owner and row.due_at <= WAKE_NOW for row in self.queue_rows()[0])

    def ready(self, served: Served, now: float, limit: int) -> list[Ready]:
        """Rows that nobody has, as they stand in this batch."""
        stored = [row for row in self._loads.load_ready(served, now, limit) if row.run_id not in self.runs]
        put = [row for run in self.runs.values() if (row := ready_of(run)) is not None]
        return stored + [row for row in put if is_ready(row, served, now)]

    def taken(self, queues: tuple[str, ...]) -> list[Ready]:
        """Rows that somebody has, as they stand in this batch."""
        stored = [row for row in self._loads.load_taken(queues) if row.run_id not in self.runs]
        put = [row for run in self.runs.values() if (row := ready_of(run)) is not None]
        return stored + [row for row in put if row.owner and row.queue in queues]

    def queue(self, name: str) -> Queue | None:
        """One queue that has limits."""
        return self.queues.get(name) or self._loads.load_queue(name)

    def put_queue(self, queue: Queue) -> None:
        """Save at the end."""
        self.queues[queue.name] = queue

    def mail(self, run_id: str) -> list[Mail]:
        """All messages to a run, those of this batch included."""
        return self._loads.load_mail(run_id) + [letter for letter in self.letters if letter.run_id == run_id]

    def put_mail(self, mail: Mail) -> None:
        """Save at the end."""
        self.letters.append(mail)

    def schedule(self, name: str) -> Schedule | None:
        """One schedule as it stands in this batch."""
        return self.schedules[name] if name in self.schedules else self._loads.load_schedule(name)

    def put_schedule(self, schedule: Schedule) -> None:
        """Save at the end."""
        self.schedules[schedule.name] = schedule

    def drop_schedule(self, name: str) -> None:
        """Forget at the end."""
        self.schedules[name] = None

    def drop_owner(self, owner_id: int) -> None:
        """Forget at the end."""
        self.owners.pop(owner_id, None)
        self.dropped.add(owner_id)


def is_ready(row: Ready, served: Served, now: float) -> bool:
    """True if nobody has it, it is due, and this worker can run it."""
    return (
        not row.owner
        and row.due_at <= now
        and row.queue in served.queues
        and (row.workflow, row.version) in served.workflows
    )
