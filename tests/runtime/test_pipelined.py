"""`durability="pipelined"`: the same results, and R2's barrier still holds; a crash loses a suffix and nothing else."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Attempt, NotCommitted, Surefoot, effect, keyed, step, workflow
from surefoot.core.journal import FENCE
from surefoot.stores.sqlite.store import SqliteStore
from tests.runtime.support import Crash, Ledger, child, recorded_slots, rows, slots

MODES: list[Any] = ["sync", "pipelined"]


@step(name="add")
def add(n: int) -> int:
    return n + 1


@step(name="add async")
async def add_async(n: int) -> int:
    return n + 1


@pytest.mark.parametrize("mode", MODES)
def test_results_and_journal_are_the_same_in_both(db: Path, mode: Any) -> None:
    @workflow
    def flow() -> list[int]:
        out = [add(n) for n in range(50)]
        return [*out, *surefoot.map(add, range(5)), len({surefoot.random(), surefoot.random()})]

    with Surefoot(db, durability=mode) as sf:
        assert sf.run(flow, id="r") == [*range(1, 51), *range(1, 6), 2]
        assert len(slots(sf, "r")) == 57
    with Surefoot(db, durability=mode) as sf:
        assert sf.run(flow, id="r") == [*range(1, 51), *range(1, 6), 2]


@pytest.mark.parametrize("mode", MODES)
async def test_async_results_and_journal_are_the_same_in_both(db: Path, mode: Any) -> None:
    @workflow
    async def flow() -> list[int]:
        out = [await add_async(n) for n in range(50)]
        return [*out, *await asyncio.gather(*(add_async(n) for n in range(5)))]

    async with Surefoot(db, durability=mode) as sf:
        assert await sf.run(flow, id="r") == [*range(1, 51), *range(1, 6)]
        assert len(slots(sf, "r")) == 55


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_effects_body_sees_all_earlier_entries_and_its_own_intent_on_disk(db: Path, mode: Any, kind: str) -> None:
    seen: list[list[str]] = []

    @effect(keyed(window=3600), name="send")
    def send(attempt: Attempt) -> None:
        seen.append(recorded_slots(db))
        assert [row[3] for row in rows(db)["effects"]][-1] == "attempted"

    @effect(keyed(window=3600), name="send async")
    async def send_async(attempt: Attempt) -> None:
        seen.append(recorded_slots(db))

    @workflow
    def flow() -> None:
        for n in range(40):
            add(n)
        surefoot.now()
        send()

    @workflow
    async def flow_async() -> None:
        for n in range(40):
            await add_async(n)
        surefoot.now()
        await send_async()

    with Surefoot(db, durability=mode) as sf:
        if kind == "def":
            sf.run(flow, id="r")
        else:
            asyncio.run(sf.run(flow_async, id="r"))
    assert len(seen[0]) == 42 and seen[0][-2:] == ["now", "send" if kind == "def" else "send async"]


@pytest.mark.parametrize("mode", MODES)
def test_everything_is_on_disk_when_run_returns(db: Path, mode: Any) -> None:
    @workflow
    def flow() -> None:
        for n in range(100):
            add(n)

    with Surefoot(db, durability=mode) as sf:
        sf.run(flow, id="r")
        assert len(recorded_slots(db)) == 100


def test_an_exception_leaves_all_that_was_queued_on_disk(db: Path) -> None:
    @workflow
    def flow() -> None:
        for n in range(100):
            add(n)
        raise Crash

    with Surefoot(db, durability="pipelined") as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        assert len(recorded_slots(db)) == 100


PROGRAM = """
import os, sys
from surefoot import Surefoot, step, workflow
@step
def add(n: int) -> int:
    if n == int(sys.argv[2]):
        os._exit(9)
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
    return n + 1
@workflow
def flow() -> int:
    n = 0
    while n < 200:
        n = add(n)
    return n
with Surefoot("agents.db", durability=sys.argv[1]) as sf:
    print(sf.run(flow, id="r"))
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_crash_loses_only_a_suffix(tmp_path: Path, mode: Any) -> None:
    for at in (60, 120):
        assert child(tmp_path, PROGRAM, mode, str(at)).returncode == 9
        stored = rows(tmp_path / "agents.db")["entries"]
        numbers = [int(row[9]) for row in stored if not row[6].startswith(FENCE)]
        assert numbers == list(range(1, len(numbers) + 1)), "a prefix of what happened, without a gap"
        assert len(numbers) == at if mode == "sync" else len(numbers) <= at
    done = child(tmp_path, PROGRAM, mode, "-1")
    assert done.stdout == "200\n", done.stderr
    ran = [int(line) for line in (tmp_path / "ran").read_text().split()]
    assert sorted(set(ran)) == list(range(200))
    if mode == "sync":
        assert len(ran) == 200, "what was recorded is never run again"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_error_in_the_background_commit_stops_the_run_before_anything_is_sent(
    db: Path, ledger: Ledger, kind: str
) -> None:
    """A stranger holds the write lock for longer than we wait."""
    ran: list[int] = []
    stranger = sqlite3.connect(db, isolation_level=None, check_same_thread=False)

    @step(name="work")
    def work(n: int) -> int:
        ran.append(n)
        if n == 5 and ran.count(5) == 1:
            stranger.execute("BEGIN IMMEDIATE")
        return n

    @step(name="work async")
    async def work_async(n: int) -> int:
        return work.function(n)

    @effect(keyed(window=3600))
    def send(attempt: Attempt) -> None:
        ledger.post(attempt.key, 1)

    @workflow
    def flow() -> str:
        for n in range(10):
            work(n)
        send()
        return "done"

    @workflow
    async def flow_async() -> str:
        for n in range(10):
            await work_async(n)
        send()
        return "done"

    store = SqliteStore(db, busy_seconds=0.3)
    with Surefoot(store, durability="pipelined") as sf:
        go = (lambda: sf.run(flow, id="r")) if kind == "def" else (lambda: asyncio.run(sf.run(flow_async, id="r")))
        with pytest.raises(NotCommitted, match=r"locked|earlier write"):
            go()
        stranger.execute("ROLLBACK")
        assert ledger.requests == []
        before = len(recorded_slots(db))
        assert before <= 6
        assert go() == "done"
        assert len(ledger.requests) == 1 and len(set(slots(sf, "r"))) == 11
    store.close()


def test_a_failed_last_record_is_not_reported_as_success(db: Path) -> None:
    stranger = sqlite3.connect(db, isolation_level=None, check_same_thread=False)

    @workflow
    def flow() -> str:
        add(1)
        stranger.execute("BEGIN IMMEDIATE")
        add(2)
        return "done"

    store = SqliteStore(db, busy_seconds=0.2)
    with Surefoot(store, durability="pipelined") as sf:
        with pytest.raises(NotCommitted):
            sf.run(flow, id="r")
        stranger.execute("ROLLBACK")
        assert sf.get("r").status == "running"
    store.close()


def test_a_long_run_does_not_pile_up_in_memory(db: Path) -> None:
    """More entries than the pipeline holds: the run waits for the disk instead of growing."""
    most = 0

    @workflow
    def flow() -> None:
        nonlocal most
        for n in range(6000):
            add(n)
            if n % 100 == 0:
                most = max(most, len(sf.engine.committer._queue))

    with Surefoot(db, durability="pipelined") as sf:
        sf.run(flow, id="r")
        assert most <= 4097
        assert len(recorded_slots(db)) == 6000


def test_runs_in_threads_do_not_disturb_each_other(db: Path) -> None:
    @workflow
    def flow(base: int) -> int:
        return sum(add(base + n) for n in range(60))

    with Surefoot(db, durability="pipelined") as sf:
        results: dict[int, int] = {}
        threads = [
            threading.Thread(target=lambda t=t: results.update({t: sf.run(flow, t, id=f"r{t}")})) for t in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == {t: sum(t + n + 1 for n in range(60)) for t in range(6)}
