"""Schedules: each occurrence starts one run, whatever clocks, time zones, pauses and kills do."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, UsageError, workflow
from surefoot.core.run import RunStatus
from surefoot.core.schedule import CATCH_UP_MAX, CatchUp, Schedule, interval_times, look, occurrence_name, run_id_of
from surefoot.runtime.schedules import fire_due, times_of
from surefoot.testing.forkserver import ForkServer
from tests.runtime.support import FakeClock, restart

START = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Any:
    restart()
    yield
    restart()


@workflow
def report(day: str) -> str:
    return day


def opened(clock: FakeClock | None = None, url: Any = "memory:") -> Surefoot:
    return Surefoot(url, clock=clock or FakeClock(START))


def started(sf: Surefoot) -> list[str]:
    return sorted(run.id.split(":", 2)[2] for run in sf.store.find_runs(limit=100_000))


# --- daylight saving ----------------------------------------------------------------------------------------------


def occurrences(cron: str, begin: str, end: str, zone: str = "Europe/Berlin") -> list[str]:
    """Occurrences in [begin, end), both UTC, as UTC hours and minutes."""
    schedule = Schedule(
        name="s", workflow="w", version="", arguments=b"", args_digest=b"", queue="q", cron=cron, zone=zone
    )
    first, last = (datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in (begin, end))
    found: list[str] = []
    for at in times_of(schedule)(first - 1):
        if at >= last:
            return found
        found.append(occurrence_name(at)[8:16])
    return found


@pytest.mark.parametrize(
    ("cron", "utc"),
    [
        ("30 2 * * *", ["28T01:30", "29T01:00", "30T00:30"]),  # 02:30 does not exist on the 29th: at 03:00, once
        ("0 3 * * *", ["28T02:00", "29T01:00", "30T01:00"]),
        ("0 2,3 * * *", ["28T01:00", "28T02:00", "29T01:00", "30T00:00", "30T01:00"]),  # both fall on 03:00: one run
        (
            "0 */6 * * *",
            ["28T05:00", "28T11:00", "28T17:00", "28T23:00", "29T04:00", "29T10:00", "29T16:00", "29T22:00"],
        ),
    ],
)
def test_in_spring_a_time_that_does_not_exist_fires_once_after_the_gap(cron: str, utc: list[str]) -> None:
    assert occurrences(cron, "2026-03-28T00:00", "2026-03-30T02:00")[: len(utc)] == utc


@pytest.mark.parametrize(
    ("cron", "utc"),
    [
        ("30 2 * * *", ["24T00:30", "25T00:30", "26T01:30"]),  # 02:30 comes twice on the 25th: the first time only
        ("0 3 * * *", ["24T01:00", "25T02:00", "26T02:00"]),
    ],
)
def test_in_autumn_a_time_that_comes_twice_fires_once(cron: str, utc: list[str]) -> None:
    assert occurrences(cron, "2026-10-24T00:00", "2026-10-26T23:00")[: len(utc)] == utc


@pytest.mark.parametrize("night", ["2026-03-29T00:00", "2026-10-25T00:00"])
def test_a_pattern_that_goes_by_follows_real_time_through_both(night: str) -> None:
    begin = datetime.fromisoformat(night)
    expected = [(begin + timedelta(minutes=30 * n)).isoformat()[8:16] for n in range(10)]
    assert occurrences("*/30 * * * *", night, (begin + timedelta(hours=5)).isoformat()) == expected


@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "*/7 * * * *", "15 2-4 * * *", "0 */2 * * *", "5 1,2,3 * * 0", "* 2 * * *"]
)
@pytest.mark.parametrize("day", ["2026-03-28T12:00", "2026-10-24T12:00"])
def test_wherever_a_worker_begins_to_look_the_occurrences_after_it_rise_and_are_its_own(cron: str, day: str) -> None:
    """A look that begins in the doubled hour may not go back in time, or one occurrence would fire twice."""
    schedule = Schedule(
        name="s", workflow="w", version="", arguments=b"", args_digest=b"", queue="q", cron=cron, zone="Europe/Berlin"
    )
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    times = times_of(schedule)
    whole = list(takewhile(lambda at: at < begin + 86400, times(begin)))
    assert whole == sorted(set(whole))
    for minute in range(0, 24 * 60, 15):
        after = begin + minute * 60
        assert next(times(after)) > after
        assert set(takewhile(lambda at: at < begin + 86400, islice(times(after), 30))) <= set(whole)


# --- policy -------------------------------------------------------------------------------------------------------


def every_minute(catch_up: CatchUp, since: float = 0.0) -> Schedule:
    return Schedule(
        name="s", workflow="w", version="", arguments=b"", args_digest=b"", queue="q", every=60.0, catch_up=catch_up,
        anchor=0.0, fired_until=since,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("catch_up", "now", "fire", "skipped"),
    [
        (CatchUp.NONE, 59.0, [], None),
        (CatchUp.NONE, 60.0, [60.0], None),
        (CatchUp.NONE, 119.0, [60.0], None),
        (CatchUp.NONE, 601.0, [600.0], (60.0, 600.0)),
        (CatchUp.LAST, 601.0, [600.0], (60.0, 600.0)),
        (CatchUp.ALL, 301.0, [60.0, 120.0, 180.0, 240.0, 300.0], None),
    ],
)
def test_what_was_missed_is_skipped_or_made_up_for_as_the_policy_says(
    catch_up: CatchUp, now: float, fire: list[float], skipped: Any
) -> None:
    firing = look(every_minute(catch_up), interval_times(0.0, 60.0), now)
    assert (list(firing.fire), firing.skipped) == (fire, skipped)
    assert firing.next_at == (now // 60 + 1) * 60


def test_a_long_absence_is_made_up_for_up_to_a_cap_that_says_what_it_skipped() -> None:
    year = 366 * 86400.0
    firing = look(every_minute(CatchUp.ALL), interval_times(0.0, 60.0), year)
    assert len(firing.fire) == CATCH_UP_MAX and firing.fire[-1] == year
    assert firing.skipped == (60.0, firing.fire[0])


def test_last_makes_up_for_one_of_a_rare_schedule() -> None:
    daily = Schedule(
        name="s", workflow="w", version="", arguments=b"", args_digest=b"", queue="q", every=86400.0,
        catch_up=CatchUp.LAST, anchor=0.0,
    )  # fmt: skip
    assert look(daily, interval_times(0.0, 86400.0), 10 * 86400.0 + 7200).fire == (10 * 86400.0,)
    skipping = look(every_minute(CatchUp.NONE), interval_times(0.0, 86400.0), 10 * 86400.0 + 7200)
    assert (skipping.fire, skipping.skipped) == ((), (86400.0, 10 * 86400.0 + 7200))


# --- firing -------------------------------------------------------------------------------------------------------


def test_an_occurrence_is_a_queued_run_with_the_id_of_its_instant() -> None:
    with opened() as sf:
        view = sf.schedule("nightly", report, "today", cron="0 3 * * *", tz="Europe/Berlin")
        assert view.next[0].isoformat() == "2027-01-16T02:00:00+00:00"
        assert fire_due(sf.engine, START + 86400) == 0, "skipped: it is hours late"
        assert fire_due(sf.engine, datetime(2027, 1, 17, 2, 0, 1, tzinfo=UTC).timestamp()) == 1
        run = sf.store.find_run("schedule:nightly:2027-01-17T02:00:00Z")
        assert run is not None
        assert (run.status, run.queue, run.workflow) == (RunStatus.PENDING, "default", report.name)
        with sf.worker([report]):
            assert sf.start(report, "today", id=run.id, queue="default").result(20) == "today"
        assert sf.schedules()[0].last_run == run.id


def test_the_same_definition_again_changes_nothing_and_another_counts_from_now() -> None:
    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=60, catch_up="all")
        clock.sleep(600)
        sf.schedule("s", report, "a", every=60, catch_up="all")
        assert fire_due(sf.engine) == 10, "a program that starts again must not lose what was missed"
        clock.sleep(600)
        sf.schedule("s", report, "b", every=60, catch_up="all")
        assert fire_due(sf.engine) == 0
        clock.sleep(60)
        assert fire_due(sf.engine) == 1


def test_a_pause_starts_nothing_and_is_not_made_up_for() -> None:
    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=60, catch_up="all")
        assert sf.pause_schedule("s").next == ()
        clock.sleep(600)
        assert fire_due(sf.engine) == 0
        sf.resume_schedule("s")
        assert fire_due(sf.engine) == 0
        clock.sleep(60)
        assert fire_due(sf.engine) == 1
        sf.unschedule("s")
        clock.sleep(60)
        assert fire_due(sf.engine) == 0 and sf.schedules() == []


def test_two_schedulers_that_saw_the_same_start_an_occurrence_once() -> None:
    from surefoot.runtime.schedules import fire

    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=60)
        clock.sleep(60)
        (seen,) = sf.store.board.find_schedules()
        assert [fire(sf.engine, seen, sf.engine.time()) for _ in range(3)] == [1, 0, 0]
        assert len(started(sf)) == 1


def test_a_scheduler_that_looked_before_a_pause_starts_nothing_after_it() -> None:
    from surefoot.runtime.schedules import fire

    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=60)
        clock.sleep(60)
        (seen,) = sf.store.board.find_schedules()
        sf.pause_schedule("s")
        assert fire(sf.engine, seen, sf.engine.time()) == 0
        assert sf.schedules()[0].paused and started(sf) == []


def test_a_scheduler_that_looked_before_a_new_definition_does_not_fire_the_old_one() -> None:
    from surefoot.runtime.schedules import fire

    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "old", every=60)
        clock.sleep(60)
        (seen,) = sf.store.board.find_schedules()
        sf.schedule("s", report, "new", every=60)
        assert fire(sf.engine, seen, sf.engine.time()) == 0 and started(sf) == []
        clock.sleep(60)
        assert fire_due(sf.engine) == 1
        assert [run.arguments for run in sf.store.find_runs()] != [seen.arguments]


def test_a_schedule_that_is_paused_stays_so_when_it_is_defined_otherwise() -> None:
    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=60)
        sf.pause_schedule("s")
        assert sf.schedule("s", report, "b", every=60).paused
        clock.sleep(60)
        assert fire_due(sf.engine) == 0


def test_a_run_that_exists_is_not_started_again_even_if_the_schedule_forgot() -> None:
    clock = FakeClock(START)
    with opened(clock) as sf:
        for new in (1, 0):
            sf.schedule("s", report, "a", cron="0 9 * * *", catch_up="all")
            clock.time = START + 3600
            assert fire_due(sf.engine) == new
            sf.unschedule("s")
            clock.time = START
            assert sf.cancel("schedule:s:2027-01-15T09:00:00Z").finished
            assert sf.list("pending") == []
        assert started(sf) == ["2027-01-15T09:00:00Z"]


class SteppedClock(FakeClock):
    """A wall clock that people set; nobody can set the lease clock."""

    step = 0.0

    def now(self) -> float:
        return self.time + self.step


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_by_an_hour_loses_and_doubles_nothing(step: float) -> None:
    clock = SteppedClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", cron="*/10 * * * *")
        for second in range(0, 3600, 30):
            clock.step = step if 900 <= second < 2700 else 0.0
            clock.sleep(30)
            fire_due(sf.engine)
        expected = [f"2027-01-15T08:{minute}0:00Z" for minute in range(1, 6)] + ["2027-01-15T09:00:00Z"]
        assert started(sf) == expected


def test_a_worker_fires_by_the_clock_that_nobody_can_set() -> None:
    from surefoot.runtime.schedules import Alarm

    clock = SteppedClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=600)
        clock.step = 3600.0
        assert Alarm(sf.engine).look() == 0, "ten minutes have not passed"
        clock.step = -3600.0
        clock.sleep(600)
        assert Alarm(sf.engine).look() == 1


def test_a_store_clock_that_goes_back_starts_nothing_twice() -> None:
    with opened() as sf:
        sf.schedule("s", report, "a", every=60, catch_up="all")
        assert fire_due(sf.engine, START + 600) == 10
        assert fire_due(sf.engine, START + 300) == 0
        assert [s.fired_until for s in sf.store.board.find_schedules()] == [START + 600]
        assert fire_due(sf.engine, START + 660) == 1


def test_jitter_delays_a_run_by_its_own_share_and_keeps_its_id() -> None:
    clock = FakeClock(START)
    with opened(clock) as sf:
        sf.schedule("s", report, "a", every=60, jitter=30, catch_up="all")
        fire_due(sf.engine, START + 600)
        runs = sf.store.find_runs()
        delays = {run.wake_at - START for run in runs}
        assert len(runs) == len(delays) == 10
        for run in runs:
            number = round((run.wake_at - START) // 60)
            assert 0 <= run.wake_at - START - number * 60 < 30
            assert run.id == run_id_of("s", START + number * 60)


def test_a_cap_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with opened() as sf, caplog.at_level(logging.WARNING, "surefoot"):
        sf.schedule("s", report, "a", every=1, catch_up="all")
        assert fire_due(sf.engine, START + 2000) == CATCH_UP_MAX
        assert "skipped its occurrences from 2027-01-15T08:00:01Z to before 2027-01-15T08:16:41Z" in caplog.text
        skipped = sf.schedules()[0].skipped
        assert skipped is not None and skipped[1].isoformat() == "2027-01-15T08:16:41+00:00"


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cron": "0 0 30 2 *"}, "never fires"),
        ({"cron": "61 * * * *"}, "cannot be read"),
        ({"cron": "@hourly"}, "five fields"),
        ({"cron": "*/5 * * * * *"}, r"\(6 fields\); expected five fields.*for seconds there is every="),
        ({"every": 60, "tz": "Europe/Berlin"}, "tz='Europe/Berlin' belongs to cron="),
        ({"every": 60, "tz": "Europe/Atlantis"}, "belongs to cron="),
        ({"cron": "0 3 * * *", "tz": "Europe/Atlantis"}, "time zone 'Europe/Atlantis'"),
        ({"cron": "0 3 * * *", "every": 60}, "one of them"),
        ({}, "one of them"),
        ({"every": 0}, "every must be 1 to"),
        ({"every": True}, "timedelta or seconds"),
        ({"every": 60, "jitter": -1}, "jitter must be"),
        ({"every": 60, "catch_up": "some"}, '"none", "last" or "all"'),
        ({"every": 60, "queue": ""}, "queue's name"),
    ],
)
def test_what_cannot_fire_is_refused_before_anything_is_written(given: dict[str, Any], said: str) -> None:
    with opened() as sf:
        with pytest.raises(UsageError, match=said):
            sf.schedule("s", report, "a", **given)
        assert sf.schedules() == []


def test_a_leap_day_fires_on_leap_days() -> None:
    with opened() as sf:
        view = sf.schedule("s", report, "a", cron="0 0 29 2 *")
        assert [at.date().isoformat() for at in view.next] == ["2028-02-29", "2032-02-29", "2036-02-29"]


def test_an_unknown_schedule_is_an_error_that_names_the_list() -> None:
    with opened() as sf:
        for ask in (sf.unschedule, sf.pause_schedule, sf.resume_schedule):
            with pytest.raises(UsageError, match="surefoot schedules"):
                ask("nobody")


# --- killed -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clockwork() -> Iterator[ForkServer]:
    with ForkServer(str(Path(__file__).with_name("clockwork.py"))) as server:
        yield server


def test_two_schedulers_killed_at_random_start_each_occurrence_exactly_once(
    clockwork: ForkServer, quick_path: Path
) -> None:
    db, until = str(quick_path / "a.db"), START + 36_000
    defining = clockwork.start("define", db)
    defining.read(30.0)
    assert defining.join() == 0
    dice, kills = random.Random(20261201), 0
    while kills < 30:
        pair = [clockwork.start("look", db, until, dice.choice([20.0, 45.0, 130.0])) for _ in range(2)]
        for scheduler in pair:
            scheduler.read(10.0, until="look")
        pair[0].read(dice.random() * 0.05)
        dead = [scheduler.kill() for scheduler in pair]
        kills += sum(status == -9 for status in dead)
        if 0 in dead:
            break
    assert kills >= 10, "nobody was killed while it fired"
    last = clockwork.start("look", db, until, 600.0)
    last.read(60.0)
    assert last.join() == 0, last.lines
    with Surefoot(db) as sf:
        runs = [run.id for run in sf.store.find_runs(limit=100_000)]
        minutes = {run_id_of("minute", START + 60 * n) for n in range(1, 601)}
        slow = {run_id_of("slow", START + 90 * n) for n in range(1, 401)}
        assert len(runs) == len(set(runs))
        assert set(runs) == minutes | slow
