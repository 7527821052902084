"""Steps in threads: the context is carried over and they are recorded, or an error says how to carry it."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from surefoot import Attempt, Surefoot, UsageError, effect, keyed, step, workflow
from tests.runtime.support import Crash, slots


@step
def work(n: int) -> int:
    return n * n


async def test_to_thread_carries_the_run_along(db: Path) -> None:
    ran: list[str] = []
    crashed: list[bool] = []

    @step
    def blocking(n: int) -> str:
        ran.append(threading.current_thread().name)
        return f"{n}"

    @workflow
    async def flow() -> list[str]:
        alone = await asyncio.to_thread(blocking, 0)
        many = await asyncio.gather(*(asyncio.to_thread(blocking, n) for n in (1, 2, 3)))
        if not crashed:
            crashed.append(True)
            raise Crash
        return [alone, *many]

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        assert await sf.run(flow, id="r") == ["0", "1", "2", "3"]
        assert len(set(slots(sf, "r"))) == 4
    assert len(ran) == 4 and threading.main_thread().name not in ran


def test_a_copied_context_carries_the_run_along(db: Path) -> None:
    @workflow
    def flow() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(contextvars.copy_context().run, work, 3).result()

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == 9
        assert slots(sf, "r") == ["work"]


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_a_pool_without_context_is_an_error_that_says_how(db: Path, kind: str) -> None:
    ran: list[int] = []

    @step
    def inside() -> None:
        ran.append(1)

    @effect(keyed(window=3600), identity="fixed")
    def send(attempt: Attempt) -> None:
        ran.append(1)

    @workflow
    def flow() -> str:
        with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError) as caught:
            pool.submit(inside if kind == "step" else send).result()
        return str(caught.value)

    with Surefoot(db) as sf:
        told = sf.run(flow, id="r")
        assert "does not know of any run" in told and "surefoot.gather" in told and "copy_context" in told
        assert slots(sf, "r") == [] and sf.store.find_effects() == []
    assert ran == []


def test_a_bare_thread_is_an_error_too(db: Path) -> None:
    errors: list[BaseException] = []

    @workflow
    def flow() -> None:
        def inside() -> None:
            try:
                work(1)
            except UsageError as error:
                errors.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()

    with Surefoot(db) as sf:
        sf.run(flow, id="r")
    assert len(errors) == 1 and "asyncio.to_thread" in str(errors[0])


def test_two_threads_in_one_branch_are_refused_by_name(db: Path) -> None:
    inside, go = threading.Event(), threading.Event()

    @step
    def slow() -> int:
        inside.set()
        assert go.wait(20)
        return 1

    @workflow
    def flow() -> int:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(contextvars.copy_context().run, slow)
            assert inside.wait(20)
            with pytest.raises(UsageError, match=r"in flight in the same branch.*surefoot\.gather"):
                work(1)
            go.set()
            return other.result() + work(2)

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == 5
        assert [slot.rpartition(".")[2] for slot in slots(sf, "r")] == ["slow", "work"]


def test_a_step_in_a_thread_of_other_code_is_a_plain_call_when_no_run_is_live() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work, 4).result() == 16


def test_many_threads_commit_side_by_side_and_nothing_is_lost(db: Path) -> None:
    @workflow
    def flow(base: int) -> int:
        return sum(work(base + n) for n in range(25))

    with Surefoot(db) as sf:
        handles = [sf.start(flow, 100 * t, id=f"r{t}") for t in range(8)]
        got = [handle.result(60) for handle in handles]
        assert got == [sum((100 * t + n) ** 2 for n in range(25)) for t in range(8)]
        assert all(len(slots(sf, f"r{t}")) == 25 for t in range(8))
