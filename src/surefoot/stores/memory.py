"""The reference store: dictionaries. It forgets everything with the process, and is otherwise the contract itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..core.digest import blob_hash
from ..core.dispatch import Queue, Ready, Served
from ..core.effect import Effect, Status
from ..core.errors import Damaged
from ..core.journal import Entry, Head, first_head, verify
from ..core.lease import Owner
from ..core.mail import Mail
from ..core.run import Run, RunStatus
from ..core.schedule import Schedule
from ..core.view import Answer, Write
from .base import Board, Overlay, is_ready


class MemoryStore:
    """Keeps everything in dictionaries; one lock makes each operation atomic."""

    lease_boot = "memory"

    def __init__(self) -> None:
        """An empty store."""
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._entries: dict[str, list[Entry]] = {}
        self._effects: dict[str, Effect] = {}
        self._owners: dict[int, Owner] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._rows: dict[str, Ready] = {}
        self._queues: dict[str, Queue] = {}
        self._schedules: dict[str, Schedule] = {}
        self._mail: dict[str, list[Mail]] = {}
        self.present: set[int] = set()
        self.board: Board = self

    def transact(self, writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        """Decide all, then save all."""
        with self._lock:
            overlay = Overlay(self, again=again)
            answers = [write.decide(overlay) for write in writes]
            self._runs.update(overlay.runs)
            self._effects.update(overlay.effects)
            self._owners.update(overlay.owners)
            self._blobs.update(overlay.blobs)
            for run_id, entry in overlay.entries:
                self._entries.setdefault(run_id, []).append(entry)
            rows, gone = overlay.queue_rows()
            self._rows.update({row.run_id: row for row in rows})
            for run_id in gone:
                self._rows.pop(run_id, None)
            self._queues.update(overlay.queues)
            self._schedules.update({name: s for name, s in overlay.schedules.items() if s is not None})
            for name in [name for name, schedule in overlay.schedules.items() if schedule is None]:
                self._schedules.pop(name, None)
            for letter in overlay.letters:
                self._mail.setdefault(letter.run_id, []).append(letter)
            for owner_id in overlay.dropped:
                self._owners.pop(owner_id, None)
            return answers

    def load_run(self, run_id: str) -> Run | None:
        """One run, or None."""
        return self._runs.get(run_id)

    def load_effect(self, key: str) -> Effect | None:
        """One effect, or None."""
        return self._effects.get(key)

    def load_owner(self, owner_id: int) -> Owner | None:
        """One owner, or None."""
        return self._owners.get(owner_id)

    def load_head(self, run_id: str) -> Head:
        """The end of the run's journal."""
        entries = self._entries.get(run_id)
        return Head(entries[-1].seq + 1, entries[-1].digest) if entries else first_head(run_id)

    def load_has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        """True if the journal holds such an entry."""
        return any(e.slot == slot and e.kind == kind for e in self._entries.get(run_id, ()))

    def load_ready(self, served: Served, now: float, limit: int) -> list[Ready]:
        """Rows that nobody has."""
        found = [row for row in self._rows.values() if is_ready(row, served, now)]
        return sorted(found, key=lambda row: (-row.priority, row.since, row.run_id))

    def load_taken(self, queues: tuple[str, ...]) -> list[Ready]:
        """Rows that somebody has."""
        return [row for row in self._rows.values() if row.owner and row.queue in queues]

    def load_queue(self, name: str) -> Queue | None:
        """One queue that has limits."""
        return self._queues.get(name)

    def load_schedule(self, name: str) -> Schedule | None:
        """One schedule, or None."""
        return self._schedules.get(name)

    def load_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run."""
        return list(self._mail.get(run_id, ()))

    def read_run(self, run_id: str) -> tuple[Run, list[Entry]] | None:
        """A run and its journal."""
        with self._lock:
            run = self._runs.get(run_id)
            entries = list(self._entries.get(run_id, ()))
        if run is None:
            return None
        verify(run_id, entries)
        return run, entries

    def find_run(self, run_id: str) -> Run | None:
        """A run without its journal."""
        return self._runs.get(run_id)

    def read_effect(self, key: str) -> Effect | None:
        """One effect by its key."""
        return self._effects.get(key)

    def read_owner(self, owner_id: int) -> Owner | None:
        """One owner, or None."""
        return self._owners.get(owner_id)

    def read_blob(self, name: bytes) -> bytes:
        """A large value by its hash."""
        content = self._blobs.get(name)
        if content is None or blob_hash(content) != name:
            raise Damaged(f"large value {name.hex()[:12]}", "it is missing or its bytes do not match its hash")
        return content

    def find_runs(self, statuses: Sequence[RunStatus] = (), *, limit: int = 1000) -> list[Run]:
        """Runs in these statuses, newest first."""
        with self._lock:
            found = [run for run in self._runs.values() if not statuses or run.status in statuses]
        return sorted(found, key=lambda run: run.created_at, reverse=True)[:limit]

    def find_effects(self, statuses: Sequence[Status] = (), *, run_id: str = "", limit: int = 1000) -> list[Effect]:
        """Effects in these statuses and of this run, newest first."""
        with self._lock:
            found = [
                effect
                for effect in self._effects.values()
                if (not statuses or effect.status in statuses) and (not run_id or effect.run == run_id)
            ]
        return sorted(found, key=lambda effect: effect.created_at, reverse=True)[:limit]

    def next_due(self, served: Served) -> float | None:
        """When the earliest run that this worker could take is due."""
        with self._lock:
            due = [row.due_at for row in self._rows.values() if row.due_at and is_ready(row, served, row.due_at)]
        return min(due, default=None)

    def backlog(self, *, limit: int = 1000) -> list[Ready]:
        """Queue rows, oldest first."""
        with self._lock:
            return sorted(self._rows.values(), key=lambda row: (row.since, row.run_id))[:limit]

    def read_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run."""
        with self._lock:
            return list(self._mail.get(run_id, ()))

    def find_owners(self) -> list[Owner]:
        """Processes that work here."""
        with self._lock:
            return sorted((owner for owner in self._owners.values() if owner.id), key=lambda owner: owner.id)

    def find_queues(self) -> list[Queue]:
        """Queues that have limits."""
        with self._lock:
            return sorted(self._queues.values(), key=lambda queue: queue.name)

    def find_schedules(self) -> list[Schedule]:
        """All schedules."""
        with self._lock:
            return sorted(self._schedules.values(), key=lambda schedule: schedule.name)

    def appear(self, owner_id: int) -> None:
        """Mark a process as present."""
        self.present.add(owner_id)

    def is_gone(self, owner_id: int) -> bool:
        """True if it is not marked as present."""
        return owner_id not in self.present

    def check(self) -> list[str]:
        """Nothing can be damaged here."""
        return []

    def close(self) -> None:
        """Nothing to release: the store lives as long as its object."""
