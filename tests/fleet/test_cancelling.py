"""Cancelling: acknowledged means that nothing new is sent, wherever the run is; what was sent is settled, or undone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import RunCancelled, RunEnded, Surefoot, UsageError, effect, keyed, step, workflow
from surefoot.core.commands import Commit
from surefoot.core.effect import OPEN
from surefoot.core.run import RunStatus
from surefoot.core.writes import CancelRun
from surefoot.runtime.session import Session
from surefoot.testing.crash import SimulatedCrash, abandon, crash_at
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import performed, read_ledger
from tests.runtime.support import restart


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Any:
    restart()
    yield
    restart()


def until(check: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a fact."""
    give_up = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.005)


def status(sf: Surefoot, run_id: str) -> RunStatus | None:
    run = sf.store.find_run(run_id)
    return None if run is None else run.status


# --- real processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def files(quick_path: Path) -> tuple[str, str]:
    return str(quick_path / "a.db"), str(quick_path / "ledger.jsonl")


def ended(process: Child) -> int:
    process.read(20.0)
    return process.join()


def test_a_run_of_another_process_stops_and_sends_nothing_after_the_acknowledgement(
    family: ForkServer, files: tuple[str, str]
) -> None:
    process = family.start("run", *files, "busy", "b")
    assert process.read(20.0, until="exec b turn 3")
    with Surefoot(files[0]) as sf:
        sf.cancel("b")
        after = performed(read_ledger(Path(files[1])))
        assert ended(process) == 0 and process.said("cancelled") is not None
        assert status(sf, "b") is RunStatus.CANCELLED
    assert performed(read_ledger(Path(files[1]))) == after == {"b 1": 1}


@pytest.mark.parametrize("compensate", [False, True])
def test_a_waiting_run_of_a_worker_ends_and_undoes_what_it_did_if_asked(
    family: ForkServer, files: tuple[str, str], compensate: bool
) -> None:
    worker = family.start("work", *files, 60.0)
    assert worker.read(20.0, until="works")
    with Surefoot(files[0]) as sf:
        from tests.fleet import family as code

        sf.start(code.slow, "s", id="s", queue="default")
        until(lambda: status(sf, "s") is RunStatus.WAITING)
        sf.cancel("s", compensate=compensate)
        until(lambda: status(sf, "s") is RunStatus.CANCELLED)
    worker.kill()
    names = [line.name for line in read_ledger(Path(files[1])) if line.what == "performed"]
    assert names == ["s 1", "s 2", *(["undo s 2", "undo s 1"] if compensate else [])]


def test_a_queued_run_that_nobody_has_ends_at_once_and_never_runs(family: ForkServer, files: tuple[str, str]) -> None:
    with Surefoot(files[0]) as sf:
        from tests.fleet import family as code

        sf.start(code.slow, "q", id="q", queue="default")
        assert sf.cancel("q", compensate=True).status is RunStatus.CANCELLED
        worker = family.start("work", *files, 0.5)
        assert ended(worker) == 0
        assert not Path(files[1]).exists()


def test_to_undo_what_has_ended_without_is_refused_and_again_what_was_undone_is_not(
    family: ForkServer, files: tuple[str, str]
) -> None:
    worker = family.start("work", *files, 60.0)
    assert worker.read(20.0, until="works")
    with Surefoot(files[0]) as sf:
        from tests.fleet import family as code

        for run in ("kept", "undone"):
            sf.start(code.slow, run, id=run, queue="default")
            until(lambda run=run: status(sf, run) is RunStatus.WAITING)
            sf.cancel(run, compensate=run == "undone")
            until(lambda run=run: status(sf, run) is RunStatus.CANCELLED)
            sf.cancel(run)
        with pytest.raises(RunEnded, match="run 'kept' was cancelled; its effects are not undone any more"):
            sf.cancel("kept", compensate=True)
        assert sf.cancel("undone", compensate=True).status is RunStatus.CANCELLED
        for wrong in (sf.cancel, sf.get):
            with pytest.raises(UsageError, match="run id must be a string, found int"):
                wrong(7)  # type: ignore[operator]
    worker.kill()


@pytest.mark.parametrize(
    "wrong",
    [{"reason": None}, {"reason": 5}, {"reason": "\ud800"}, {"reason": "x" * 4001}, {"compensate": "no"}],
    ids=str,
)
def test_a_cancellation_that_cannot_be_stored_is_refused_and_changes_nothing(
    files: tuple[str, str], wrong: dict[str, Any]
) -> None:
    """It damaged the run's record, and with that whatever reads all runs: lists, and every worker."""
    with Surefoot(files[0]) as sf:
        from tests.fleet import family as code

        sf.start(code.slow, "q", id="q", queue="default")
        with pytest.raises(UsageError, match=r"reason|compensate="):
            sf.cancel("q", **wrong)
        assert [run.status for run in sf.list()] == [RunStatus.PENDING]
        for who in (None, 5, "\ud800", "x" * 201):
            with pytest.raises(UsageError, match="who"):
                sf.signal("q", "go", 1, who=who)  # type: ignore[arg-type]
        assert sf.signal("q", "go", 1) and len(sf.store.board.read_mail("q")) == 1


def test_a_family_in_a_fleet_is_cancelled_with_its_head(family: ForkServer, files: tuple[str, str]) -> None:
    worker = family.start("work", *files, 60.0)
    assert worker.read(20.0, until="works")
    with Surefoot(files[0]) as sf:
        from tests.fleet import family as code

        sf.start(code.family, "f", id="f", queue="default")
        until(lambda: status(sf, "f/slow") is RunStatus.WAITING and status(sf, "f") is RunStatus.WAITING)
        sf.cancel("f")
        until(lambda: status(sf, "f/slow") is RunStatus.CANCELLED)
        assert status(sf, "f") is RunStatus.CANCELLED
    worker.kill()
    assert performed(read_ledger(Path(files[1]))) == {"f child 1": 1, "f child 2": 1}


def test_a_child_that_a_worker_runs_stops_with_its_waiting_parent(family: ForkServer, files: tuple[str, str]) -> None:
    worker = family.start("work", *files, 60.0)
    assert worker.read(20.0, until="works")
    with Surefoot(files[0]) as sf:
        from tests.fleet import family as code

        sf.start(code.hasty, "h", id="h", queue="default")
        until(lambda: status(sf, "h/busy") is RunStatus.RUNNING and status(sf, "h") is RunStatus.WAITING)
        until(lambda: Path(files[1]).exists())
        assert sf.cancel("h").status is RunStatus.CANCELLED
        until(lambda: status(sf, "h/busy") is RunStatus.CANCELLED)
    worker.kill()
    assert performed(read_ledger(Path(files[1]))) == {"h child 1": 1}


def test_an_owner_killed_before_it_saw_the_cancellation_is_ended_by_whoever_asks(
    family: ForkServer, files: tuple[str, str]
) -> None:
    process = family.start("run", *files, "busy", "b")
    assert process.read(20.0, until="exec b turn 3")
    assert process.kill() == -signal.SIGKILL
    with Surefoot(files[0]) as sf:
        assert sf.cancel("b").status is RunStatus.CANCELLED
    assert performed(read_ledger(Path(files[1]))) == {"b 1": 1}


# --- in one process -----------------------------------------------------------------------------------------------

DONE: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    DONE.clear()


@effect(keyed(window=86400))
def act(attempt: Any, name: str) -> str:
    DONE.append(name)
    return name


@act.compensate
@effect(keyed(window=86400))
def unact(attempt: Any, name: str) -> None:
    DONE.append(f"undo {name}")


def acting(cancel: Callable[[], object]) -> Any:
    @step
    def asked() -> None:
        cancel()

    @workflow(name="acting")
    def run() -> None:
        act("one")
        act("two")
        asked()
        act("three")

    return run


def test_compensation_killed_at_each_commit_undoes_each_effect_once(tmp_path: Path) -> None:
    asked: list[Surefoot] = []
    for number in range(1, 100):
        DONE.clear()
        restart()
        db = tmp_path / f"{number}.db"
        sf = Surefoot(db)
        asked[:] = [sf]
        code = acting(lambda: asked[0].cancel("r", compensate=True))
        driver = crash_at(number, when="after", kind=Commit).drive(sf)
        try:
            sf.run(code, id="r")
        except RunCancelled:
            break
        except SimulatedCrash:
            abandon(sf)
            sf.store.close()
        finally:
            assert driver.struck or DONE[-1] == "undo one"
        with Surefoot(db) as again:
            asked[0] = again
            with pytest.raises(RunCancelled):
                again.run(code, id="r")
            assert again.get("r").status is RunStatus.CANCELLED
            assert not again.store.find_effects(list(OPEN))
        assert "three" not in DONE
        assert list(dict.fromkeys(DONE)) == ["one", "two", "undo two", "undo one"]
    assert number >= 8, "too few places to die"
    sf.close()


def test_a_run_that_was_cancelled_while_nobody_had_it_begins_nothing_when_it_is_run_again() -> None:
    @effect(keyed(window=86400))
    def lost(attempt: Any) -> None:
        DONE.append("lost")
        if len(DONE) == 1:
            raise KeyboardInterrupt

    @step
    def late() -> None:
        DONE.append("late")

    @workflow
    def work() -> None:
        lost()
        late()
        act("never")

    with Surefoot("memory:") as sf:
        with pytest.raises(KeyboardInterrupt):
            sf.run(work, id="r")
        assert "to be settled" in sf.cancel("r").reason
        with pytest.raises(RunCancelled):
            sf.run(work, id="r")
        assert DONE == ["lost", "lost"], "the open effect is settled by its contract; nothing else begins"
        assert sf.get("r").status is RunStatus.CANCELLED


def test_children_are_asked_to_stop_before_their_parent_ends() -> None:
    @workflow(name="grandchild")
    def grandchild() -> None:
        surefoot.wait_for("never")

    @workflow(name="child")
    def child() -> None:
        surefoot.call(grandchild, id="g")

    @workflow
    def parent() -> None:
        surefoot.start_child(child, id="c")
        surefoot.wait_for("never")

    with Surefoot("memory:") as sf:
        handle = sf.start(parent, id="p")
        until(lambda: all(status(sf, name) is RunStatus.WAITING for name in ("p", "c", "g")))
        sf.cancel("p")
        with pytest.raises(RunCancelled):
            handle.result(20)
        until(lambda: all(status(sf, name) is RunStatus.CANCELLED for name in ("p", "c", "g")))


def test_a_live_run_that_is_cancelled_without_more_undoes_nothing() -> None:
    with Surefoot("memory:") as sf:
        with pytest.raises(RunCancelled):
            sf.run(acting(lambda: sf.cancel("r")), id="r")
        assert DONE == ["one", "two"]


async def test_an_effect_that_a_live_run_left_open_is_settled_before_its_cancellation_ends_it() -> None:
    """It lost a race in the middle of being sent: it is in doubt, and nobody would look at it any more."""

    sent = asyncio.Event()

    @effect(keyed(window=86400))
    async def slow(attempt: Any) -> None:
        DONE.append("slow")
        sent.set()
        if len(DONE) == 1:
            await asyncio.Event().wait()

    @step
    async def until_it_is_sent() -> None:
        await sent.wait()

    @step
    async def asked() -> None:
        sf.cancel("r")

    @workflow
    async def work() -> None:
        await surefoot.first(slow(), until_it_is_sent())
        await asked()

    async with Surefoot("memory:") as sf:
        with pytest.raises(RunCancelled):
            await sf.run(work, id="r")
        assert DONE == ["slow", "slow"] and not sf.store.find_effects(list(OPEN))


# --- between two writes -------------------------------------------------------------------------------------------


def cancellation(sf: Surefoot, run_id: str, *, undo: bool = False) -> CancelRun:
    """What `sf.cancel` writes first; whoever asked may die right after it."""
    stamp = next(sf.engine.stamps)
    return CancelRun(run_id=run_id, vantage=sf.engine.look(0), reason="no longer wanted", undo=undo, stamp=stamp)


def listening() -> Any:
    @workflow(name="listening")
    def run() -> None:
        act("one")
        surefoot.wait_for("never")

    return run


def test_a_waiting_run_whose_canceller_died_right_after_asking_is_ended_by_a_worker(tmp_path: Path) -> None:
    code = listening()
    with Surefoot(tmp_path / "a.db") as sf, sf.worker([code]):
        sf.start(code, id="r", queue="default")
        until(lambda: status(sf, "r") is RunStatus.WAITING)
        sf.store.transact([cancellation(sf, "r", undo=True)])
        until(lambda: status(sf, "r") is RunStatus.CANCELLED)
        assert DONE == ["one", "undo one"]


def test_a_run_that_is_cancelled_while_it_is_given_back_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked, and found that nobody cancelled it; somebody does before it is given back."""
    code = listening()
    with Surefoot(tmp_path / "a.db") as other, Surefoot(tmp_path / "a.db") as sf:
        stop = Session.stop

        def late(session: Session, error: BaseException, branch: Any) -> BaseException:
            if type(error).__name__ == "Suspend":
                other.store.transact([cancellation(other, "r")])
            return stop(session, error, branch)

        monkeypatch.setattr(Session, "stop", late)
        with sf.worker([code]), pytest.raises(RunCancelled):
            sf.start(code, id="r", queue="default").result(20)


def test_a_second_cancellation_does_not_forget_that_the_first_asked_to_undo() -> None:
    with Surefoot("memory:") as sf:
        code = listening()
        sf.start(code, id="r", queue="default")
        sf.store.transact([cancellation(sf, "r", undo=True), cancellation(sf, "r")])
        run = sf.store.find_run("r")
        assert run is not None and run.undo


def test_children_that_the_code_no_longer_reaches_are_cancelled_with_their_parent() -> None:
    """The parent was cancelled while nobody had it, and the code that ends it has no line that starts the child."""

    @workflow(name="child")
    def child() -> None:
        surefoot.wait_for("never")

    @workflow(name="parent")
    def parent() -> None:
        surefoot.start_child(child, id="c")
        surefoot.wait_for("never")

    with Surefoot("memory:") as sf:
        sf.start(parent, id="p")
        until(lambda: all(status(sf, name) is RunStatus.WAITING for name in ("p", "c")))
        sf.store.transact([cancellation(sf, "p")])
    restart()

    @workflow(name="parent")
    def changed() -> None:
        return None

    with Surefoot(sf.store) as sf:
        with pytest.raises(RunCancelled):
            sf.run(changed, id="p")
        run = sf.store.find_run("c")
        assert run is not None and run.cancel_at
