"""Time and chance are recorded: `now`, `random`, `uuid`, `sleep` say the same on every replay."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import surefoot
from surefoot import Surefoot, UsageError, step, workflow
from tests.runtime.support import Crash, FakeClock, live_and_replayed, live_and_replayed_async, slots


@pytest.mark.parametrize(
    ("ask", "kind"),
    [(surefoot.now, datetime), (surefoot.random, float), (surefoot.uuid, UUID)],
    ids=lambda value: value.__name__,
)
def test_a_choice_is_made_once_and_replayed(db: Path, ask: Any, kind: type) -> None:
    live, replayed = live_and_replayed(db, ask)
    assert type(live) is type(replayed) is kind
    assert live == replayed


@pytest.mark.parametrize("ask", [surefoot.now, surefoot.random, surefoot.uuid], ids=lambda value: value.__name__)
async def test_a_choice_is_made_once_in_async_code_too(db: Path, ask: Any) -> None:
    async def both() -> list[Any]:
        return [ask(), ask()]

    live, replayed = await live_and_replayed_async(db, both)
    assert live == replayed


def test_now_is_aware_and_is_the_surefoots_clock(db: Path, clock: FakeClock) -> None:
    @workflow
    def flow() -> datetime:
        return surefoot.now()

    with Surefoot(db, clock=clock) as sf:
        at = sf.run(flow, id="r")
    assert at == datetime.fromtimestamp(1_800_000_000, UTC) and at.tzinfo is not None


def test_each_use_draws_anew(db: Path) -> None:
    @workflow
    def flow() -> int:
        return len({surefoot.random() for _ in range(20)} | {surefoot.uuid() for _ in range(20)})

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == 40


def test_a_choice_is_on_disk_before_a_later_effect_leaves(db: Path) -> None:
    from tests.runtime.support import recorded_slots

    seen: list[list[str]] = []

    @surefoot.effect(surefoot.keyed(window=3600))
    def send(attempt: surefoot.Attempt, text: str) -> None:
        seen.append(recorded_slots(db))

    @workflow
    def flow() -> None:
        send(f"{surefoot.now()} {surefoot.uuid()}")

    with Surefoot(db) as sf:
        sf.run(flow, id="r")
    assert seen[0][:2] == ["now", "uuid"]


def test_sleep_is_not_begun_anew_after_a_crash(db: Path, clock: FakeClock) -> None:
    crashed: list[bool] = []

    @step
    def work() -> None:
        return None

    @workflow
    def flow() -> str:
        work()
        surefoot.sleep(timedelta(minutes=10))
        if not crashed:
            crashed.append(True)
            raise Crash
        return "awake"

    with Surefoot(db, clock=clock) as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        assert sum(clock.slept) == 600.0
        clock.time -= 200
        assert sf.run(flow, id="r") == "awake"
        assert sum(clock.slept) == 800.0


async def test_sleep_in_async_code_waits_until_the_recorded_time(db: Path, clock: FakeClock) -> None:
    @workflow
    async def flow() -> float:
        before = surefoot.now()
        await surefoot.sleep(90)
        return (surefoot.now() - before).total_seconds()

    async with Surefoot(db, clock=clock) as sf:
        assert await sf.run(flow, id="r") == 90.0


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_a_sleep_without_sense_is_refused(db: Path, bad: float) -> None:
    @workflow
    def flow() -> str:
        with pytest.raises(UsageError, match="sleep"):
            surefoot.sleep(bad)
        return "ok"

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == "ok"
        assert slots(sf, "r") == []


OUTSIDE = [
    surefoot.now,
    surefoot.random,
    surefoot.uuid,
    lambda: surefoot.sleep(1),
    lambda: surefoot.patched("p"),
    lambda: surefoot.gather(),
    lambda: surefoot.map(str, []),
    lambda: surefoot.timeout(1),
]


@pytest.mark.parametrize("ask", OUTSIDE, ids=range(len(OUTSIDE)))
def test_choices_outside_a_workflow_or_inside_a_step_are_refused(db: Path, ask: Any) -> None:
    with pytest.raises(UsageError, match="inside a workflow"):
        ask()

    @step
    def inside() -> str:
        with pytest.raises(UsageError, match="inside a step's body"):
            ask()
        return "refused"

    @workflow
    def flow() -> str:
        return inside()

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == "refused"


async def test_asyncio_sleep_in_a_workflow_is_fine(db: Path) -> None:
    async def ask() -> str:
        await asyncio.sleep(0.001)
        return "slept"

    assert await live_and_replayed_async(db, ask) == ("slept", "slept")
