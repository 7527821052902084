"""Queue rows and mail in SQLite: small tables of their own, read by workers and inside the write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from ...core.dispatch import Queue, Ready, Served
from ...core.lease import Owner
from ...core.mail import Mail
from ...core.schedule import Schedule
from ..base import Overlay
from ..records import encode, open_mail, open_owner, open_queue, open_schedule, sealed
from .connection import QUERIES

KEYS_MAX = 64
Rows = Callable[[str, tuple[Any, ...]], list[Any]]


def save_desk(db: sqlite3.Connection, overlay: Overlay) -> None:
    """Save what a batch changed of queues, mail and processes."""
    rows, gone = overlay.queue_rows()
    for row in rows:
        asleep = int(not row.owner and row.due_at > 0)
        db.execute(QUERIES["save_queue_row"], (*_columns(row), asleep))
    for run_id in gone:
        db.execute(QUERIES["drop_queue_row"], (run_id,))
    for queue in overlay.queues.values():
        db.execute(QUERIES["save_queue"], (queue.name, *sealed(queue)))
    for mail in overlay.letters:
        db.execute(QUERIES["save_mail"], (mail.run_id, mail.id, *sealed(mail)))
    for name, schedule in overlay.schedules.items():
        if schedule is None:
            db.execute(QUERIES["drop_schedule"], (name,))
        else:
            db.execute(QUERIES["save_schedule"], (name, *sealed(schedule)))
    for owner_id in overlay.dropped:
        db.execute(QUERIES["drop_owner"], (owner_id,))


def _columns(row: Ready) -> tuple[Any, ...]:
    return row.run_id, row.queue, row.workflow, row.version, row.key, row.priority, row.since, row.due_at, row.owner


def _row(columns: tuple[Any, ...]) -> Ready:
    run_id, queue, workflow, version, key, priority, since, due_at, owner = columns
    return Ready(
        run_id=run_id,
        queue=queue,
        workflow=workflow,
        version=version,
        key=key,
        priority=priority,
        since=since,
        due_at=due_at,
        owner=owner,
    )


def held_code(served: Served) -> str:
    """The workflows that a worker holds, as the queries compare them; no name holds a slash."""
    return encode([f"{name}/{version}" for name, version in served.workflows]).decode()


def load_ready(
    db: sqlite3.Connection, served: Served, now: float, limit: int, last_keys: dict[str, str]
) -> list[Ready]:
    """Ready rows: the foremost of each queue, and some of each key, so that one busy key cannot hide the others.

    `last_keys` remembers where the last look at a queue's keys ended; the next one goes on from there.
    """
    db.execute(QUERIES["wake_rows"], (now,))
    held = held_code(served)
    found: dict[str, Ready] = {}
    for queue in served.queues:
        rows = list(db.execute(QUERIES["find_ready"], (queue, held, limit)))
        if len(rows) == limit:
            rows += _of_each_key(db, queue, held, limit, last_keys)
        found.update((row[0], _row(row)) for row in rows)
    return list(found.values())


def _of_each_key(db: sqlite3.Connection, queue: str, held: str, limit: int, last_keys: dict[str, str]) -> Iterable[Any]:
    key, keys = last_keys.get(queue, ""), set[str]()
    for _ in range(KEYS_MAX):
        behind = db.execute(QUERIES["next_key"], (queue, key)).fetchone()
        key = behind[0] if behind is not None else ""
        if key in keys:
            break  # once around
        keys.add(key)
    last_keys[queue] = key
    for each in keys - {""}:
        yield from db.execute(QUERIES["find_ready_of_key"], (queue, each, held, max(1, limit // len(keys))))


def load_taken(db: sqlite3.Connection, queues: tuple[str, ...]) -> list[Ready]:
    """Rows of these queues that somebody has."""
    return [_row(row) for queue in queues for row in db.execute(QUERIES["find_taken"], (queue,))]


def load_queue(db: sqlite3.Connection, name: str) -> Queue | None:
    """One queue that has limits."""
    row = db.execute(QUERIES["load_queue"], (name,)).fetchone()
    return None if row is None else open_queue(*row)


def load_schedule(db: sqlite3.Connection, name: str) -> Schedule | None:
    """One schedule."""
    row = db.execute(QUERIES["load_schedule"], (name,)).fetchone()
    return None if row is None else open_schedule(name, *row)


def load_mail(db: sqlite3.Connection, run_id: str) -> list[Mail]:
    """All messages to a run."""
    return [open_mail(run_id, *row) for row in db.execute(QUERIES["load_mail"], (run_id,))]


class SqliteBoard:
    """What workers and `doctor` read; see `stores.base.Board`."""

    def __init__(self, rows: Rows) -> None:
        """`rows` answers a named query on the reading connection."""
        self._rows = rows

    def next_due(self, served: Served) -> float | None:
        """When the earliest run that this worker could take is due."""
        return self._rows("next_due", (encode(served.queues).decode(), held_code(served)))[0][0]

    def backlog(self, *, limit: int = 1000) -> list[Ready]:
        """Queue rows, oldest first."""
        return [_row(row) for row in self._rows("backlog", (limit,))]

    def read_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run, in order."""
        return [open_mail(run_id, *row) for row in self._rows("load_mail", (run_id,))]

    def find_owners(self) -> list[Owner]:
        """Processes that work here, or died here and left runs."""
        return [open_owner(*row) for row in self._rows("find_owners", ())]

    def find_queues(self) -> list[Queue]:
        """Queues that have limits."""
        return [open_queue(*row) for row in self._rows("find_queues", ())]

    def find_schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return [open_schedule(*row) for row in self._rows("find_schedules", ())]
