"""Queue rows and mail: read by workers at any time, and by a batch that is being decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.dispatch import Queue, Ready, Served
from ...core.lease import Owner
from ...core.mail import Mail
from ...core.schedule import Schedule
from ..records import open_mail, open_owner, open_queue, open_schedule

KEYS_MAX = 64
KEYS_PER_LOOK = 8
FRONT_USES = 16
NOWHERE = (1 << 63) - 1
"""A priority that no row has, so that all rows come after it."""
Read = Callable[[str, Any], list[tuple[Any, ...]]]
"""(query, parameters) -> rows."""


def columns_of(row: Ready) -> tuple[Any, ...]:
    """A queue row's columns, in the order of the table."""
    return row.run_id, row.queue, row.workflow, row.version, row.key, row.priority, row.since, row.due_at, row.owner


def row_of(columns: tuple[Any, ...]) -> Ready:
    """The same row again."""
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


def _held(served: Served) -> dict[str, Any]:
    return {
        "workflows": [name for name, _ in served.workflows],
        "versions": [version for _, version in served.workflows],
    }


class Fronts:
    """Where the ready rows of a backlog began at the last look, so that the next one need not pass all that are gone.

    Rows that have been taken stay in the index as long as anybody's snapshot may see them, and thousands of them are
    passed for each claim. A row that came to stand in front of a front is found by the next look that uses none: after
    a few looks, and at once where there is no backlog any more.
    """

    def __init__(self) -> None:
        """None yet."""
        self._known: dict[tuple[Served, str], tuple[int, float, int]] = {}

    def of(self, served: Served, queue: str) -> tuple[int, float]:
        """(priority, since); such that everything is looked at if none is known."""
        priority, since, _ = self._known.get((served, queue), (NOWHERE, 0.0, 0))
        return priority, since

    def move(self, served: Served, queue: str, rows: Sequence[Ready], limit: int) -> bool:
        """Remember where these begin, if they show a backlog; True if a front was used, and more may lie before it."""
        ready = [row for row in rows if row.queue == queue and not row.due_at]
        known = self._known.pop((served, queue), None)
        if len(ready) < limit:
            return known is not None
        priority, since = min((-row.priority, row.since) for row in ready)
        uses = known[2] + 1 if known is not None else 0
        if uses < FRONT_USES:
            self._known[served, queue] = -priority, since, uses
        return False

    def clear(self) -> None:
        """Forget them."""
        self._known.clear()


def ready_rows(
    read: Read, served: Served, now: float, limit: int, last_keys: dict[str, str], fronts: Fronts
) -> tuple[list[Ready], dict[str, tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
    """Ready rows: the foremost of each queue, and some of each key, so that one busy key cannot hide the others.

    With those that were found at once come, as rows of `load_runs`, their runs by id; and as rows of `load_queue` the
    limits of their queues by name. `last_keys` remembers where the last look at a queue's keys ended; the next one goes
    on from there. `fronts` does so for the rows of a backlog.
    """
    held = _held(served)
    while True:
        begin = [fronts.of(served, queue) for queue in served.queues]
        places = {"priorities": [priority for priority, _ in begin], "sinces": [since for _, since in begin]}
        answer = read("find_ready", {"queues": list(served.queues), "limit": limit, "now": now, **places, **held})
        found = {row[0]: row_of(row[:9]) for row in answer}
        before = [fronts.move(served, queue, [*found.values()], limit) for queue in served.queues]
        if not any(before):
            break
    for queue in served.queues:
        if sum(row.queue == queue for row in found.values()) < limit:
            continue
        last = last_keys.get(queue, "")
        each = max(1, limit // KEYS_PER_LOOK)
        behind = read("find_ready_of_keys", {"queue": queue, "last": last, "keys": KEYS_MAX, "limit": each, **held})
        keys = {row[4] for row in behind}
        last_keys[queue] = max(keys) if len(keys) == KEYS_MAX else ""
        found.update((row[0], row_of(row)) for row in behind)
    runs = {row[0]: (row[0], *row[9:15]) for row in answer}
    return list(found.values()), runs, {row[1]: row[15:] for row in answer}


class PostgresBoard:
    """What workers and `doctor` read; see `stores.base.Board`."""

    def __init__(self, read: Read) -> None:
        """`read` answers a named query on the reading connection."""
        self._read = read

    def next_due(self, served: Served) -> float | None:
        """When the earliest run that this worker could take is due."""
        return self._read("next_due", {"queues": list(served.queues), **_held(served)})[0][0]

    def backlog(self, *, limit: int = 1000) -> list[Ready]:
        """Queue rows, oldest first."""
        return [row_of(row) for row in self._read("backlog", (limit,))]

    def read_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run, in order."""
        return [open_mail(run_id, *row) for row in self._read("load_mail", (run_id,))]

    def find_owners(self) -> list[Owner]:
        """Processes that work here, or died here and left runs."""
        return [open_owner(*row) for row in self._read("find_owners", ())]

    def find_queues(self) -> list[Queue]:
        """Queues that have limits."""
        return [open_queue(*row) for row in self._read("find_queues", ())]

    def find_schedules(self) -> list[Schedule]:
        """All schedules, by name."""
        return [open_schedule(*row) for row in self._read("find_schedules", ())]
