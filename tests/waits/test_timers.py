"""Timers: never early by the store's clock, whatever the wall clock does; given back, cancelled, raced."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import surefoot
from surefoot import RunCancelled, Surefoot, UsageError, step, workflow
from surefoot.core.lease import Owner
from surefoot.core.run import RunDo, RunStatus
from surefoot.core.writes import CLOCK_ID, ClaimRun, EndRun, KeepClock
from surefoot.runtime import waiting
from surefoot.runtime import waits as choices_of_time
from surefoot.runtime.lease_clock import LeaseClock, TellsTime
from surefoot.stores.memory import MemoryStore
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.crash import abandon
from tests.runtime.support import Crash
from tests.runtime.test_lease_clock import Shared
from tests.waits.support import GIVE_UP_SECONDS, closed_after, until, waits, worker

HOUR = 3600.0


@step
def note(value: Any) -> Any:
    return value


@step
async def note_async(value: Any) -> Any:
    return value


@workflow
def sleeper(seconds: float) -> str:
    surefoot.sleep(seconds)
    return "awake"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every timer gives its run back, so that no test has to wait for long ones."""
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.0)


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, db: str) -> Any:
    return MemoryStore() if request.param == "memory" else db


# --- the clock of timers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_seconds", [HOUR, -HOUR])
def test_a_step_of_the_wall_clock_changes_no_timer(place: Any, step_seconds: float) -> None:
    clock = FakeClock()
    with Surefoot(place, clock=clock) as sf:
        before = clock.lease_now()
        clock.at(100, lambda: clock.shift_wall(step_seconds))
        sf.run(sleeper, 600.0, id="r")
        assert clock.lease_now() - before == pytest.approx(600)


@pytest.mark.parametrize("step_seconds", [HOUR, -HOUR])
def test_a_process_that_starts_after_the_step_waits_no_longer_and_no_shorter(place: Any, step_seconds: float) -> None:
    clock = FakeClock()
    dead = Surefoot(place, clock=clock)
    before = clock.lease_now()

    def die() -> None:
        raise Crash

    clock.at(100, die)
    with pytest.raises(Crash):
        dead.run(sleeper, 600.0, id="r")
    abandon(dead)
    clock.shift_wall(step_seconds)
    with Surefoot(place, clock=clock) as sf:
        assert sf.run(sleeper, 600.0, id="r") == "awake"
    assert clock.lease_now() - before == pytest.approx(600)


@pytest.mark.parametrize("what", ["sleep until", "wait within"])
def test_what_ends_a_wait_is_fixed_when_it_begins_and_no_crash_begins_it_anew(place: Any, what: str) -> None:
    """Code that asks a clock, as it should not, gets another answer in each life; the first one counts."""
    clock = FakeClock()

    @workflow
    def flow() -> str:
        if what == "sleep until":
            surefoot.sleep_until(datetime.fromtimestamp(clock.now() + 600, UTC))
            return "awake"
        try:
            return surefoot.wait_for("go", within=600)
        except TimeoutError:
            return "late"

    dead = Surefoot(place, clock=clock)
    before = clock.lease_now()

    def die() -> None:
        raise Crash

    clock.at(400, die)
    with pytest.raises(Crash):
        dead.run(flow, id="r")
    abandon(dead)
    with Surefoot(place, clock=clock) as sf, closed_after(sf):
        assert sf.run(flow, id="r") in ("awake", "late")
    assert 600 - 1e-3 <= clock.lease_now() - before <= 601


def test_of_two_processes_that_tie_the_clock_at_once_the_first_counts(place: Any) -> None:
    """Both have found nothing; both write: from then on they tell one time."""
    with Surefoot(place) as sf:

        def tie(boot: str, started_at: float) -> float:
            owner = Owner(id=CLOCK_ID, pid=0, host="", boot=boot, started_at=started_at, lease_until=0.0)
            sf.store.transact([KeepClock(owner=owner, stamp=next(sf.engine.stamps))])
            kept = sf.store.read_owner(CLOCK_ID)
            assert kept is not None
            return kept.started_at

        assert [tie("a boot", 100.0), tie("a boot", 200.0), tie("the next", 300.0)] == [100.0, 100.0, 300.0]


def test_all_processes_of_one_boot_tell_one_time_and_the_next_boot_begins_anew(
    db: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    early, late = FakeClock(), FakeClock()
    late.shift_wall(HOUR)
    with Surefoot(db, clock=early) as one:
        first = one.engine.time()
        with Surefoot(db, clock=late) as two:
            assert two.engine.time() == first == early.now()
            assert "was set by 3600 s" in caplog.text
            assert one.store.board.find_owners() == []
    monkeypatch.setattr(SqliteStore, "lease_boot", "another", raising=False)
    store = SqliteStore(db)
    store.lease_boot = "another boot"
    assert LeaseClock(late, store).time() == late.now()
    kept = store.read_owner(CLOCK_ID)
    assert kept is not None and kept.boot == "another boot"
    store.close()


@pytest.mark.parametrize(("there", "back"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (2.0, 5.0)])
def test_nothing_is_due_early_by_a_shared_clock_however_slow_its_answer_was(there: float, back: float) -> None:
    clock = FakeClock()
    store = Shared(clock, ahead=12345.0, there=there, back=back)
    mine, theirs = LeaseClock(clock, store), LeaseClock(clock, store)
    due = mine.due_after(60)
    asked_at = store.truth()
    while theirs.time() < due:
        clock.advance(0.5)
    assert 60 <= store.truth() - asked_at <= 61 + 2 * (there + back)


def test_by_the_clock_of_the_store_no_run_wakes_early(url: str, impatient: None) -> None:
    woken: list[float] = []

    def told(sf: Surefoot) -> float:
        return sf.store.tell_time() if isinstance(sf.store, TellsTime) else sf.engine.time()

    with Surefoot(url) as sf:

        @workflow
        def flow() -> None:
            surefoot.sleep(0.15)
            woken.append(told(sf))
            surefoot.sleep_until(datetime.fromtimestamp(woken[0] + 0.15, UTC))
            woken.append(told(sf))

        begun = told(sf)
        with sf.worker([flow]):
            sf.start(flow, id="r", queue="default").result(30)
        assert woken[0] >= begun + 0.15 and woken[-1] >= woken[0] + 0.15
        assert sf.get("r").claims >= 3, "it was given back for each"


NO_TIMES: tuple[Any, ...] = (None, "3", True, datetime(2026, 1, 1, tzinfo=UTC))


def test_bad_times_are_refused(db: str) -> None:
    @workflow
    def flow() -> list[str]:
        told: list[str] = []
        for bad in (-1, float("inf"), float("nan"), timedelta(seconds=-1), 1e10, timedelta.max, 10**400, *NO_TIMES):
            with pytest.raises(UsageError, match="0 to 100 years, found "):
                surefoot.sleep(bad)
        for naive in (datetime(2026, 1, 1), 5, "tomorrow"):
            with pytest.raises(UsageError, match="time zone"):
                surefoot.sleep_until(naive)  # type: ignore[arg-type]
        for within in (0, -1, float("inf"), float("nan"), 1e300, 10**400, *NO_TIMES[1:]):
            with pytest.raises(UsageError, match=r"within.* more than 0 to 100 years, found "):
                surefoot.wait_for("go", within=within)
            with pytest.raises(UsageError, match=r"within.* more than 0 to 100 years, found "):
                surefoot.approve("x", by="ann", within=within)
        surefoot.sleep_until(datetime(1970, 1, 1, tzinfo=UTC))
        return told

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == []


# --- in every place ---------------------------------------------------------------------------------------------------


def test_threads_that_sleep_give_the_run_back_and_wake_at_the_earliest(url: str, impatient: None) -> None:
    @workflow
    def flow() -> list[str]:
        def nap(seconds: float) -> str:
            surefoot.sleep(seconds)
            return f"slept {seconds}"

        return surefoot.map(nap, [0.1, 0.3, HOUR])

    with worker(url) as sf:
        sf.start(flow, id="r", queue="default")
        run = until(lambda: (run := waits(sf, "r")) and run.wake_at > sf.engine.time() + 60 and run)
        assert len(run.waits) == 1 and run.owner == 0
        sf.cancel("r")
        until(lambda: sf.get("r").status == "cancelled")


@pytest.mark.parametrize("message", [True, False])
def test_of_a_timer_and_a_message_whichever_comes_first_wins(url: str, message: bool, impatient: None) -> None:
    @workflow
    async def flow(seconds: float) -> list[Any]:
        return list(await surefoot.first(surefoot.sleep(seconds), surefoot.wait_for("go")))

    with worker(url) as sf:
        handle = sf.start(flow, HOUR if message else 0.2, id="r", queue="default")
        if message:
            run = until(lambda: waits(sf, "r"))
            assert sorted(wait.kind for wait in run.waits) == ["signal", "timer"] and run.wake_at
            sf.signal("r", "go", "now")
        assert handle.result(30) == ([1, "now"] if message else [0, None])


def test_a_block_with_a_timeout_around_a_wait_ends_on_time_although_its_run_was_given_back(url: str) -> None:
    @workflow
    async def flow() -> list[str]:
        told: list[str] = []
        try:
            async with surefoot.timeout(0.3):
                told.append(await surefoot.wait_for("never"))
        except TimeoutError as late:
            told.append(str(late))
        async with surefoot.timeout(HOUR):
            told.append(await surefoot.wait_for("go"))
        return told

    with worker(url) as sf:
        handle = sf.start(flow, id="r", queue="default")
        run = until(lambda: (run := waits(sf, "r")) and run.waits[0].name == "go" and run)
        assert run.wake_at > sf.engine.time() + 60
        sf.signal("r", "go", "in time")
        assert handle.result(30) == ["surefoot.timeout(0.3) fired", "in time"]


async def test_a_timeout_is_not_begun_anew_by_a_crash(db: str) -> None:
    clock = FakeClock()

    @workflow
    async def flow() -> str:
        try:
            async with surefoot.timeout(600):
                await surefoot.wait_for("never")
        except TimeoutError:
            return "late"
        return "never"

    dead = Surefoot(db, clock=clock)
    before = clock.lease_now()

    def die() -> None:
        raise Crash

    clock.at(400, die)
    with pytest.raises(Crash):
        await dead.run(flow, id="r")
    abandon(dead)
    async with Surefoot(db, clock=clock) as sf:
        assert await asyncio.wait_for(sf.run(flow, id="r"), GIVE_UP_SECONDS) == "late"
    assert 600 <= clock.lease_now() - before <= 601


async def test_a_timer_that_ran_out_while_nobody_was_there_does_not_end_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, store, lives = FakeClock(), MemoryStore(), list[int]()
    asked, decided = list[int](), list[int]()
    record = choices_of_time._record

    async def watched(session: Any, branch: Any, name: str, value: Any) -> Any:
        decided.append(asked.count(2))
        return await record(session, branch, name, value)

    monkeypatch.setattr(choices_of_time, "_record", watched)

    @workflow
    async def flow() -> int:
        async def work() -> None:
            for number in range(60):  # each takes some turns of the event loop, also when it is recorded
                asked.append(len(lives))
                await surefoot.gather(note_async(number), note_async(-number))
            if len(lives) == 1:
                worked.set()
                await asyncio.Event().wait()

        return (await surefoot.first(surefoot.sleep(HOUR), work()))[0]

    worked = asyncio.Event()
    lives.append(1)
    dead = Surefoot(store, clock=clock)
    clock.sleep_async = _never  # type: ignore[method-assign]
    task = asyncio.create_task(dead.run(flow, id="r"))
    await worked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del clock.sleep_async
    clock.advance(2 * HOUR)
    lives.append(2)
    async with Surefoot(store, clock=clock) as sf:
        assert await sf.run(flow, id="r") == 0
        assert sf.get("r").reason == "", "nothing recorded was left unread"
    assert decided == [60], "it was decided before all that is recorded had been asked for"


async def _never(seconds: float) -> None:
    await asyncio.sleep(60)


# --- cancelled --------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_in_a_worker_is_cancelled_at_once(url: str) -> None:
    with worker(url, sleeper) as sf:
        handle = sf.start(sleeper, HOUR, id="r", queue="default")
        until(lambda: waits(sf, "r"))
        sf.cancel("r")
        with pytest.raises(RunCancelled):
            handle.result(30)


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_run_that_sleeps_where_it_is_learns_soon_that_it_was_cancelled(db: str, kind: str) -> None:
    clock = FakeClock()

    @workflow
    async def sleeper_async() -> None:
        await surefoot.sleep(HOUR)

    async with Surefoot(db, clock=clock, lease=86400) as sf, Surefoot(db, clock=clock) as other:
        before = clock.lease_now()
        clock.at(100, lambda: contextvars.Context().run(other.cancel, "r"))
        if kind == "def":
            with pytest.raises(RunCancelled):
                sf.run(sleeper, HOUR, id="r")
        else:
            with pytest.raises(RunCancelled):
                await sf.run(sleeper_async, id="r")
        assert clock.lease_now() - before <= 100 + 2 * waiting.LOOK_SECONDS
        run = sf.store.find_run("r")
        assert run is not None and run.status is RunStatus.CANCELLED


def test_a_run_that_sleeps_where_it_is_learns_soon_that_it_was_taken_over(db: str) -> None:
    """Its process stood still past its lease; another took the run, and ended it: the sleeper does not sleep on."""
    clock = FakeClock()

    def take_and_end() -> None:
        clock.advance(100.0)
        claim = ClaimRun(run_id="r", vantage=other.engine.look(0), why="", stamp=next(other.engine.stamps))
        (answer,) = other.store.transact([claim])
        assert answer.run is not None and answer.run.fence == 2, answer
        stamp = next(other.engine.stamps)
        end = EndRun(run_id="r", fence=2, do=RunDo.SUCCEED, at=1.0, result=b'"by another"', stamp=stamp)
        other.store.transact([end])

    with Surefoot(db, clock=clock, lease=5.0) as sf, Surefoot(db, clock=clock) as other:
        before = clock.lease_now()
        clock.at(100, take_and_end)
        assert sf.run(sleeper, HOUR, id="r") == "by another"
        assert clock.lease_now() - before <= 200 + 2 * waiting.LOOK_SECONDS


def test_a_waiting_run_says_until_when_it_waits(db: str) -> None:
    @workflow
    def far() -> None:
        surefoot.sleep_until(datetime.max.replace(tzinfo=UTC))

    @workflow
    def bounded() -> None:
        surefoot.wait_for("go", within=HOUR)

    with worker(db, far, bounded) as sf:
        sf.start(far, id="far", queue="default")
        sf.start(bounded, id="bounded", queue="default")
        assert until(lambda: waits(sf, "far")).reason == "its timer, due at 9999-12-31 23:59:59 UTC"
        run = until(lambda: waits(sf, "bounded"))
        due = datetime.fromtimestamp(run.waits[0].until, UTC)
        assert run.reason == f"signal 'go', until {due:%Y-%m-%d %H:%M:%S} UTC"
