"""Work side by side: a branch's path is fixed when it is created, so finishing order never matters."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Attempt, Surefoot, UsageError, effect, keyed, step, workflow
from tests.runtime.support import Crash, Ledger, slots

SHAPES = ["asyncio.gather", "TaskGroup", "surefoot.gather", "surefoot.map", "create_task", "wait"]


async def side_by_side(shape: str, work: Callable[[int], Any], count: int) -> list[Any]:
    """`work(0) ... work(count - 1)` at once, in each of the ways in which people write it."""
    match shape:
        case "asyncio.gather":
            return list(await asyncio.gather(*(work(i) for i in range(count))))
        case "TaskGroup":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(i)) for i in range(count)]
            return [task.result() for task in tasks]
        case "surefoot.gather":
            return await surefoot.gather(*(work(i) for i in range(count)))
        case "surefoot.map":
            return await surefoot.map(work, range(count), limit=count)
        case "wait":
            tasks = [asyncio.create_task(work(i)) for i in range(count)]
            await asyncio.wait(tasks)
            return [task.result() for task in tasks]
        case _:
            tasks = [asyncio.create_task(work(i)) for i in range(count)]
            return [await task for task in tasks]


@pytest.mark.parametrize("shape", SHAPES)
async def test_results_stay_with_their_branch_whatever_the_finishing_order(db: Path, shape: str) -> None:
    ran: list[str] = []
    delays = [0.03, 0.02, 0.01, 0.0]
    crashed: list[bool] = []

    @step
    async def slow(n: int) -> str:
        await asyncio.sleep(delays[n])
        ran.append(f"slow {n}")
        return f"slow {n}"

    @step
    async def then(text: str) -> str:
        ran.append(text)
        return f"then {text}"

    async def branch(n: int) -> str:
        return await then(await slow(n))

    @workflow
    async def flow() -> list[str]:
        got = await side_by_side(shape, branch, 4)
        if not crashed:
            crashed.append(True)
            raise Crash
        return got

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        delays.reverse()
        assert await sf.run(flow, id="r") == [f"then slow {n}" for n in range(4)]
        assert len(set(slots(sf, "r"))) == 8
    assert len(ran) == 8


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_crash_among_branches_repeats_only_what_was_not_recorded(db: Path, shape: str) -> None:
    ran: list[tuple[int, int]] = []
    crashed: list[bool] = []

    @step
    async def work(branch: int, n: int) -> int:
        await asyncio.sleep(0.001 * ((branch * 7 + n * 3) % 4))
        ran.append((branch, n))
        return branch * 10 + n

    async def branch(b: int) -> list[int]:
        out = [await work(b, n) for n in range(2)]
        if b == 2 and not crashed:
            crashed.append(True)
            raise Crash
        return [*out, await work(b, 2)]

    @workflow
    async def flow() -> list[list[int]]:
        return await side_by_side(shape, branch, 4)

    async with Surefoot(db) as sf:
        with pytest.raises(BaseException):  # noqa: B017, PT011 - TaskGroup wraps it
            await sf.run(flow, id="r")
        recorded = len(slots(sf, "r"))
        assert await sf.run(flow, id="r") == [[b * 10 + n for n in range(3)] for b in range(4)]
        assert len(set(slots(sf, "r"))) == 12
    assert len(ran) - 12 <= max(0, 12 - recorded)


async def test_nested_branches_keep_their_paths(db: Path) -> None:
    delays = {n: 0.002 * (n % 3) for n in range(9)}
    crashed: list[bool] = []
    ran: list[int] = []

    @step
    async def leaf(n: int) -> int:
        await asyncio.sleep(delays[n])
        ran.append(n)
        return n

    async def row(r: int) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(leaf(3 * r + c)) for c in range(3)]
        return [task.result() for task in tasks]

    @workflow
    async def flow() -> list[list[int]]:
        table = list(await asyncio.gather(*(row(r) for r in range(3))))
        if not crashed:
            crashed.append(True)
            raise Crash
        return table

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        for n in delays:
            delays[n] = 0.002 * ((8 - n) % 3)
        assert await sf.run(flow, id="r") == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert sorted(ran) == list(range(9))


def test_gather_in_a_def_workflow_runs_at_once_in_threads_and_keeps_order(db: Path) -> None:
    together = threading.Barrier(3)
    crashed: list[bool] = []
    ran: list[str] = []

    @step
    def meet(name: str) -> str:
        together.wait(20)
        ran.append(name)
        return name

    @step
    def after(name: str) -> str:
        return name.upper()

    @workflow
    def flow() -> list[str]:
        got = surefoot.gather(*(lambda n=name: after(meet(n)) for name in "abc"))
        if not crashed:
            crashed.append(True)
            raise Crash
        return got

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        assert sf.run(flow, id="r") == ["A", "B", "C"]
        assert len(set(slots(sf, "r"))) == 6
    assert sorted(ran) == ["a", "b", "c"]


def test_map_in_a_def_workflow_keeps_at_most_limit_side_by_side(db: Path) -> None:
    lock = threading.Lock()
    now, most = 0, 0

    @step
    def work(n: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.005)
        with lock:
            now -= 1
        return n * n

    @workflow
    def flow(n: int) -> list[int]:
        return surefoot.map(work, range(n), limit=3)

    with Surefoot(db) as sf:
        assert sf.run(flow, 12, id="r") == [n * n for n in range(12)]
        assert sf.run(flow, 0, id="none") == []
    assert 1 < most <= 3


async def test_map_in_an_async_workflow_keeps_at_most_limit_side_by_side(db: Path) -> None:
    now, most = 0, 0

    @step
    async def work(n: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        return n * n

    @workflow
    async def flow(n: int) -> list[int]:
        return await surefoot.map(work, range(n), limit=3)

    async with Surefoot(db) as sf:
        assert await sf.run(flow, 12, id="r") == [n * n for n in range(12)]
        assert await sf.run(flow, 0, id="none") == []
    assert most == 3


def test_the_first_failure_in_order_is_raised_when_all_branches_have_ended(db: Path) -> None:
    ended: list[int] = []

    @step
    def work(n: int) -> int:
        threading.Event().wait(0.01 * (3 - n))
        ended.append(n)
        if n:
            raise ValueError(f"branch {n}")
        return n

    @workflow
    def flow() -> None:
        surefoot.map(work, range(3))

    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(ValueError, match="branch 1"):
                sf.run(flow, id="r")
    assert sorted(ended) == [0, 1, 2]


def test_branches_in_branches_in_threads(db: Path) -> None:
    @step
    def leaf(n: int) -> int:
        return n

    @workflow
    def flow() -> list[list[int]]:
        return surefoot.map(lambda r: surefoot.map(lambda c: leaf(10 * r + c), range(3)), range(3))

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
        assert len({slot.rpartition("/")[0] for slot in slots(sf, "r")}) == 9


async def test_effects_in_branches_get_the_same_keys_after_a_crash(db: Path, ledger: Ledger) -> None:
    delays = [0.02, 0.0, 0.01]
    crashed: list[bool] = []

    @effect(keyed(window=3600))
    async def send(attempt: Attempt, n: int) -> int:
        await asyncio.sleep(delays[n])
        return ledger.post(attempt.key, n)

    @workflow
    async def flow() -> list[int]:
        got = list(await asyncio.gather(*(send(n) for n in range(3))))
        if not crashed:
            crashed.append(True)
            raise Crash
        return got

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        delays.reverse()
        assert await sf.run(flow, id="r") == [0, 1, 2]
    assert sorted(ledger.things) == [0, 1, 2] and len(ledger.requests) == 3


@pytest.mark.parametrize("bad", [5, "text"])
def test_gather_in_a_def_workflow_takes_functions_only(db: Path, bad: Any) -> None:
    @step
    def work() -> int:
        return 1

    @workflow
    def flow() -> str:
        with pytest.raises(UsageError, match="functions without arguments"):
            surefoot.gather(work, bad)
        with pytest.raises(UsageError, match="limit"):
            surefoot.map(str, [1], limit=0)
        return "refused"

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == "refused"
        assert slots(sf, "r") == []


async def test_a_task_that_nobody_awaited_ends_with_its_run(db: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @step
    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @workflow
    async def flow() -> str:
        flow.task = asyncio.create_task(long())
        await begun.wait()
        return "done"

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "done"
        assert ended.is_set()


async def test_an_effect_before_branches_of_another_task_were_replayed_is_not_divergence(db: Path) -> None:
    """Root sends while a task, created earlier, has recorded branches of its own that it has not reopened yet."""
    sent: list[str] = []
    crashed: list[bool] = []

    @step
    async def work(n: int) -> int:
        return n

    @step
    async def slow() -> None:
        await asyncio.sleep(0.05)

    @effect(keyed(window=3600))
    async def send(attempt: Attempt) -> None:
        sent.append(attempt.key)

    async def branch() -> int:
        return sum(await asyncio.gather(work(1), work(2)))

    @workflow
    async def flow() -> int:
        task = asyncio.create_task(branch())
        await slow()
        if not crashed:
            crashed.append(True)
            raise Crash
        await send()
        return await task

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        assert await sf.run(flow, id="r") == 3
    assert len(sent) == 1


async def test_a_sibling_cancelled_by_a_failure_settles_its_effect_by_contract_after_a_crash(
    db: Path, ledger: Ledger
) -> None:
    """TaskGroup cancels B in mid-send when A fails; after a crash B is cancelled before it asks for that effect."""
    crashed: list[bool] = []

    @step
    async def fail() -> None:
        await asyncio.sleep(0.02)
        raise ValueError("A")

    @effect(keyed(window=3600))
    async def send(attempt: Attempt) -> str:
        ledger.post(attempt.key, "B")
        await asyncio.sleep(5 if not crashed else 0)
        return "sent"

    async def late() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        await send()

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(late())
        except* ValueError:
            pass
        if not crashed:
            crashed.append(True)
            raise Crash
        return "went on"

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        assert await sf.run(flow, id="r") == "went on"
        (record,) = sf.store.find_effects()
        assert record.status == "confirmed", record.reason
    assert ledger.things == ["B"]
