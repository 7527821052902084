"""The end of a worker is told in its moment: another waits for it, and need not look now and then."""

from __future__ import annotations

import time

import pytest

from surefoot import Surefoot
from surefoot.core.dispatch import Served
from surefoot.core.lease import Owner
from surefoot.core.run import RunStatus
from surefoot.runtime import reaper
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.contract import ALIVE
from surefoot.testing.place import Place, one
from tests.worker import fleet as code
from tests.worker.conftest import Fleet, until

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]
SERVED = Served(queues=("default",), workflows=(("w", ""),))


def owner(number: int, *, serves: bool = True) -> Owner:
    return Owner(
        id=number, pid=1, host="h", boot="b", started_at=0.0, lease_until=0.0, serves=SERVED if serves else None
    )


@pytest.mark.parametrize(
    ("mine", "others", "watched"),
    [(5, [], 0), (5, [9, 7, 2], 7), (9, [5, 7], 5), (5, [2], 2)],
    ids=["alone", "the next", "the first after the last", "two"],
)
def test_each_worker_is_waited_for_by_one(mine: int, others: list[int], watched: int) -> None:
    assert reaper._next(mine, [owner(number) for number in others]) == watched


def test_a_process_that_takes_nothing_from_queues_is_no_part_of_the_round() -> None:
    assert reaper._next(5, [owner(7, serves=False), owner(9)]) == 9, "it waits for nobody, so nobody would wait for 9"


@pytest.mark.parametrize("fleet", ["postgresql"], indirect=True)
def test_the_end_of_a_worker_is_noticed_long_before_anybody_looks(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "LOOK_SECONDS", 10_000.0)
    first = fleet.worker()
    fleet.sf.start(code.held, "one", id="one", queue="default")
    until(lambda: fleet.count("begun")["one"], "the run to stand in its step")
    with Surefoot(fleet.url, lease=60.0) as sf, sf.worker([code.held], queues=("elsewhere",)) as other:
        until(lambda: other._reaper.next_worker, "the first look, which finds whom to wait for")
        assert first.kill() == -9
        until(lambda: fleet.sf.store.find_run("one").status is RunStatus.PENDING, "its run to be freed")  # type: ignore[union-attr]


def test_a_wait_ends_with_the_mark_and_says_nothing_of_who_has_none(postgres_url: str) -> None:
    waits, worker = PostgresStore(postgres_url), PostgresStore(postgres_url)
    assert waits.await_end(ALIVE) is None, "nobody by this number was ever here"
    worker.appear(ALIVE)
    place = Place(lambda: worker, fresh=lambda: place)
    one(worker, place.join(ALIVE))
    assert waits.await_end(ALIVE) is False, "it is still here after a second"
    worker._presence.vanish()
    began = time.monotonic()
    assert waits.await_end(ALIVE) is True
    assert time.monotonic() - began < 0.9, "it did not wait for its time to be over"
    waits.close()
    worker.close()
