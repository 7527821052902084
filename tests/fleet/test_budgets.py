"""Budgets: counted in the journal, kept over restarts; a run that passes one stops as failed, and sends nothing new."""

from __future__ import annotations

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Budget, BudgetExceeded, NotSent, Surefoot, UsageError, effect, keyed, opaque, spend, step, workflow
from surefoot.core.effect import Status
from surefoot.core.meter import Used
from surefoot.core.run import RunStatus
from surefoot.testing.forkserver import ForkServer
from tests.runtime.support import Crash, FakeClock, restart

SENT: list[str] = []


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Any:
    restart()
    SENT.clear()
    yield
    restart()


@step
def think(tokens: int, money: str = "0") -> int:
    SENT.append("think")
    spend(tokens=tokens, money=Decimal(money))
    return tokens


@effect(keyed(window=86400))
def act(attempt: Any, name: str, tokens: int = 0) -> str:
    SENT.append(name)
    spend(tokens=tokens)
    return name


@act.compensate
@effect(keyed(window=86400))
def unact(attempt: Any, name: str) -> None:
    SENT.append(f"undo {name}")


def used(sf: Surefoot, run_id: str = "r") -> Used:
    read = sf.store.read_run(run_id)
    assert read is not None
    return Used(read[1])


def loop(count: int = 100) -> Any:
    @workflow(name="loop")
    def looping(tokens: int, money: str) -> int:
        for turn in range(count):
            try:
                think(tokens, money)
                act(f"turn {turn}")
            except Exception:
                SENT.append("swallowed")
        return count

    return looping


# --- each limit stops it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "limit", "thoughts", "acts"),
    [
        (Budget(attempts=5), "attempts", 3, 2),
        (Budget(tokens=25), "tokens", 3, 2),
        (Budget(money=Decimal("0.25")), "money", 3, 2),
    ],
)
def test_a_run_that_passes_its_budget_stops_as_failed_whatever_its_code_swallows(
    budget: Budget, limit: str, thoughts: int, acts: int
) -> None:
    with Surefoot("memory:") as sf:
        with pytest.raises(BudgetExceeded) as caught:
            sf.run(loop(), 10, "0.10", id="r", budget=budget)
        assert caught.value.limit == limit and caught.value.run_id == "r"
        assert SENT.count("think") == thoughts and len(SENT) == thoughts + acts
        view = sf.get("r")
        assert view.status is RunStatus.FAILED and limit in view.reason
        with pytest.raises(BudgetExceeded) as again:
            sf.run(loop(), 10, "0.10", id="r")
        assert str(again.value) == str(caught.value)
        assert len(SENT) == thoughts + acts


def test_what_is_within_its_budget_ends_as_ever_to_the_last_attempt_and_token() -> None:
    with Surefoot("memory:") as sf:
        budget = Budget(attempts=6, tokens=30, money=Decimal("0.30"), wall=timedelta(hours=1))
        assert sf.run(loop(3), 10, "0.10", id="r", budget=budget) == 3
        seen = used(sf)
        assert (seen.attempts, seen.tokens, seen.money) == (6, 30, Decimal("0.30"))


def test_retries_of_steps_and_effects_are_attempts() -> None:
    tries: list[int] = []

    @step(retries=2)
    def fragile() -> None:
        tries.append(1)
        raise OSError

    @effect(keyed(window=86400))
    def reluctant(attempt: Any) -> None:
        tries.append(2)
        if tries.count(2) < 3:
            raise NotSent

    @workflow
    def work() -> None:
        reluctant()
        fragile()

    with Surefoot("memory:", clock=FakeClock()) as sf:
        with pytest.raises(BudgetExceeded, match="attempts 6, allowed 5"):
            sf.run(work, id="r", budget=Budget(attempts=5))
        assert tries == [2, 2, 2, 1, 1]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_wall_time_counts_from_creation_waiting_included(kind: str) -> None:
    clock = FakeClock()

    @workflow
    def work() -> None:
        act("before")
        surefoot.sleep(3600)
        act("after")

    @workflow
    async def work_async() -> None:
        act("before")
        await surefoot.sleep(3600)
        act("after")

    async def main() -> None:
        await sf.run(work_async, id="r", budget=Budget(wall=61))

    with Surefoot("memory:", clock=clock) as sf:
        begun = clock.time
        with pytest.raises(BudgetExceeded, match="wall time"):
            sf.run(work, id="r", budget=Budget(wall=61)) if kind == "def" else asyncio.run(main())
        assert SENT == ["before"]
        assert 61 <= clock.time - begun < 61.1, "it waits no longer than its budget"


def test_a_queued_run_that_waits_is_woken_by_the_end_of_its_wall_time(tmp_path: Path) -> None:
    @workflow
    def work() -> None:
        surefoot.wait_for("never")

    with Surefoot(tmp_path / "a.db") as sf, sf.worker([work]):
        handle = sf.start(work, id="r", queue="default", budget=Budget(wall=0.5))
        with pytest.raises(BudgetExceeded, match="wall time"):
            handle.result(20)


def test_a_wall_clock_that_is_set_neither_ends_nor_extends_it() -> None:
    class SteppedClock(FakeClock):
        step = 0.0

        def now(self) -> float:
            return self.time + self.step

    clock = SteppedClock()

    @workflow
    def work() -> str:
        think(1)
        clock.step = 7200.0
        return act("sent")

    with Surefoot("memory:", clock=clock) as sf:
        assert sf.run(work, id="r", budget=Budget(wall=3600)) == "sent"


def test_the_workflow_has_a_budget_of_its_own_which_a_call_replaces() -> None:
    @workflow(budget=Budget(attempts=1))
    def work() -> None:
        think(1)
        think(2)

    with Surefoot("memory:") as sf:
        with pytest.raises(BudgetExceeded):
            sf.run(work, id="r")
        sf.run(work, id="s", budget=Budget(attempts=2))


# --- restarts -----------------------------------------------------------------------------------------------------


def test_a_restart_forgets_nothing_and_counts_nothing_twice() -> None:
    crashes = [3, 5, 7]

    @workflow
    def work() -> None:
        for turn in range(1, 100):
            spend(tokens=1)
            think(9)
            if turn in crashes:
                crashes.remove(turn)
                raise Crash

    with Surefoot("memory:") as sf:
        for _ in range(3):
            with pytest.raises(Crash):
                sf.run(work, id="r", budget=Budget(tokens=100))
        assert used(sf).tokens == 70
        with pytest.raises(BudgetExceeded, match="tokens 101, allowed 100"):
            sf.run(work, id="r")
        assert SENT.count("think") == 10


def test_what_a_killed_step_had_spent_stays_spent(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    with ForkServer(str(Path(__file__).with_name("spender.py"))) as server:
        for number in range(1, 4):
            killed = server.start("run", db)
            killed.read(20.0, until="spent")
            assert killed.kill() == -signal.SIGKILL
            with Surefoot(db) as sf:
                assert (used(sf).tokens, used(sf).attempts) == (10 * number, 0)
        last = server.start("run", db)
        last.read(20.0)
        assert last.join() == 0
        assert last.said("exceeded") == "tokens 40"


def test_wall_time_goes_on_counting_over_a_restart() -> None:
    clock, lives = FakeClock(), list[int]()

    @workflow
    def work() -> None:
        lives.append(1)
        think(1)
        clock.sleep(40)
        if len(lives) == 1:
            raise Crash
        act("never")

    with Surefoot("memory:", clock=clock) as sf:
        with pytest.raises(Crash):
            sf.run(work, id="r", budget=Budget(wall=60))
        with pytest.raises(BudgetExceeded, match="wall time"):
            sf.run(work, id="r")
        assert SENT == ["think"]


def test_what_may_have_happened_is_found_out_although_the_budget_is_spent() -> None:
    """The process died after the request left: the repeat under the same key begins nothing new."""
    clock = FakeClock()

    @effect(keyed(window=86400))
    def dear(attempt: Any) -> str:
        SENT.append(attempt.key)
        if len(SENT) == 1:
            raise Crash
        return "done"

    @workflow
    def work() -> None:
        dear()
        act("never")

    with Surefoot("memory:", clock=clock) as sf:
        with pytest.raises(Crash):
            sf.run(work, id="r", budget=Budget(wall=60))
        clock.sleep(100)
        with pytest.raises(BudgetExceeded):
            sf.run(work, id="r")
        assert len(SENT) == 2 and len(set(SENT)) == 1
        assert [e.status for e in sf.store.find_effects()] == [Status.CONFIRMED]


# --- how it stops -------------------------------------------------------------------------------------------------


def test_an_effect_that_passes_the_budget_is_recorded_as_confirmed_first() -> None:
    @workflow
    def work() -> None:
        act("dear", 100)
        act("never")

    with Surefoot("memory:") as sf:
        with pytest.raises(BudgetExceeded):
            sf.run(work, id="r", budget=Budget(tokens=50))
        assert SENT == ["dear"]
        assert [e.status for e in sf.store.find_effects()] == [Status.CONFIRMED]


def test_what_is_parked_stays_parked_and_the_run_ends_all_the_same() -> None:
    @effect(opaque())
    def blind(attempt: Any) -> None:
        raise TimeoutError

    @workflow
    def work() -> None:
        blind.outcome()
        think(100)
        act("never")

    with Surefoot("memory:", clock=FakeClock()) as sf:
        with pytest.raises(BudgetExceeded):
            sf.run(work, id="r", budget=Budget(tokens=50))
        assert SENT == ["think"]
        assert [e.status for e in sf.store.find_effects()] == [Status.PARKED]
        assert sf.get("r").status is RunStatus.FAILED


def test_a_run_that_waits_for_a_person_waits_no_longer_than_its_wall_time(tmp_path: Path) -> None:
    @effect(opaque())
    def blind(attempt: Any) -> None:
        SENT.append("blind")
        raise TimeoutError

    @workflow
    def work() -> None:
        blind()

    with Surefoot(tmp_path / "a.db") as sf, sf.worker([work]):
        handle = sf.start(work, id="r", queue="default", budget=Budget(wall=0.5))
        with pytest.raises(BudgetExceeded, match="wall time"):
            handle.result(20)
        assert SENT == ["blind"]
        assert [e.status for e in sf.store.find_effects()] == [Status.PARKED]


def test_what_failed_by_its_budget_is_undone_if_the_workflow_says_so() -> None:
    @workflow(compensate=True)
    def work() -> None:
        act("one")
        act("two")
        think(100)

    with Surefoot("memory:") as sf:
        with pytest.raises(BudgetExceeded):
            sf.run(work, id="r", budget=Budget(tokens=50, attempts=3))
        assert SENT == ["one", "two", "think", "undo two", "undo one"]


def test_a_report_from_a_thread_of_its_own_is_counted_or_refused_and_never_lost() -> None:
    """A pool in a step's body: with the context it counts, without it nobody would know whose it is."""
    told: list[str] = []

    @step
    def think_side_by_side() -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, lambda: spend(tokens=60)).result()
            with pytest.raises(UsageError, match="nobody's budget would count it"):
                pool.submit(lambda: spend(tokens=60)).result()
        told.append("refused")

    @workflow
    def work() -> None:
        think_side_by_side()
        think(100)

    with Surefoot("memory:") as sf:
        with pytest.raises(BudgetExceeded) as exceeded:
            sf.run(work, id="r", budget=Budget(tokens=150))
        assert (told, exceeded.value.used) == (["refused"], "160")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: spend(tokens=60)).result()  # outside of any run it does nothing


def test_children_stop_with_a_parent_that_passes_its_budget(tmp_path: Path) -> None:
    @workflow(name="child")
    def child() -> None:
        surefoot.wait_for("never")

    @workflow
    def work() -> None:
        surefoot.start_child(child, id="c")
        think(100)

    with Surefoot(tmp_path / "a.db") as sf:
        with pytest.raises(BudgetExceeded):
            sf.run(work, id="r", budget=Budget(tokens=50))
        give_up = time.monotonic() + 20
        while not sf.get("c").finished and time.monotonic() < give_up:
            time.sleep(0.005)
        assert sf.get("c").status is RunStatus.CANCELLED


@pytest.mark.parametrize("swallow", [True, False])
def test_async_workflows_stop_alike(swallow: bool) -> None:
    @step
    async def dream(tokens: int) -> None:
        SENT.append("dream")
        spend(tokens=tokens)

    @workflow
    async def work() -> None:
        for _ in range(10):
            try:
                await surefoot.gather(dream(10), dream(10))
            except BaseException:
                if not swallow:
                    raise

    with Surefoot("memory:") as sf:
        with pytest.raises(BudgetExceeded):
            asyncio.run(sf.run(work, id="r", budget=Budget(tokens=50)))
        assert 5 <= SENT.count("dream") <= 6


# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"attempts": 0},
        {"attempts": True},
        {"tokens": -1},
        {"tokens": 1.5},
        {"wall": 0},
        {"wall": timedelta(seconds=-1)},
        {"wall": 1e300},
        {"money": 0.5},
        {"money": "much"},
        {"money": Decimal(0)},
        {"money": Decimal("NaN")},
        {"attempts": 1, "currency": ""},
    ],
)
def test_a_limit_that_lets_nothing_through_or_cannot_be_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="budget"):
        Budget(**limits)


def test_what_is_no_budget_and_no_amount_is_refused() -> None:
    with Surefoot("memory:") as sf:
        with pytest.raises(UsageError, match=r"takes a surefoot\.Budget"):
            sf.run(loop(), 1, "0", id="r", budget=5)  # pyright: ignore[reportCallIssue]
        assert sf.list() == []
    for given in ({"tokens": -1}, {"money": 0.1}, {"money": Decimal("-1")}):
        with pytest.raises(UsageError, match="spend"):
            spend(**given)  # pyright: ignore[reportArgumentType]
    spend(tokens=5)  # outside a run: a plain call, as of a step
