"""Compensation: a new effect that undoes a confirmed one, once, in reverse order, and after a crash no second time."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import (
    Attempt,
    Confirmed,
    Refused,
    RunWaiting,
    Surefoot,
    UsageError,
    effect,
    keyed,
    opaque,
    step,
    workflow,
)
from surefoot.core.effect import Do, Status
from tests.runtime.support import Crash, decide, slots

KEYED = keyed(window=3600)
LOG: list[str] = []
KEYS: list[str] = []


@effect(KEYED, name="book")
def book(attempt: Attempt, what: str) -> dict[str, str]:
    LOG.append(f"book {what}")
    return {"what": what}


@book.compensate
def _(attempt: Attempt, receipt: dict[str, str]) -> str:
    LOG.append(f"undo {receipt['what']}")
    KEYS.append(attempt.key)
    return "undone"


@effect(KEYED, name="book async")
async def book_async(attempt: Attempt, what: str, delay: float = 0.0) -> dict[str, str]:
    await asyncio.sleep(delay)
    LOG.append(f"book {what}")
    return {"what": what}


@book_async.compensate
async def _(attempt: Attempt, receipt: dict[str, str]) -> None:
    LOG.append(f"undo {receipt['what']}")


@step(name="fail")
def fail() -> None:
    raise ValueError("no seats")


@pytest.fixture(autouse=True)
def _an_empty_log() -> None:
    LOG.clear()
    KEYS.clear()


def test_a_failed_run_undoes_its_effects_in_reverse_order_and_raises_its_failure(db: Path) -> None:
    @workflow(compensate=True)
    def trip() -> None:
        book("train")
        book("hotel")
        fail()

    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(ValueError, match="no seats"):
                sf.run(trip, id="r")
        assert sf.get("r").status == "failed"
        found = {e.name: e.status for e in sf.store.find_effects()}
    assert LOG == ["book train", "book hotel", "undo hotel", "undo train"]
    assert found == {"book": Status.COMPENSATED, "compensate:book": Status.CONFIRMED} and len(set(KEYS)) == 2


async def test_an_async_run_does_too(db: Path) -> None:
    @workflow(compensate=True)
    async def trip() -> None:
        await book_async("train")
        await book_async("hotel")
        fail()

    async with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(ValueError, match="no seats"):
                await sf.run(trip, id="r")
    assert LOG == ["book train", "book hotel", "undo hotel", "undo train"]


def test_a_run_that_succeeds_undoes_nothing(db: Path) -> None:
    @workflow(compensate=True)
    def trip() -> dict[str, str]:
        return book("train")

    with Surefoot(db) as sf:
        assert sf.run(trip, id="r") == {"what": "train"}
    assert LOG == ["book train"]


def test_without_the_word_nothing_is_undone(db: Path) -> None:
    @workflow
    def trip() -> None:
        book("train")
        fail()

    with Surefoot(db) as sf, pytest.raises(ValueError, match="no seats"):
        sf.run(trip, id="r")
    assert LOG == ["book train"]


def test_what_was_refused_is_not_undone(db: Path) -> None:
    @effect(KEYED, name="strict")
    def strict(attempt: Attempt) -> None:
        raise Refused("full")

    @strict.compensate
    def _(attempt: Attempt, receipt: None) -> None:
        LOG.append("undo strict")

    @workflow(compensate=True)
    def trip() -> None:
        book("train")
        strict()

    with Surefoot(db) as sf, pytest.raises(Refused, match="full"):
        sf.run(trip, id="r")
    assert LOG == ["book train", "undo train"]


def test_a_crash_in_the_middle_of_undoing_undoes_the_rest_and_nothing_twice(db: Path) -> None:
    crashed: list[bool] = []

    @effect(KEYED, name="fragile")
    def fragile(attempt: Attempt, what: str) -> str:
        LOG.append(f"book {what}")
        return what

    @fragile.compensate
    def _(attempt: Attempt, receipt: str) -> None:
        if receipt == "b" and not crashed:
            crashed.append(True)
            raise Crash
        LOG.append(f"undo {receipt}")

    @workflow(compensate=True)
    def trip() -> None:
        for what in "abc":
            fragile(what)
        fail()

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(trip, id="r")
        assert sf.get("r").status == "pending"
        with pytest.raises(ValueError, match="no seats"):
            sf.run(trip, id="r")
        assert {e.status for e in sf.store.find_effects() if e.name == "fragile"} == {Status.COMPENSATED}
    assert LOG == ["book a", "book b", "book c", "undo c", "undo b", "undo a"]


async def test_undoing_branches_does_not_depend_on_who_finished_first(db: Path) -> None:
    """Live the second branch was confirmed first; on replay the first is. The order of undoing has to stay."""
    crashed: list[bool] = []

    @effect(KEYED, name="racing")
    async def racing(attempt: Attempt, n: int, delay: float) -> int:
        await asyncio.sleep(delay)
        LOG.append(f"book {n}")
        return n

    @racing.compensate
    async def _(attempt: Attempt, receipt: int) -> None:
        if len([line for line in LOG if "undo" in line]) == 1 and not crashed:
            crashed.append(True)
            raise Crash
        LOG.append(f"undo {receipt}")

    @workflow(compensate=True)
    async def trip() -> None:
        await asyncio.gather(racing(0, 0.04), racing(1, 0.02), racing(2, 0.0))
        fail()

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(trip, id="r")
        with pytest.raises(ValueError, match="no seats"):
            await sf.run(trip, id="r")
    assert sorted(LOG) == ["book 0", "book 1", "book 2", "undo 0", "undo 1", "undo 2"]


async def test_an_effect_in_doubt_is_settled_first_and_then_undone(db: Path) -> None:
    """A sibling failed while it was being sent: it turns out to have happened, so it has to be undone."""
    tries: list[int] = []

    @effect(KEYED, name="slow")
    async def slow(attempt: Attempt) -> str:
        tries.append(attempt.number)
        if len(tries) == 1:
            LOG.append("book slow")
            await asyncio.sleep(5)
        return "slow"

    @slow.compensate
    async def _(attempt: Attempt, receipt: str) -> None:
        LOG.append(f"undo {receipt}")

    @step(name="fail later")
    async def fail_later() -> None:
        await asyncio.sleep(0.05)
        raise ValueError("no seats")

    @workflow(compensate=True, raises=ExceptionGroup)
    async def trip() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(fail_later())

    async with Surefoot(db) as sf:
        with pytest.raises(Exception, match=r"no seats|sub-exception"):
            await sf.run(trip, id="r")
        assert {e.name: e.status for e in sf.store.find_effects()}["slow"] is Status.COMPENSATED
    assert LOG == ["book slow", "undo slow"]


def test_an_undo_in_doubt_waits_for_a_person_and_then_the_rest_is_undone(db: Path) -> None:
    @effect(KEYED, name="risky")
    def risky(attempt: Attempt) -> str:
        LOG.append("book risky")
        return "risky"

    @risky.compensate(contract=opaque())
    def _(attempt: Attempt, receipt: str) -> None:
        LOG.append(f"undo {receipt}")
        raise TimeoutError

    @workflow(compensate=True)
    def trip() -> None:
        book("train")
        risky()
        fail()

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting, match="compensate:risky"):
            sf.run(trip, id="r")
        (parked,) = sf.store.find_effects([Status.PARKED])
        decide(sf, parked, Do.HAPPENED, receipt=b"null")
        with pytest.raises(ValueError, match="no seats"):
            sf.run(trip, id="r")
        assert {e.status for e in sf.store.find_effects() if not e.compensates} == {Status.COMPENSATED}
    assert LOG == ["book train", "book risky", "undo risky", "undo train"]


def test_compensate_by_hand_undoes_once_ever(db: Path) -> None:
    crashed: list[bool] = []

    @workflow
    def trip() -> list[Any]:
        held = book.outcome("train")
        assert isinstance(held, Confirmed)
        out = [surefoot.compensate(held)]
        if not crashed:
            crashed.append(True)
            raise Crash
        return [*out, surefoot.compensate(held)]

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(trip, id="r")
        assert sf.run(trip, id="r") == ["undone", "undone"]
        assert any("compensate:book" in slot for slot in slots(sf, "r"))
    assert LOG == ["book train", "undo train"]


def test_compensate_outside_a_run(db: Path) -> None:
    @effect(KEYED, identity="seat:{n}", name="seat")
    def seat(attempt: Attempt, n: int) -> int:
        return n

    @seat.compensate
    def _(attempt: Attempt, receipt: int) -> None:
        LOG.append(f"undo {receipt}")

    with Surefoot(db) as sf:
        held = seat.outcome(4)
        assert isinstance(held, Confirmed)
        surefoot.compensate(held)
        surefoot.compensate(held)
        assert {e.status for e in sf.store.find_effects() if e.name == "seat"} == {Status.COMPENSATED}
    assert LOG == ["undo 4"]


def test_a_compensation_that_needs_an_instance_is_refused_when_it_is_made() -> None:
    class Desk:
        @effect(keyed(60), identity="desk:{n}", name="desk")
        def book(self, attempt: Attempt, n: int) -> int:
            return n

    with pytest.raises(UsageError, match="instance is not recorded"):

        @Desk.book.compensate
        def _(self: Any, attempt: Attempt, receipt: int) -> None: ...


def test_a_compensation_that_takes_more_than_the_receipt_is_refused_when_it_is_made() -> None:
    """Else it would be known only when something has to be undone, and then nothing would be."""

    @effect(KEYED, name="take")
    def take(attempt: Attempt, n: int) -> int:
        return n

    with pytest.raises(UsageError, match=r"the compensation of 'take' is called as \(attempt, receipt\).*'n'"):

        @take.compensate
        def _(attempt: Attempt, receipt: int, n: int) -> None: ...

    with pytest.raises(UsageError, match="called as"):

        @take.compensate
        def _(attempt: Attempt) -> None: ...

    @take.compensate
    def _(attempt: Attempt, receipt: int, note: str = "undone") -> None: ...


def test_an_async_compensation_runs_in_a_def_workflow_too(db: Path) -> None:
    @effect(KEYED, name="take")
    def take(attempt: Attempt, n: int) -> int:
        return n

    @take.compensate
    async def _(attempt: Attempt, receipt: int) -> None:
        await asyncio.sleep(0)
        LOG.append(f"undo {receipt}")

    @workflow(compensate=True)
    def trip() -> None:
        take(1)
        held = take.outcome(2)
        assert isinstance(held, Confirmed)
        surefoot.compensate(held)
        take(3)
        raise ValueError("no seats")

    with Surefoot(db) as sf:
        with pytest.raises(ValueError, match="no seats"):
            sf.run(trip, id="r")
        assert {e.status for e in sf.store.find_effects() if e.name == "take"} == {Status.COMPENSATED}
    assert LOG == ["undo 2", "undo 3", "undo 1"]


def test_what_cannot_be_undone_says_so(db: Path) -> None:
    @effect(KEYED, identity="x:{n}", name="final")
    def final(attempt: Attempt, n: int) -> int:
        return n

    with Surefoot(db):
        held = final.outcome(1)
        assert isinstance(held, Confirmed)
        with pytest.raises(UsageError, match=r"no compensation; register one with @final\.compensate"):
            surefoot.compensate(held)
        with pytest.raises(UsageError, match="no effect named"):
            surefoot.compensate(Confirmed(receipt=1, effect="0" * 32, name="nobody"))


def test_compensate_undoes_by_the_effect_that_was_confirmed_and_by_no_namesake(db: Path) -> None:
    """Two modules may each have an effect `send`. The undo of the other one would be another action in the world."""

    def module(where: str) -> Any:
        @effect(KEYED, identity=f"{where}:{{n}}", name="send")
        def send(attempt: Attempt, n: int) -> int:
            return n

        @send.compensate
        def _(attempt: Attempt, receipt: int) -> None:
            LOG.append(f"undo at {where}")

        return send

    with Surefoot(db):
        here = module("here")
        with contextlib.suppress(UsageError):  # to refuse the second name would do as well
            module("there")
        surefoot.compensate(here.outcome(1))
    assert LOG == ["undo at here"]
