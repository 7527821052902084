"""Who runs what next: which runs are ready, and which of them a worker may take. Pure, so that stores cannot disagree.

A run that nobody works on and that needs nobody has a `Ready` row, in a small table of its own: claims never scan the
journal, and a hundred thousand runs that wait for a signal cost a claim nothing. A run that a worker took keeps its
row with the owner's name on it, since limits count those.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec
from msgspec.structs import replace

from .errors import UsageError
from .run import Run, RunStatus

DEFAULT_QUEUE = "default"
DEATHS_MAX = 3
PROBATION_DEATHS = DEATHS_MAX - 1
"""From so many deaths in a row on a run is on probation: a worker takes one such run at a time, until it gets on."""
PROBATION_PAUSE_SECONDS = 1.0
PARTS = 64
WAKE_NOW = 1.0
"""A `wake_at` that has come, by any clock."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A run's row in the queue: ready `since` then, or asleep until `due_at` (0: awake).

    `owner` is the process that has it, 0 for nobody. The two instants may be told by two clocks and are never compared.
    """

    run_id: str
    queue: str
    workflow: str
    version: str
    key: str
    priority: int
    since: float
    due_at: float = 0.0
    owner: int = 0


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue allows; 0 means no limit.

    `concurrency`: runs under way everywhere; `per_worker`: in one process; `per_key`: of one key. `rate`: starts, at
    most, in any span of `period_seconds`.
    """

    concurrency: int = 0
    per_worker: int = 0
    per_key: int = 0
    rate: int = 0
    period_seconds: float = 1.0

    def check(self, queue: str) -> Limits:
        """These limits; UsageError for one that lets nothing through or cannot be."""
        for name in ("concurrency", "per_worker", "per_key", "rate"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"queue {queue!r}: {name} must be a whole number, 1 or more, found {value!r}")
        if not 0 < self.period_seconds < math.inf:
            raise UsageError(f"queue {queue!r}: the period of its rate must be a positive time in seconds")
        return self


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue that has limits, as it stands. `recent`: when runs were started in its last period, and how many.

    Starts of one 64th of a period are kept together, under the latest of their instants.
    """

    name: str
    limits: Limits
    recent: tuple[tuple[float, int], ...] = ()
    stamp: int = 0

    def starts(self, now: float) -> float:
        """How many runs its rate lets start now."""
        limits = self.limits
        if not limits.rate:
            return math.inf
        begun = sum(count for at, count in self.recent if at > now - limits.period_seconds)
        return max(0.0, limits.rate - begun)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker can run: its queues, and the versions of each workflow that its code holds."""

    queues: tuple[str, ...]
    workflows: tuple[tuple[str, str], ...]


def unserved(row: Ready, workers: Sequence[Served]) -> str:
    """Why none of these workers could take this run; "" if one could."""
    of_queue = [served for served in workers if row.queue in served.queues]
    if not of_queue:
        return f"no live worker serves queue {row.queue!r}"
    versions = sorted({version for served in of_queue for name, version in served.workflows if name == row.workflow})
    if not versions:
        return f"no live worker of queue {row.queue!r} has workflow {row.workflow!r}"
    if row.version in versions:
        return ""
    has = ", ".join(map(repr, versions))
    return (
        f"the live workers of queue {row.queue!r} have workflow {row.workflow!r} in version {has}, not {row.version!r}"
    )


def ready_of(run: Run) -> Ready | None:
    """The queue row that a run in this state has: none while it is over, or waits for somebody."""
    match run.status:
        case RunStatus.PENDING:
            due, owner = run.wake_at, 0
        case RunStatus.WAITING if run.wake_at:
            due, owner = run.wake_at, 0
        case RunStatus.RUNNING if run.queue:
            due, owner = 0.0, run.owner
        case _:
            return None
    return Ready(
        run_id=run.id,
        queue=run.queue or DEFAULT_QUEUE,
        workflow=run.workflow,
        version=run.version,
        key=run.key,
        priority=run.priority,
        since=run.updated_at,
        due_at=due,
        owner=owner,
    )


Turns = Mapping[tuple[str, str], int]
"""How recently something was taken of each (queue, key): a higher number is more recent, none is longest ago."""


def choose(
    ready: Iterable[Ready],
    taken: Sequence[Ready],
    queues: Mapping[str, Queue],
    *,
    owner: int,
    slots: int,
    now: float,
    turns: Turns | None = None,
) -> list[Ready]:
    """The runs to take now, at most `slots`, in order: by priority, then keys in turn, then age.

    It is the turn of the key that has fewest under way, and of those, of the one that was taken from longest ago.
    Runs without a key are one key of their own, in each queue. `taken` are the rows that somebody has already.
    """
    room = _Room(taken, queues, owner, now)
    lines: dict[tuple[int, str, str], list[Ready]] = {}
    for row in sorted(ready, key=lambda row: (row.since, row.run_id), reverse=True):
        lines.setdefault((-row.priority, row.queue, row.key), []).append(row)
    waiting = [_turn(line, room, turns or {}) for line in lines.values()]
    heapify(waiting)
    chosen: list[Ready] = []
    while waiting and len(chosen) < slots:
        line = heappop(waiting)[-1]
        row = line[-1]
        if not room.has_for(row):
            continue  # nor will it have for any other of this key: room only shrinks here
        chosen.append(line.pop())
        room.take(row)
        if line:
            heappush(waiting, _turn(line, room, turns or {}))
    return chosen


def _turn(line: list[Ready], room: _Room, turns: Turns) -> tuple[int, int, int, float, str, list[Ready]]:
    row = line[-1]
    place = row.queue, row.key
    return -row.priority, room.of_key[place], turns.get(place, 0), row.since, row.run_id, line


class _Room:
    """What the queues still allow, while rows are chosen."""

    def __init__(self, taken: Sequence[Ready], queues: Mapping[str, Queue], owner: int, now: float) -> None:
        self.limits = {name: queue.limits for name, queue in queues.items()}
        self.starts = {name: queue.starts(now) for name, queue in queues.items()}
        self.everywhere = Counter(row.queue for row in taken)
        self.here = Counter(row.queue for row in taken if row.owner == owner)
        self.of_key = Counter((row.queue, row.key) for row in taken)

    def has_for(self, row: Ready) -> bool:
        limits = self.limits.get(row.queue)
        if limits is None:
            return True
        return (
            (not limits.concurrency or self.everywhere[row.queue] < limits.concurrency)
            and (not limits.per_worker or self.here[row.queue] < limits.per_worker)
            and (not limits.per_key or not row.key or self.of_key[row.queue, row.key] < limits.per_key)
            and self.starts[row.queue] >= 1
        )

    def take(self, row: Ready) -> None:
        self.everywhere[row.queue] += 1
        self.here[row.queue] += 1
        self.of_key[row.queue, row.key] += 1
        if row.queue in self.starts:
            self.starts[row.queue] -= 1


def spent(queue: Queue, count: int, now: float) -> Queue:
    """The queue after `count` starts."""
    period = queue.limits.period_seconds
    if not queue.limits.rate:
        return queue
    recent = [(at, n) for at, n in queue.recent if at > now - period]
    if recent and int(recent[-1][0] * PARTS / period) == int(now * PARTS / period):
        at, n = recent.pop()
        return replace(queue, recent=(*recent, (max(at, now), n + count)))
    return replace(queue, recent=(*recent, (now, count)))
