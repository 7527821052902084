"""The store errs at its N-th commit, for every N: recording is not acting (R10).

A commit has three outcomes. Unknown is read again, then decided; an error while recording never sends an effect again
that the contract does not allow, and never looks like the effect's own failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from surefoot import RunWaiting, StoreError, keyed, lookup, natural, opaque, step
from surefoot.core.dispatch_writes import Leave
from surefoot.core.effect import Status
from surefoot.core.errors import CommitUnknown, NotCommitted
from surefoot.core.run import RunStatus
from surefoot.core.writes import Answer, Append, EndRun, Join, RecordEffect, StartRun, TakeEffect, Write
from surefoot.stores.memory import MemoryStore
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.place import Place
from tests.crash.traps import Trap

CONTRACTS = {"keyed": lambda: keyed(3600), "natural": natural, "lookup": lambda: lookup(0.5), "opaque": opaque}


class FaultyStore:
    """A store whose n-th commit goes wrong `times` times in a row: refused, or unknown, applied or not."""

    def __init__(self, inner: Any, number: int, error: type[StoreError], *, applied: bool, times: int = 1) -> None:
        self.inner, self.number, self.error, self.applied, self.times = inner, number, error, applied, times
        self.commits = 0
        self.struck: tuple[Write, ...] = ()

    def transact(self, writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        if not again:
            self.commits += 1
        if self.commits != self.number or not self.times:
            return self.inner.transact(writes, again=again)
        self.times -= 1
        self.struck = tuple(writes)
        if self.applied:
            self.inner.transact(writes, again=again)
        raise self.error("planned")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def bench(kind: str, store: FaultyStore) -> tuple[Trap, list[str]]:
    trap = Trap(CONTRACTS[kind](), place=store, lookup=kind == "lookup", lag=0.5)
    bodies: list[str] = []

    @step(name="think")
    def think(number: int) -> int:
        bodies.append(f"think {number}")
        return number

    def pay(order: str, amount: int) -> Any:
        think(1)
        receipt = trap.pay(order, amount)
        think(2)
        return receipt

    trap.workflow = trap.make_workflow(pay)
    return trap, bodies


def agrees_with_disk(store: Any) -> None:
    """What the store remembers of its runs is what a fresh look at the place shows (I9)."""
    if not isinstance(store, SqliteStore):
        return
    fresh = SqliteStore(store.path)
    for run_id, run in store._runs.items():
        assert fresh.load_run(run_id) == run
    for run_id, head in store._heads.items():
        assert fresh.load_head(run_id) == head
    assert store.read_run("r1") == fresh.read_run("r1")
    fresh.close()


def test_an_entry_that_a_full_disk_refused_is_not_remembered(quick_path: Path) -> None:
    path = quick_path / "agents.db"
    store = SqliteStore(path)
    place = Place(lambda: SqliteStore(path), fresh=lambda: place)
    store.transact([place.join(), place.start("r1")])
    store.transact([place.append("a", run_id="r1")])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(NotCommitted, match="disk is full"):
        store.transact([place.append("b", b"x" * 50_000, run_id="r1")])
    agrees_with_disk(store)
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.transact([place.append("c", run_id="r1")])
    agrees_with_disk(store)
    read = store.read_run("r1")
    assert read is not None and [entry.slot for entry in read[1]] == ["a", "c"]
    store.close()


def faults(
    where: str, folder: Path, error: type[StoreError], *, applied: bool, times: int = 1
) -> Iterator[FaultyStore]:
    """One store for each n, until a run ended before its n-th commit."""
    for number in itertools.count(1):
        inner = MemoryStore() if where == "memory" else SqliteStore(folder / f"{number}.db")
        store = FaultyStore(inner, number, error, applied=applied, times=times)
        yield store
        store.close()
        if not store.struck:
            assert number > 6, "a run of two steps and an effect commits more often than that"
            return


@pytest.mark.parametrize("kind", CONTRACTS)
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_an_unknown_commit_is_read_again_and_nobody_notices(
    where: str, kind: str, applied: bool, quick_path: Path
) -> None:
    struck: set[type[Write]] = set()
    for store in faults(where, quick_path, CommitUnknown, applied=applied):
        trap, bodies = bench(kind, store)
        assert trap.run()["name"] == "o1"
        agrees_with_disk(store.inner)
        assert (trap.sent(), trap.performed(), bodies) == (1, 1, ["think 1", "think 2"])
        assert trap.failures == [] and trap.status() is Status.CONFIRMED
        struck |= {type(write) for write in store.struck}
    assert struck == {Join, StartRun, Append, TakeEffect, RecordEffect, EndRun, Leave}


@pytest.mark.parametrize("kind", CONTRACTS)
@pytest.mark.parametrize(
    ("error", "applied", "times"), [(NotCommitted, False, 1), (CommitUnknown, True, 3), (CommitUnknown, False, 3)]
)
@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_commit_that_fails_stops_the_run_and_the_next_call_goes_on(
    where: str, kind: str, error: type[StoreError], applied: bool, times: int, quick_path: Path
) -> None:
    stopped = 0
    for store in faults(where, quick_path, error, applied=applied, times=times):
        trap, bodies = bench(kind, store)
        with trap.open() as surefoot:
            try:
                surefoot.run(trap.workflow, "o1", 40, id="r1")
            except error:
                stopped += 1
            store.times = 0
            agrees_with_disk(store.inner)
            kinds = {type(write) for write in store.struck}
            receipt_lost = RecordEffect in kinds and not applied
            never_sent = TakeEffect in kinds and applied
            if kind == "opaque" and (receipt_lost or never_sent):  # an intent without an outcome: a person has to tell
                with pytest.raises(RunWaiting):
                    surefoot.run(trap.workflow, "o1", 40, id="r1")
                assert trap.status() is Status.PARKED
            else:
                assert surefoot.run(trap.workflow, "o1", 40, id="r1")["name"] == "o1"
                assert surefoot.get("r1").status is RunStatus.SUCCEEDED
            agrees_with_disk(store.inner)
        assert trap.failures == [], "an error while recording looked like the effect's failure"
        sends = (not (kind == "opaque" and never_sent)) + (receipt_lost and kind in ("keyed", "natural"))
        assert trap.sent() == sends, "it was sent again because it could not be recorded"
        assert trap.performed() == len(trap.keys) == min(sends, 1)
        if applied or not store.struck:
            assert len(bodies) == len(set(bodies)), "a recorded step ran again"
    assert stopped >= 6
