"""Children: one run each, however often and wherever a process dies; joined, typed, woken and cancelled as promised."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import RunCancelled, StepFailed, Surefoot, UsageError, step, workflow
from surefoot.core.child import StartChild, child_id
from surefoot.core.ids import check_id
from surefoot.core.run import RunStatus, Waits
from surefoot.core.writes import EndRun
from surefoot.stores.memory import MemoryStore
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.ledger import performed, read_ledger
from tests.runtime.support import restart

EXPECTED = {"A": 1, "B": 1, "LAST": 1}


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Any:
    restart()
    yield
    restart()


# --- killed at each boundary --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "stride"), [("def", 1), ("async", 5)])
def test_a_parent_killed_after_each_commit_leaves_exactly_one_run_of_each_child(
    family: ForkServer, quick_path: Path, kind: str, stride: int
) -> None:
    kills = 0
    for number in range(1, 1000, stride):
        db, ledger = str(quick_path / f"{number}.db"), str(quick_path / f"{number}.jsonl")
        killed = family.start("bear", db, ledger, kind, number)
        killed.read(30.0)
        if killed.join() != -signal.SIGKILL:
            break
        kills += 1
        again = family.start("bear", db, ledger, kind, 0)
        again.read(30.0)
        assert again.join() == 0, again.lines
        assert again.said("result") == "['A', 'B', 'LAST']"
        with Surefoot(db) as sf:
            runs = sf.store.find_runs()
            assert Counter(run.parent for run in runs) == {"": 1, "p": 3}
            assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
        assert performed(read_ledger(Path(ledger))) == EXPECTED
    assert kills >= 12 // stride, "too few places to die"


# --- in one process -----------------------------------------------------------------------------------------------


class Boom(Exception):
    pass


def test_a_child_has_its_place_in_its_id_and_the_given_id_where_one_is_given() -> None:
    @workflow(name="child")
    def child(number: int) -> int:
        return number

    @workflow
    def parent() -> list[int]:
        return [surefoot.call(child, 1), surefoot.call(child, 2), surefoot.call(child, 3, id="mine")]

    with Surefoot("memory:") as sf:
        assert sf.run(parent, id="p") == [1, 2, 3]
        parents = {run.id: run.parent for run in sf.store.find_runs()}
        assert parents == {"p": "", "p/child": "p", "p/child#1": "p", "mine": "p"}


def test_ids_of_deep_families_stay_ids_and_stay_apart() -> None:
    run_id = "p"
    for _ in range(100):
        run_id = check_id(child_id(run_id, "0.1/child:grow#3"), "run id")
    assert len(run_id) == 200
    assert child_id(run_id, "child:a") != child_id(run_id, "child:b")


def test_results_and_exceptions_come_back_typed_and_alike_live_and_on_replay() -> None:
    seen: list[Any] = []

    @workflow(raises=Boom)
    def failing(text: str) -> None:
        raise Boom(text)

    @workflow
    def pair(number: int) -> tuple[int, ...]:
        return (number, number)

    @step
    def crash_once() -> None:
        if len(seen) == 1:
            raise KeyboardInterrupt

    @workflow
    def parent() -> str:
        found = surefoot.call(pair, 4)
        try:
            surefoot.call(failing, "no")
        except Boom as error:
            seen.append((found, error.args))
        crash_once()
        return "done"

    with Surefoot("memory:") as sf:
        with pytest.raises(KeyboardInterrupt):
            sf.run(parent, id="p")
        assert sf.run(parent, id="p") == "done"
        assert seen == [((4, 4), ("no",))] * 2


def test_a_child_that_is_started_twice_under_one_id_runs_once() -> None:
    ran: list[int] = []

    @workflow(name="child")
    def child() -> int:
        ran.append(1)
        return len(ran)

    @workflow
    def parent() -> list[int]:
        first = surefoot.call(child, id="c")
        return [first, surefoot.call(child, id="c")]

    with Surefoot("memory:") as sf:
        assert sf.run(parent, id="p") == [1, 1]
        assert ran == [1]


def test_a_childs_end_is_kept_by_its_parent_whatever_becomes_of_the_child() -> None:
    lives: list[int] = []

    @workflow(name="child")
    def child() -> int:
        return 7

    @workflow
    def parent() -> int:
        found = surefoot.call(child, id="c")
        lives.append(1)
        if len(lives) == 1:
            raise KeyboardInterrupt
        return found

    store = MemoryStore()
    with Surefoot(store) as sf:
        with pytest.raises(KeyboardInterrupt):
            sf.run(parent, id="p")
        del store._runs["c"]
        assert sf.run(parent, id="p") == 7


def test_children_in_branches_join_in_any_order(tmp_path: Path) -> None:
    @workflow(name="child")
    async def child(number: int) -> int:
        await surefoot.sleep(0.02 * (3 - number))
        return number

    @workflow
    async def parent() -> list[int]:
        async def one(number: int) -> int:
            return await surefoot.call(child, number)

        return await surefoot.gather(*(one(number) for number in range(3)))

    with Surefoot(tmp_path / "a.db") as sf:
        assert asyncio.run(sf.run(parent, id="p")) == [0, 1, 2]
        assert {run.id for run in sf.list()} == {"p", "p/0/child", "p/1/child", "p/2/child"}


def test_a_large_result_comes_back_through_the_blob_table() -> None:
    @workflow(name="child")
    def child(size: int) -> str:
        return "x" * size

    @workflow
    def parent() -> int:
        return len(surefoot.call(child, 200_000))

    with Surefoot("memory:") as sf:
        assert sf.run(parent, id="p") == 200_000


def test_an_id_that_belongs_to_another_run_is_refused_and_nothing_is_started() -> None:
    @workflow(name="child")
    def child(number: int) -> int:
        return number

    @workflow
    def parent(number: int) -> int:
        return surefoot.call(child, number, id="taken")

    with Surefoot("memory:") as sf:
        sf.run(child, 1, id="taken")
        with pytest.raises(UsageError, match=r"'taken' of run 'p' cannot be .* was not started by a run"):
            sf.run(parent, 1, id="p")
        assert len(sf.list()) == 2


def test_a_plain_call_of_a_workflow_inside_another_names_the_way() -> None:
    @workflow(name="child")
    def child() -> None: ...

    @workflow
    def parent() -> None:
        child()

    with Surefoot("memory:") as sf, pytest.raises(UsageError, match=r"surefoot\.call\(child"):
        sf.run(parent, id="p")


def test_a_workflow_that_failed_is_not_called_a_step() -> None:
    @workflow(name="child")
    def child() -> None:
        raise Boom("why")

    @workflow(name="parent")
    def parent() -> None:
        surefoot.call(child)

    with Surefoot("memory:") as sf:
        for _ in range(2):  # live, and as it is stored
            with pytest.raises(StepFailed, match=r"^workflow 'child' failed: .*Boom: why$"):
                sf.run(parent, id="p")
            with pytest.raises(StepFailed, match=r"^workflow 'child' failed: .*Boom: why$"):
                sf.run(child, id="c")


def test_the_first_of_several_children_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    @workflow(name="child")
    def child(seconds: float) -> float:
        surefoot.sleep(seconds)
        return seconds

    @workflow
    async def parent() -> list[Any]:
        children = [surefoot.start_child(child, seconds) for seconds in (3600.0, 0.01)]
        return [*await surefoot.first(*children), surefoot.now().isoformat(), await surefoot.sleep(0.01)]

    with Surefoot(tmp_path / "agents.db") as sf, sf.worker([parent, child]):
        assert sf.start(parent, id="p", queue="default").result(30)[:2] == [1, 0.01]
        assert sf.get("p/child").status is RunStatus.WAITING


@pytest.mark.parametrize("ends_first", [True, False])
def test_a_run_that_waits_for_another_ones_child_is_told_since_nobody_would_wake_it(ends_first: bool) -> None:
    kept: list[surefoot.Child[int]] = []

    @workflow(name="child")
    def child() -> int:
        return 1 if ends_first else surefoot.wait_for("never", int)

    @workflow
    def parent() -> None:
        kept.append(surefoot.start_child(child))
        if ends_first:
            kept[0].result()

    @workflow
    def other() -> int:
        return kept[0].result()

    with Surefoot("memory:") as sf, sf.worker([parent, child, other]):
        sf.start(parent, id="p", queue="default").result(30)
        with pytest.raises(UsageError, match=r"'p/child' is a child of run 'p', which alone can wait .* found run 'o'"):
            sf.start(other, id="o", queue="default").result(30)


def test_a_child_whose_code_is_not_here_leaves_its_parent_waiting_with_the_reason() -> None:
    @workflow(name="child")
    def child() -> int:
        return 1

    @workflow
    def parent() -> int:
        restart()
        return surefoot.call(child)

    with Surefoot("memory:") as sf:
        with pytest.raises(surefoot.RunWaiting, match=r"stands still: .*not known in this process"):
            sf.run(parent, id="p")
        assert sf.get("p").status is RunStatus.WAITING


def test_a_child_that_was_interrupted_here_is_told_by_the_name_of_what_it_raised() -> None:
    @workflow(name="child")
    def child() -> int:
        raise KeyboardInterrupt

    @workflow
    def parent() -> int:
        return surefoot.call(child)

    with (
        Surefoot("memory:") as sf,
        pytest.raises(surefoot.RunWaiting, match=r"'p/child' stands still: it raised KeyboardInterrupt"),
    ):
        sf.run(parent, id="p")


# --- nothing is missed --------------------------------------------------------------------------------------------


def end(run_id: str, fence: int, do: Any, stamp: int, **more: Any) -> EndRun:
    return EndRun(run_id=run_id, fence=fence, do=do, at=9.0, stamp=stamp, **more)


@pytest.mark.parametrize("child_first", [True, False])
def test_a_parent_is_woken_by_its_child_whichever_of_the_two_writes_first(child_first: bool) -> None:
    from surefoot.core.run import RunDo
    from tests.core.support import make_run

    store = MemoryStore()
    store._runs["p"] = make_run(RunStatus.RUNNING, id="p", fence=1)
    store._runs["c"] = make_run(RunStatus.RUNNING, id="c", fence=1, parent="p")
    waits = (Waits(kind="child", name="c"),)
    writes = [end("p", 1, RunDo.SUSPEND, 101, waits=waits), end("c", 1, RunDo.SUCCEED, 102)]
    for write in reversed(writes) if child_first else writes:
        store.transact([write])
    parent = store.find_run("p")
    assert parent is not None and parent.status is RunStatus.WAITING
    assert parent.wake_at == 1.0, "nobody wakes it"


def test_a_child_is_not_started_by_an_owner_that_was_fenced_or_cancelled() -> None:
    from surefoot.core.journal import Draft, EntryKind
    from surefoot.core.writes import Verdict
    from tests.core.support import make_run

    store = MemoryStore()
    store._runs["p"] = make_run(RunStatus.RUNNING, id="p", fence=2)
    store._runs["q"] = make_run(RunStatus.RUNNING, id="q", fence=1, cancel_at=5.0)
    draft = Draft(EntryKind.MARK, "child:c", b"", "", b'"c"', 0.0)
    for run_id, verdict in (("p", Verdict.FENCED), ("q", Verdict.CANCELLED)):
        child = make_run(RunStatus.PENDING, id="c", parent=run_id)
        write = StartChild(run_id=run_id, fence=1, child=child, draft=draft, stamp=77)
        assert store.transact([write])[0].verdict is verdict
        assert store.find_run("c") is None


# --- in a fleet ---------------------------------------------------------------------------------------------------


def test_workers_run_the_children_of_queued_parents_and_the_parent_holds_nothing(tmp_path: Path) -> None:
    @workflow(name="child")
    def child(number: int) -> int:
        return number * 2

    @workflow
    def parent(count: int) -> int:
        started = [surefoot.start_child(child, number) for number in range(count)]
        return sum(one.result() for one in started)

    with Surefoot(tmp_path / "a.db") as sf, sf.worker([parent, child], queues=["small"], concurrency=1):
        assert sf.start(parent, 5, id="p", queue="small").result(20) == 20
        assert {run.queue for run in sf.store.find_runs()} == {"small"}


def test_a_cancelled_child_raises_in_its_parent(tmp_path: Path) -> None:
    @workflow(name="child")
    def child() -> None:
        surefoot.wait_for("never")

    @workflow
    def parent() -> str:
        one = surefoot.start_child(child, id="c")
        try:
            one.result()
        except RunCancelled as cancelled:
            return f"{cancelled.run_id} was"
        return "no"

    with Surefoot(tmp_path / "a.db") as sf:
        handle = sf.start(parent, id="p")
        while "c" not in {run.id for run in sf.list("waiting")}:
            pass
        sf.cancel("c")
        assert handle.result(20) == "c was"
