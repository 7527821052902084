"""Running, resuming, looking and cancelling: what `Surefoot` promises to its callers."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from surefoot import (
    RunBusy,
    RunCancelled,
    RunMismatch,
    RunNotFound,
    Surefoot,
    UsageError,
    keyed,
    step,
    workflow,
)
from surefoot import effect as make_effect
from tests.runtime.support import Crash, restart, slots


def test_the_same_id_returns_the_stored_result_without_running_again(db: Path) -> None:
    ran: list[str] = []

    @workflow
    def greet(name: str) -> str:
        ran.append(name)
        return f"hello {name}"

    with Surefoot(db) as sf:
        assert sf.run(greet, "ada", id="r") == "hello ada"
    with Surefoot(db) as sf:
        assert sf.run(greet, "ada", id="r") == "hello ada"
    assert ran == ["ada"]


def test_a_run_goes_on_where_it_crashed_and_repeats_no_recorded_step(db: Path) -> None:
    ran: list[str] = []
    crashed: list[bool] = []

    @step
    def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    @workflow
    def chain() -> str:
        first = work("a")
        if not crashed:
            crashed.append(True)
            raise Crash
        return first + work("b")

    with Surefoot(db) as sf, pytest.raises(Crash):
        sf.run(chain, id="r")
    with Surefoot(db) as sf:
        assert sf.get("r").status == "pending"
        assert sf.run(chain, id="r") == "AB"
        assert sf.get("r").claims == 2
    assert ran == ["a", "b"]


def test_the_same_id_with_other_arguments_shows_both_and_changes_nothing(db: Path) -> None:
    @workflow
    def pay(amount: int) -> int:
        return amount

    with Surefoot(db) as sf:
        sf.run(pay, 40, id="r")
        before = sf.get("r")
        with pytest.raises(RunMismatch) as caught:
            sf.run(pay, 35, id="r")
        assert '"amount":40' in str(caught.value) and '"amount":35' in str(caught.value)
        assert sf.get("r") == before


def test_the_same_id_for_another_workflow_shows_both(db: Path) -> None:
    @workflow(name="first flow")
    def one() -> None:
        return None

    @workflow(name="second flow")
    def two() -> None:
        return None

    with Surefoot(db) as sf:
        sf.run(one, id="r")
        with pytest.raises(RunMismatch, match=r"(?s)first flow.*second flow"):
            sf.run(two, id="r")


def test_positional_keyword_and_default_arguments_are_the_same_arguments(db: Path) -> None:
    @workflow
    def pay(amount: int, currency: str = "EUR") -> str:
        return f"{amount} {currency}"

    with Surefoot(db) as sf:
        assert sf.run(pay, 1, id="r") == "1 EUR"
        assert sf.run(pay, amount=1, currency="EUR", id="r") == "1 EUR"


def test_a_failed_run_raises_the_same_again(db: Path) -> None:
    ran: list[int] = []

    @workflow
    def fail() -> None:
        ran.append(1)
        raise ValueError("no such order", 7)

    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(ValueError, match="no such order") as caught:
                sf.run(fail, id="r")
            assert caught.value.args == ("no such order", 7)
        view = sf.get("r")
    assert ran == [1]
    assert view.status == "failed" and view.finished and "no such order" in view.reason and view.result is None


def test_get_and_list_show_runs_as_they_stand(db: Path) -> None:
    @workflow
    def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    with Surefoot(db) as sf:
        sf.run(add, 1, 2, id="one")
        sf.run(add, 3, 4, id="two")
        view = sf.get("one")
        assert (view.status, view.arguments, view.result) == ("succeeded", {"a": 1, "b": 2}, {"sum": 3})
        assert view.workflow.endswith("add") and view.claims == 1 and not view.cancel_requested
        assert [run.id for run in sf.list()] == ["two", "one"]
        assert [run.id for run in sf.list("succeeded", limit=1)] == ["two"]
        assert sf.list(["failed", "waiting"]) == []
        with pytest.raises(RunNotFound, match="no run 'none'"):
            sf.get("none")
        with pytest.raises(UsageError, match="unknown status"):
            sf.list("done")


def test_a_handle_gives_the_result_the_status_and_a_way_to_cancel(db: Path) -> None:
    go = threading.Event()

    @step
    def wait() -> None:
        assert go.wait(20)

    @workflow
    def background(n: int) -> int:
        wait()
        wait()
        return n

    with Surefoot(db) as sf:
        handle = sf.start(background, 5, id="r")
        with pytest.raises(TimeoutError):
            handle.result(timeout=0.05)
        assert handle.id == "r" and handle.status() == "running"
        go.set()
        assert handle.result(timeout=20) == 5
        assert handle.status() == "succeeded"
        go.clear()
        handle = sf.start(background, 6, id="r2")
        until(lambda: sf.list("running"))
        handle.cancel()
        go.set()
        with pytest.raises(RunCancelled):
            handle.result(timeout=20)
        assert handle.status() == "cancelled"


def until(claim: Any) -> None:
    """Wait for something that another thread is about to do."""
    for _ in range(2000):
        if claim():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come about in 10 s")


async def test_a_handle_of_an_async_run_is_awaited(db: Path) -> None:
    @step
    async def double(n: int) -> int:
        return 2 * n

    @workflow
    async def flow(n: int) -> int:
        return await double(n)

    async with Surefoot(db) as sf:
        handle = sf.start(flow, 4, id="r")
        with pytest.raises(UsageError, match="await handle"):
            handle.result()
        assert await handle == 8
        assert handle.status() == "succeeded"


def test_start_checks_arguments_before_it_returns(db: Path) -> None:
    @workflow
    def flow(n: int) -> int:
        return n

    with Surefoot(db) as sf:
        with pytest.raises(UsageError):
            sf.start(flow, object(), id="r")
        with pytest.raises(TypeError):
            sf.start(flow, id="r")
        assert sf.list() == []


def test_two_threads_with_one_id_run_it_once_and_get_the_same(db: Path) -> None:
    ran: list[int] = []

    @step
    def work() -> int:
        ran.append(1)
        time.sleep(0.05)
        return len(ran)

    @workflow
    def flow() -> int:
        return work()

    with Surefoot(db) as sf:
        handles = [sf.start(flow, id="r") for _ in range(4)]
        assert [handle.result(20) for handle in handles] == [1, 1, 1, 1]
    assert ran == [1]


def test_a_run_that_is_live_here_is_refused_when_asked_to(db: Path) -> None:
    go, begun = threading.Event(), threading.Event()

    @step
    def wait() -> None:
        begun.set()
        assert go.wait(20)

    @workflow
    def flow() -> None:
        wait()

    with Surefoot(db) as sf:
        handle = sf.start(flow, id="r")
        assert begun.wait(20)
        with pytest.raises(RunBusy, match="refused, not run twice"):
            sf.run(flow, id="r", when_running="refuse")
        with Surefoot(db) as other, pytest.raises(RunBusy, match="process"):
            other.run(flow, id="r", when_running="refuse")
        go.set()
        handle.result(20)


async def test_two_tasks_with_one_id_run_it_once_and_get_the_same(db: Path) -> None:
    ran: list[int] = []
    begun, go = asyncio.Event(), asyncio.Event()

    @step
    async def work() -> int:
        ran.append(1)
        begun.set()
        await asyncio.wait_for(go.wait(), 60)
        return len(ran)

    @workflow
    async def flow() -> int:
        return await work()

    async with Surefoot(db) as sf:
        first = asyncio.create_task(sf.run(flow, id="r"))
        await asyncio.wait_for(begun.wait(), 60)
        with pytest.raises(RunBusy, match="this process"):
            await sf.run(flow, id="r", when_running="refuse")
        second = asyncio.create_task(sf.run(flow, id="r"))
        await asyncio.wait([second], timeout=0.3)  # time enough to do it again, if that were possible
        go.set()
        assert await asyncio.wait_for(asyncio.gather(first, second), 60) == [1, 1]
    assert ran == [1]


async def test_async_with_opens_and_closes(db: Path) -> None:
    @workflow
    async def flow() -> str:
        return "done"

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "done"
    with pytest.raises(UsageError, match="closed"):
        sf.get("r")


def test_closing_twice_is_harmless_and_a_closed_one_refuses_work(db: Path) -> None:
    @workflow
    def flow() -> None:
        return None

    sf = Surefoot(db)
    sf.close()
    sf.close()
    for use in (lambda: sf.run(flow, id="r"), lambda: sf.get("r"), lambda: sf.list(), lambda: sf.cancel("r")):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_methods_and_closures_are_steps_effects_and_workflows(db: Path) -> None:
    class Agent:
        def __init__(self, tone: str) -> None:
            self.tone = tone
            self.calls: list[str] = []

        @step
        def think(self, about: str) -> str:
            self.calls.append("think")
            return f"{self.tone} {about}"

        @make_effect(keyed(window=3600), identity="mail:{to}")
        def mail(self, attempt: Any, to: str, text: str) -> str:
            self.calls.append(attempt.identity)
            return f"{to}: {text}"

        @workflow
        def work(self, to: str) -> str:
            return self.mail(to, self.think("bread"))

        @classmethod
        @step
        def kind(cls) -> str:
            return cls.__name__

        @staticmethod
        @step
        def twice(n: int) -> int:
            return 2 * n

        @workflow
        def others(self) -> list[Any]:
            return [self.kind(), self.twice(4), shout("x")]

    @step
    def shout(text: str) -> str:
        return text.upper() + suffix

    suffix, agent = "!", Agent("fresh")
    with Surefoot(db) as sf:
        assert sf.run(agent.work, "ada", id="r") == "ada: fresh bread"
        assert sf.run(agent.work, "ada", id="r") == "ada: fresh bread"
        assert sf.run(agent.others, id="o") == ["Agent", 8, "X!"]
        assert sf.get("r").arguments == {"to": "ada"}
    assert agent.calls == ["think", "mail:ada"]


def test_loops_in_loops_give_each_use_its_own_slot(db: Path) -> None:
    ran: list[tuple[int, int]] = []

    @step
    def cell(row: int, column: int) -> int:
        ran.append((row, column))
        return row * column

    @workflow
    def table(n: int) -> list[list[int]]:
        out = [[cell(row, column) for column in range(n)] for row in range(n)]
        if len(ran) == 9:
            ran.append((9, 9))
            raise Crash
        return out

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(table, 3, id="r")
        assert sf.run(table, 3, id="r") == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
        assert len(set(slots(sf, "r"))) == 9
    assert len(ran) == 10


def test_one_surefoot_serves_several_event_loops_in_turn_and_at_once(db: Path) -> None:
    @step
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @workflow
    async def flow(n: int) -> int:
        return sum(await asyncio.gather(*(work(i) for i in range(n))))

    with Surefoot(db) as sf:
        assert asyncio.run(sf.run(flow, 3, id="a")) == 3
        assert asyncio.run(sf.run(flow, 4, id="b")) == 6
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda i=i: results.append(asyncio.run(sf.run(flow, 5, id=f"t{i}"))))
            for i in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert results == [10, 10, 10]


def test_an_event_loop_inside_a_step_or_a_def_workflow_works(db: Path) -> None:
    ran: list[int] = []

    @step
    async def work(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0)
        return n

    @step
    def inside() -> int:
        async def two() -> int:
            return sum(await asyncio.gather(work.function(1), work.function(2)))

        return asyncio.run(two())

    @workflow
    def flow() -> int:
        async def both() -> int:
            return await work(10) + await work(20)

        out = inside() + asyncio.run(both())
        if len(ran) == 4:
            ran.append(0)
            raise Crash
        return out

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        assert sf.run(flow, id="r") == 33
    assert ran == [1, 2, 10, 20, 0]


def test_outside_a_run_a_step_is_a_plain_call() -> None:
    @step
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(1) == 2 and add(1, b=5) == 6 and add.__name__ == "add"


def test_a_step_inside_a_step_is_a_plain_call(db: Path) -> None:
    @step
    def inner() -> int:
        return 1

    @step
    def outer() -> int:
        return inner() + inner()

    @workflow
    def flow() -> int:
        return outer()

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == 2
        assert [slot.rpartition(".")[2] for slot in slots(sf, "r")] == ["outer"]


def test_ignored_parameters_stay_out_of_the_record_and_arrive_alive(db: Path) -> None:
    client = object()

    @step(ignore=("client",))
    def fetch(client: object, url: str) -> str:
        assert client is not None
        return url

    @workflow(ignore=("client",))
    def flow(client: object, url: str) -> str:
        return fetch(client, url)

    with Surefoot(db) as sf:
        assert sf.run(flow, client, "u", id="r") == "u"
        assert sf.get("r").arguments == {"url": "u"}


def test_a_workflow_decorated_again_is_the_same_workflow(db: Path) -> None:
    for _ in range(2):

        @workflow
        def flow() -> int:
            return 1

        with Surefoot(db) as sf:
            assert sf.run(flow, id="r") == 1
    restart()
