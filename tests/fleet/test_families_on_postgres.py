"""Parents and children on PostgreSQL, where two transactions may overlap: no wake-up is lost, no child is doubled."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import surefoot
from surefoot import Surefoot, step, workflow
from surefoot.core.run import RunStatus
from tests.runtime.support import restart


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Any:
    restart()
    yield
    restart()


def test_children_that_end_while_their_parents_begin_to_wait_wake_them_all(postgres_url: str) -> None:
    @step
    def think(number: int) -> int:
        return number

    @workflow(name="child")
    def child(number: int) -> int:
        return think(number)

    @workflow
    def parent(count: int) -> int:
        return sum(surefoot.call(child, number) for number in range(count))

    with Surefoot(postgres_url) as one, Surefoot(postgres_url) as two:
        with one.worker([parent, child]), two.worker([parent, child]):
            handles = [one.start(parent, 5, id=f"p{n}", queue="default") for n in range(8)]
            assert [handle.result(60) for handle in handles] == [10] * 8
        runs = one.store.find_runs(limit=1000)
        assert Counter(run.parent for run in runs) == {"": 8, **{f"p{n}": 5 for n in range(8)}}
        assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
