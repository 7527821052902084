"""Many waiting runs, made quickly: as they stand in a store after each gave itself back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from surefoot.core.digest import digest
from surefoot.core.run import Run, RunDo, RunStatus, Waits
from surefoot.core.writes import EndRun, StartRun, Write
from surefoot.stores.base import Store

BATCH = 1000


def writes_of(count: int, *, workflow: str, first_due: float, every: float) -> Iterator[list[Write]]:
    """Batches of StartRun and EndRun: every second run waits for a timer, one due after the other, the rest for a
    signal."""
    stamps = itertools.count(1 << 40)
    for start in range(0, count, BATCH):
        batch: list[Write] = []
        for number in range(start, min(start + BATCH, count)):
            run_id, due = f"crowd-{number}", first_due + number * every if number % 2 else 0.0
            run = Run(
                id=run_id,
                workflow=workflow,
                status=RunStatus.RUNNING,
                arguments=b"{}",
                args_digest=digest(b"{}"),
                fence=1,
                owner=1,
                created_at=float(number),
                updated_at=float(number),
                queue="default",
                stamp=next(stamps),
            )
            wait = Waits(kind="timer", name=":1", until=due) if due else Waits(kind="signal", name="go")
            end = EndRun(
                run_id=run_id, fence=1, do=RunDo.SUSPEND, at=float(number), waits=(wait,), wake_at=due,
                stamp=next(stamps),
            )  # fmt: skip
            batch += [StartRun(run_id=run_id, run=run, stamp=run.stamp), end]
        yield batch


def fill(store: Store, count: int, *, workflow: str = "crowd", first_due: float, every: float = 0.0) -> None:
    """So many waiting runs."""
    for batch in writes_of(count, workflow=workflow, first_due=first_due, every=every):
        store.transact(batch)
