"""The database goes away while workers work: they wait for it and go on, and nothing is done twice or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.core.run import RunStatus
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.postgres import PrivatePostgres
from tests.worker import fleet as code
from tests.worker.conftest import Fleet, until

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(180)]


@pytest.fixture
def cluster() -> Iterator[PrivatePostgres]:
    with PrivatePostgres(fsync=False) as server:
        yield server


def test_a_database_that_is_killed_twice_loses_and_doubles_nothing(
    cluster: PrivatePostgres, server: ForkServer, quick_path: Path
) -> None:
    fleet = Fleet(server, quick_path, cluster.create_database())
    try:
        names = [f"run {n}" for n in range(60)]
        for name in names:
            fleet.sf.start(code.letter, name, id=name, queue="default")
        workers = [fleet.worker(concurrency=2), fleet.worker(concurrency=2)]
        for done in (5, 25):
            until(lambda done=done: len(fleet.effects()) > done, f"{done} effects")
            cluster.kill()
            cluster.start()
        until(lambda: len(fleet.effects()) == 60, "all effects")
        fleet.until_ended(60)
        assert fleet.effects() == Counter(names), "an effect was lost, or sent under two keys"
        assert fleet.statuses() == {"succeeded": 60} and fleet.sf.store.board.backlog() == []
        assert not [run for run in fleet.sf.store.find_runs([RunStatus.SUCCEEDED]) if run.deaths]
        for worker in workers:
            worker.signal(15)
            assert worker.join() == 0, worker.lines
    finally:
        fleet.close()
