"""A worker that dies, hangs or is told to stop: its runs go on elsewhere, and nothing is done twice."""

from __future__ import annotations

import signal
import time

import pytest

from surefoot import RunWaiting, UsageError
from surefoot.core.run import Run, RunStatus
from tests.worker import fleet as code
from tests.worker.conftest import Fleet, until

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


def run_of(fleet: Fleet, name: str) -> Run:
    run = fleet.sf.store.find_run(name)
    assert run is not None
    return run


def until_held(fleet: Fleet, name: str) -> None:
    """Wait until the run stands in its step that waits for the test."""
    until(lambda: fleet.count("begun")[name], f"{name} to stand in its step")


def test_a_killed_workers_run_goes_on_elsewhere_at_once(fleet: Fleet) -> None:
    """With a lease of a minute: presence tells, not time."""
    first = fleet.worker()
    handle = fleet.sf.start(code.held, "one", id="one", queue="default")
    until_held(fleet, "one")
    second = fleet.worker()
    assert run_of(fleet, "one").owner == fleet.owner(first)
    fleet.gate.touch()
    first.signal(signal.SIGSTOP)  # so that it cannot end its step before it is killed
    first.kill()
    killed_at = time.monotonic()
    assert handle.result(20) == "one after"
    again = [line.at for line in fleet.lines("begun") if line.name == "one" and line.at > killed_at]
    assert len(again) <= 1
    assert fleet.count("begun")["one before"] == 1, "what was recorded was not done again"
    run = run_of(fleet, "one")
    assert run.fence == 2 and run.claims[-1].owner == fleet.owner(second)
    assert "died while it ran" in run.claims[-1].why
    assert run.claims[-1].at - run.claims[0].at < 60, "no lease had to end"


def test_the_row_of_a_dead_worker_is_taken_away(small_fleet: Fleet) -> None:
    first, second = small_fleet.worker(), small_fleet.worker()
    assert first.kill() == -9
    left = {small_fleet.owner(second)}
    until(lambda: {o.id for o in small_fleet.sf.store.board.find_owners()} == left, "the dead worker's row to go")


def test_a_hung_worker_loses_its_run_after_its_lease_and_changes_nothing_when_it_wakes(fleet: Fleet) -> None:
    lease = 0.6
    hung = fleet.worker(lease=lease)
    handle = fleet.sf.start(code.held, "one", id="one", queue="default")
    until_held(fleet, "one")
    other = fleet.worker(lease=lease)
    hung.signal(signal.SIGSTOP)
    until(hung.is_stopped, "the worker to stand still")
    until(lambda: run_of(fleet, "one").owner == fleet.owner(other), "the other worker to take over")
    fleet.gate.touch()
    assert handle.result(20) == "one after"
    before = run_of(fleet, "one"), fleet.sf.store.read_run("one")
    hung.signal(signal.SIGCONT)
    until(lambda: fleet.count("ended")["one"] == 2, "the hung worker to end its step")
    hung.signal(signal.SIGTERM)
    assert hung.join() == 0, hung.lines
    assert (run_of(fleet, "one"), fleet.sf.store.read_run("one")) == before, "a stale owner changed something"
    assert fleet.count("begun")["one after"] == 1, "it went on although it had lost the run"


def test_a_run_of_a_dead_foreground_process_is_gone_on_with(fleet: Fleet) -> None:
    """It was started by `sf.run`; a worker that has its code goes on with it."""
    alone = fleet.server.start("run_here", fleet.url, str(fleet.ledger_path), str(fleet.gate), "one")
    fleet.children.append(alone)
    until_held(fleet, "one")
    assert alone.kill() == -9
    fleet.gate.touch()
    fleet.worker()
    fleet.until_ended(1)
    assert fleet.count("begun") == {"one before": 1, "one": 2, "one after": 1}


def test_sigterm_gives_runs_back_after_their_step_and_takes_nothing_new(fleet: Fleet) -> None:
    first = fleet.worker(concurrency=2)
    for name in ("one", "two"):
        fleet.sf.start(code.held, name, id=name, queue="default")
        until_held(fleet, name)
    first.signal(signal.SIGTERM)
    assert first.read(20, until="asked")
    fleet.sf.start(code.short, "late", id="late", queue="default")
    fleet.gate.touch()
    assert first.join() == 0 and first.said("stopped") == ""
    assert fleet.statuses() == {"pending": 3}
    assert fleet.count("begun") == fleet.count("ended") == {"one before": 1, "two before": 1, "one": 1, "two": 1}
    fleet.worker()
    fleet.until_ended(3)
    assert fleet.count("begun")["one"] == fleet.count("begun")["one after"] == 1


def test_a_step_that_outlasts_the_grace_time_is_given_back_by_force(small_fleet: Fleet) -> None:
    worker = small_fleet.worker(grace=0.3)
    small_fleet.sf.start(code.held, "one", id="one", queue="default")
    until_held(small_fleet, "one")
    worker.signal(signal.SIGTERM)
    assert worker.join() != 0
    run = run_of(small_fleet, "one")
    assert run.status is RunStatus.PENDING and "told to end at once" in run.reason and not run.deaths


def test_a_run_that_kills_its_worker_is_quarantined_with_the_evidence_and_can_be_retried(fleet: Fleet) -> None:
    handle = fleet.sf.start(code.deadly, "one", id="one", queue="default")
    for _ in range(3):
        assert fleet.worker(wait=False).join() == -9
    fleet.worker()
    with pytest.raises(RunWaiting, match=r"3 processes died in a row .* 1 entry .*surefoot retry one"):
        handle.result(20)
    run = run_of(fleet, "one")
    assert run.status is RunStatus.QUARANTINED and run.deaths == 3
    assert fleet.count("begun") == {"one": 1, "one dies": 3}
    assert [row.run_id for row in fleet.sf.store.board.backlog()] == []
    fleet.sf.start(code.short, "two", id="two", queue="nobody")
    with pytest.raises(UsageError, match="nothing to retry"):
        fleet.sf.retry("two")
    assert fleet.sf.retry("one", why="fixed").status is RunStatus.PENDING
    until(lambda: fleet.count("begun")["one dies"] == 4, "a worker to take it again")


def test_a_third_death_in_company_does_not_quarantine(small_fleet: Fleet) -> None:
    """Two that stand in a long step while their worker is killed, twice; then one of them, beside a third run."""
    begun = small_fleet.count
    for name in ("one", "two"):
        small_fleet.sf.start(code.held, name, id=name, queue="default")
    for death in (1, 2):
        worker = small_fleet.worker()
        until(lambda n=death: begun("begun")["one"] == begun("begun")["two"] == n, f"both in their step, try {death}")
        assert worker.kill() == -9
    small_fleet.sf.start(code.held, "three", id="three", queue="default")
    worker = small_fleet.worker()
    until(lambda: begun("begun")["one"] + begun("begun")["two"] == 5 and begun("begun")["three"] == 1, "one and three")
    assert worker.kill() == -9
    with small_fleet.sf.worker([code.short], queues=("nobody",)):
        until(lambda: small_fleet.statuses() == {"pending": 3}, "all to be freed")
    assert sorted(run_of(small_fleet, name).deaths for name in ("one", "two", "three")) == [1, 2, 3]
    small_fleet.gate.touch()
    small_fleet.worker()
    small_fleet.until_ended(3)


def test_the_run_that_kills_is_found_among_those_beside_it(fleet: Fleet) -> None:
    """One worker at a time, started again each time it dies, with all eight runs at once."""
    innocents = [f"innocent {n}" for n in range(7)]
    for name in innocents[:4]:
        fleet.sf.start(code.staying, name, 0.2, id=name, queue="default")
    fleet.sf.start(code.deadly, "poison", id="poison", queue="default")
    for name in innocents[4:]:
        fleet.sf.start(code.staying, name, 0.2, id=name, queue="default")
    over = {"succeeded": 7, "quarantined": 1}
    died = 0
    while fleet.statuses() != over:
        worker = fleet.worker(wait=False, concurrency=8)
        while worker.read(0.05) and fleet.statuses() != over:
            pass
        if fleet.statuses() != over:
            assert worker.join() == -9, worker.lines
            died += 1
            assert died <= 5, "the run that kills is not found"
    assert run_of(fleet, "poison").status is RunStatus.QUARANTINED and died >= 3
    assert fleet.count("begun")["poison dies"] == died, "each death was its own"
    assert fleet.count("begun")["poison"] == 1
    for name in innocents:
        assert run_of(fleet, name).deaths <= 2 and fleet.count("begun")[name] <= 3, "it ran beside the culprit again"
