"""Who runs what next: which runs are ready, and which of them a worker may take. Pure, so that stores cannot disagree.

A run that nobody works on and that needs nobody has a `Ready` row, in a small table of its own: claims never scan the
journal, and a hundred thousand runs that wait for a signal cost a claim nothing. A run that a worker took keeps its
row with the owner's name on it, since limits count those.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from .errors import UsageError
from .run import Run, RunStatus

DEFAULT_QUEUE = "default"
DEATHS_MAX = 3
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

    `concurrency`: runs under way everywhere; `per_worker`: in one process; `per_key`: of one key. `rate` starts in
    `period_seconds`.
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
    """A queue that has limits, as it stands: `tokens` starts are left at `tokens_at`."""

    name: str
    limits: Limits
    tokens: float = 0.0
    tokens_at: float = 0.0
    stamp: int = 0

    def starts(self, now: float) -> float:
        """How many runs its rate lets start now."""
        limits = self.limits
        if not limits.rate:
            return math.inf
        refilled = self.tokens + max(0.0, now - self.tokens_at) * limits.rate / limits.period_seconds
        return min(float(limits.rate), refilled)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker can run: its queues, and the versions of each workflow that its code holds."""

    queues: tuple[str, ...]
    workflows: tuple[tuple[str, str], ...]


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


def choose(
    ready: Iterable[Ready], taken: Sequence[Ready], queues: dict[str, Queue], *, owner: int, slots: int, now: float
) -> list[Ready]:
    """The runs to take now, at most `slots`, in order: priority, then the key that has fewest under way, then age.

    `taken` are the rows of limited queues that somebody has already.
    """
    everywhere = Counter(row.queue for row in taken)
    here = Counter(row.queue for row in taken if row.owner == owner)
    of_key = Counter((row.queue, row.key) for row in taken)
    starts = {name: queue.starts(now) for name, queue in queues.items()}
    waiting = sorted(ready, key=lambda row: (-row.priority, row.since, row.run_id))
    chosen: list[Ready] = []
    while waiting and len(chosen) < slots:
        free = [row for row in waiting if _may_start(row, queues, everywhere, here, of_key, starts)]
        if not free:
            break
        top = free[0].priority
        row = min(
            (row for row in free if row.priority == top),
            key=lambda row: (of_key[row.queue, row.key] if row.key else 0, row.since, row.run_id),
        )
        chosen.append(row)
        waiting.remove(row)
        everywhere[row.queue] += 1
        here[row.queue] += 1
        of_key[row.queue, row.key] += 1
        if row.queue in starts:
            starts[row.queue] -= 1
    return chosen


def _may_start(
    row: Ready,
    queues: dict[str, Queue],
    everywhere: Counter[str],
    here: Counter[str],
    of_key: Counter[tuple[str, str]],
    starts: dict[str, float],
) -> bool:
    queue = queues.get(row.queue)
    if queue is None:
        return True
    limits = queue.limits
    return (
        (not limits.concurrency or everywhere[row.queue] < limits.concurrency)
        and (not limits.per_worker or here[row.queue] < limits.per_worker)
        and (not limits.per_key or not row.key or of_key[row.queue, row.key] < limits.per_key)
        and starts[row.queue] >= 1
    )


def spent(queue: Queue, count: int, now: float) -> Queue:
    """The queue after `count` starts."""
    if not queue.limits.rate:
        return queue
    return replace(queue, tokens=queue.starts(now) - count, tokens_at=now)
