"""Several worker processes, one store: each run is taken by one, and starting another process is always safe."""

from __future__ import annotations

from collections import Counter

import pytest

from surefoot.core.run import RunStatus
from tests.worker import fleet as code
from tests.worker.conftest import Fleet

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


def test_four_workers_race_for_200_runs_and_each_is_run_once(fleet: Fleet) -> None:
    names = [f"run {n}" for n in range(200)]
    for n, name in enumerate(names):
        fleet.sf.start(code.short_async if n % 2 else code.short, name, id=name, queue="default")
    workers = [fleet.worker(wait=False) for _ in range(4)]
    fleet.until_ended(200)
    assert fleet.count("begun") == Counter(names) == fleet.count("ended")
    assert {run.fence for run in fleet.sf.store.find_runs()} == {1}, "each was claimed once"
    assert fleet.sf.store.board.backlog() == []
    for worker in workers:
        worker.signal(15)
        assert worker.join() == 0 and worker.said("stopped") == ""
    assert fleet.sf.store.board.find_owners() == [], "an owner that ended cleanly leaves no row"


def test_ten_processes_start_while_fifty_runs_are_live_and_nothing_is_done_twice(fleet: Fleet) -> None:
    names = [f"run {n}" for n in range(50)]
    for name in names:
        fleet.sf.start(code.letter, name, id=name, queue="default")
    workers = [fleet.worker(concurrency=16)]
    workers += [fleet.worker(wait=False, concurrency=16) for _ in range(9)]
    fleet.until_ended(50)
    assert all(worker.read(30, until="ready") for worker in workers)
    assert fleet.effects() == Counter(names) == fleet.count("performed")
    assert fleet.count("begun") == Counter(f"{name} {part}" for name in names for part in "abc")
    assert {run.fence for run in fleet.sf.store.find_runs([RunStatus.SUCCEEDED])} == {1}
