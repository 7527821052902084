"""When a worker looks for work: whose turn it is after a ring, and what must not keep it from looking."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, UsageError, workflow
from surefoot.runtime.worker import BEHIND_MAX, TURN_SECONDS, Worker


@workflow(name="turning")
def turning() -> int:
    return 1


@workflow(name="turning elsewhere")
def elsewhere() -> int:
    return 1


def test_each_ring_is_led_by_one_of_the_workers_that_serve_the_same(tmp_path: Path) -> None:
    db = tmp_path / "agents.db"
    with Surefoot(db) as a, Surefoot(db) as b, Surefoot(db) as c, Surefoot(db) as other:
        workers = [sf.worker([turning]) for sf in (a, b, c)]
        stranger = other.worker([elsewhere])
        for worker in (*workers, stranger):
            worker._engine.announce(worker.served)
        for worker in (*workers, stranger):
            worker._reaper.look()
        leads = [[worker._reaper.behind(number) for worker in workers] for number in range(6)]
        assert all(sorted(places) == [0, 1, 2] for places in leads), leads
        assert {places.index(0) for places in leads} == {0, 1, 2}, "each leads now and then"
        assert {stranger._reaper.behind(number) for number in range(6)} == {0}


@pytest.mark.parametrize(("number", "behind"), [(None, 0), (0, 0), (1, 1), (9, BEHIND_MAX)])
def test_a_worker_behind_another_looks_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, behind: int
) -> None:
    with Surefoot(tmp_path / "agents.db") as sf:
        worker = sf.worker([turning])
        monkeypatch.setattr(worker._reaper, "behind", lambda asked: asked)
        worker._hear(number)
        assert worker._heard() == behind * TURN_SECONDS
        worker._hear(2)
        worker.ring()
        assert worker._heard() == 0.0, "what rings at once is not held back"


def test_a_worker_that_always_finds_work_still_looks_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    with Surefoot(tmp_path / "agents.db") as sf:
        worker = sf.worker([turning])
        monkeypatch.setattr(Worker, "_claim", lambda self, slots: 1)
        monkeypatch.setattr(worker._reaper, "look_if_due", lambda: looks.append("dead") or 0)
        monkeypatch.setattr(worker._alarm, "look_if_due", lambda: looks.append("schedules") or 0)
        for _ in range(6):
            worker._turn()
        assert looks == ["dead", "schedules"] * 3, "every second time"


def test_a_signal_near_the_end_of_a_wait_does_not_make_it_endless(tmp_path: Path) -> None:
    """SimpleQueue.get(timeout=) waits for ever when its handler ends after that time (Python 3.11 and 3.12)."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: time.sleep(0.4))
    main = threading.main_thread().ident or 0
    with Surefoot(tmp_path / "agents.db") as sf:
        worker = sf.worker([turning])
        rescued = threading.Event()
        rescue = threading.Timer(20.0, lambda: (rescued.set(), worker.ring()))
        rescue.daemon = True
        rescue.start()
        strike = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGUSR1))
        strike.start()
        worker._wait(0.2)
        strike.join()
        rescue.cancel()
    signal.signal(signal.SIGUSR1, before)
    assert not rescued.is_set()


def test_an_error_that_nobody_foresaw_does_not_end_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One run that cannot be handled would else take every other run of the worker with it, and the next worker's."""
    claim, planned = Worker._claim, iter([ValueError("planned")])

    def claim_after_an_error(self: Worker, slots: int) -> int:
        for error in planned:
            raise error
        return claim(self, slots)

    monkeypatch.setattr(Worker, "_claim", claim_after_an_error)
    with Surefoot(tmp_path / "agents.db") as sf:
        handle = sf.start(turning, id="one", queue="default")
        with sf.worker([turning]):
            assert handle.result(30) == 1
    (told,) = [record for record in caplog.records if "could not look for work" in record.message]
    assert told.levelname == "ERROR" and told.exc_info is not None and "planned" in str(told.exc_info[1])


def test_what_a_worker_leaves_behind_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Surefoot(tmp_path / "agents.db") as sf:
        worker = sf.worker([turning])
        worker._engine.announce(worker.served)
        for number in range(7):
            sf.start(turning, id=f"run {number}", queue="default")
            worker._active.update({run.id: run for run in sf.store.find_runs()})
        worker._abandon()
    (told,) = [record.message for record in caplog.records if "under way" in record.message]
    assert "7 steps under way; they are run again: 'run " in told and told.endswith(" and 2 more")


def test_one_workflow_needs_no_list_and_what_is_none_is_refused(tmp_path: Path) -> None:
    wrong: Any = 5
    with Surefoot(tmp_path / "agents.db") as sf:
        assert [name for name, _ in sf.worker(turning).served.workflows] == ["turning"]
        with pytest.raises(UsageError, match="workflows= takes decorated workflows, found 5"):
            sf.worker(wrong)
        with pytest.raises(UsageError, match="queues= takes names of queues, found 5"):
            sf.worker([turning], queues=wrong)
