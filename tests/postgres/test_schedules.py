"""Schedules on PostgreSQL: each occurrence starts one run, whoever looks at the same time."""

from __future__ import annotations

import threading

from surefoot import Surefoot, workflow
from surefoot.runtime.schedules import fire_due
from tests.runtime.support import FakeClock

START = 1_800_000_000.0


@workflow(name="report_on_postgres")
def report(day: str) -> str:
    return day


def test_several_schedulers_that_look_at_once_start_one_run_an_occurrence(postgres_url: str) -> None:
    clock = FakeClock(START)
    with Surefoot(postgres_url, clock=clock) as one, Surefoot(postgres_url, clock=clock) as two:
        one.schedule("hourly", report, "monday", every=3600, catch_up="all")
        began = one.engine.time()
        gate = threading.Barrier(4)

        def look(sf: Surefoot) -> None:
            gate.wait()
            fire_due(sf.engine, began + 10 * 3600 + 1)

        threads = [threading.Thread(target=look, args=(sf,)) for sf in (one, two, one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert fire_due(one.engine, began + 10 * 3600 + 1) == 0
        fired = [run.id for run in one.store.find_runs()]
    assert len(fired) == len(set(fired)) == 10


def test_a_schedule_that_was_taken_away_fires_no_more(postgres_url: str) -> None:
    with Surefoot(postgres_url, clock=FakeClock(START)) as sf:
        sf.schedule("hourly", report, "monday", every=3600)
        sf.schedule("hourly", report, "tuesday", every=3600)
        (schedule,) = sf.store.board.find_schedules()
        assert b"tuesday" in schedule.arguments
        sf.unschedule("hourly")
        assert sf.store.board.find_schedules() == []
        assert fire_due(sf.engine, sf.engine.time() + 86400) == 0
