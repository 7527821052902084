"""Choices by time or finishing order around steps are refused, never silently different; inside a step all is fine."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot

# Loaded here: where tasks that nobody awaits are collected while pytest parses a module, Python 3.11 gives up parsing.
import surefoot.effects.use
from surefoot import Attempt, NotDeterministic, Surefoot, effect, keyed, step, workflow
from tests.runtime.support import Crash, restart


@step
async def fast(n: int) -> int:
    await asyncio.sleep(0)
    return n


@step
async def slow(n: int) -> int:
    await asyncio.sleep(0.3)
    return n


@effect(keyed(window=3600))
async def slow_effect(attempt: Attempt) -> int:
    await asyncio.sleep(0.3)
    return 1


async def wait_for_first_completed() -> None:
    tasks = [asyncio.create_task(fast(1)), asyncio.create_task(slow(2))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def wait_for_first_exception() -> None:
    await asyncio.wait([asyncio.create_task(slow(2))], return_when=asyncio.FIRST_EXCEPTION)


async def wait_with_timeout() -> None:
    await asyncio.wait([asyncio.create_task(slow(2))], timeout=0.01)


async def as_completed() -> None:
    for done in asyncio.as_completed([fast(1), slow(2)]):
        await done


async def timeout_around_a_step() -> None:
    async with asyncio.timeout(0.02):
        await slow(1)


async def timeout_at_around_a_step() -> None:
    async with asyncio.timeout_at(asyncio.get_running_loop().time() + 0.02):
        await slow(1)


async def timeout_around_an_effect() -> None:
    async with asyncio.timeout(0.02):
        await slow_effect()


async def timeout_around_gather() -> None:
    async with asyncio.timeout(0.02):
        await asyncio.gather(slow(1), slow(2))


async def timeout_around_a_group() -> None:
    async with asyncio.timeout(0.02):
        async with asyncio.TaskGroup() as group:
            group.create_task(slow(1))


async def timeout_around_a_task() -> None:
    async with asyncio.timeout(0.02):
        await asyncio.create_task(slow(1))


async def timeout_around_a_recorded_sleep() -> None:
    async with asyncio.timeout(0.02):
        await surefoot.sleep(0.3)


async def timeout_around_a_surefoot_map() -> None:
    async with asyncio.timeout(0.02):
        await surefoot.map(slow, [1, 2])


async def wait_for_a_step() -> None:
    await asyncio.wait_for(slow(1), 0.02)


async def wait_for_a_gather() -> None:
    await asyncio.wait_for(asyncio.gather(slow(1), slow(2)), 0.02)


async def anyio_fail_after() -> None:
    anyio = pytest.importorskip("anyio")
    with anyio.fail_after(0.02):
        await slow(1)


REFUSED: list[Callable[[], Awaitable[None]]] = [
    wait_for_first_completed,
    wait_for_first_exception,
    wait_with_timeout,
    as_completed,
    timeout_around_a_step,
    timeout_at_around_a_step,
    timeout_around_an_effect,
    timeout_around_gather,
    timeout_around_a_group,
    timeout_around_a_task,
    timeout_around_a_recorded_sleep,
    timeout_around_a_surefoot_map,
    wait_for_a_step,
    wait_for_a_gather,
    anyio_fail_after,
]


@pytest.mark.parametrize("choose", REFUSED, ids=lambda c: c.__name__)
async def test_a_choice_by_time_is_refused_and_says_what_to_use(
    db: Path, choose: Callable[[], Awaitable[None]]
) -> None:
    @workflow
    async def flow() -> str:
        try:
            await choose()
        except TimeoutError:
            return "chose by time, and nobody noticed"
        return "no choice was made"

    async with Surefoot(db) as sf:
        with pytest.raises(NotDeterministic, match=r"surefoot\.first\(\.\.\.\) or surefoot\.timeout"):
            await sf.run(flow, id="r")


@pytest.mark.parametrize("choose", REFUSED[:10], ids=lambda c: c.__name__)
async def test_a_refused_choice_leaves_a_run_that_repaired_code_resumes(
    db: Path, choose: Callable[[], Awaitable[None]]
) -> None:
    @workflow(name="repaired")
    async def broken() -> int:
        before = await fast(7)
        try:
            await choose()
        except Exception:
            return -1
        return before

    async with Surefoot(db) as sf:
        with pytest.raises(NotDeterministic):
            await sf.run(broken, id="r")
        view = sf.get("r")
        assert view.status == "diverged" and not view.finished and "surefoot.first" in view.reason
    restart()

    @workflow(name="repaired")
    async def repaired() -> int:
        return await fast(7)

    async with Surefoot(db) as sf:
        assert await sf.run(repaired, id="r") == 7


async def anything_goes() -> str:
    async with asyncio.timeout(30):
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)
    except TimeoutError:
        pass
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.01)
    except TimeoutError:
        pass
    tasks = [asyncio.create_task(asyncio.sleep(0.001 * n)) for n in range(3)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait(tasks, timeout=0.0001)
    for done in asyncio.as_completed(tasks):
        await done
    async with asyncio.TaskGroup() as group:
        group.create_task(fast.function(1))
    return "all of it"


@pytest.mark.parametrize("kind", ["step", "effect"])
async def test_inside_a_body_every_choice_is_fine(db: Path, kind: str) -> None:
    @step
    async def inside() -> str:
        return await anything_goes()

    @effect(keyed(window=3600))
    async def send(attempt: Attempt) -> str:
        return await anything_goes()

    @workflow
    async def flow() -> str:
        return await (inside() if kind == "step" else send())

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "all of it"


async def test_a_body_that_timed_out_inside_can_still_be_cancelled_plainly(db: Path) -> None:
    """The mark that a timer once cancelled this task must not outlive the body that the timer belonged to."""

    @step
    async def inside() -> None:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(5)
        except TimeoutError:
            pass
        gone = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(gone.cancel)
        await gone

    @workflow
    async def flow() -> str:
        try:
            await inside()
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "cancelled"


async def test_a_timer_that_does_not_fire_changes_nothing(db: Path) -> None:
    crashed: list[bool] = []

    @workflow
    async def flow() -> int:
        async with asyncio.timeout(60):
            got = await fast(1) + await asyncio.wait_for(fast(2), 60)
            got += sum(await asyncio.gather(fast(3), fast(4)))
        if not crashed:
            crashed.append(True)
            raise Crash
        return got

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        assert await sf.run(flow, id="r") == 10


async def test_a_timer_around_the_whole_run_releases_it(db: Path) -> None:
    @workflow
    async def flow(n: int) -> int:
        return await slow(n)

    async with Surefoot(db) as sf:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await sf.run(flow, 1, id="r")
        assert sf.get("r").status == "pending"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sf.run(flow, 1, id="r"), 0.03)
        assert sf.get("r").status == "pending"
        assert await sf.run(flow, 1, id="r") == 1


async def test_waiting_for_all_is_fine(db: Path) -> None:
    @workflow
    async def flow() -> list[int]:
        tasks = [asyncio.create_task(fast(n)) for n in range(3)]
        done, pending = await asyncio.wait(tasks)
        assert len(done) == 3 and not pending
        shielded: Any = await asyncio.shield(asyncio.create_task(fast(9)))
        return [*(task.result() for task in tasks), shielded]

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == [0, 1, 2, 9]


async def test_tasks_of_other_code_on_the_loop_are_left_alone(db: Path) -> None:
    async with Surefoot(db) as sf:

        @workflow
        async def flow() -> int:
            return await fast(1)

        await sf.run(flow, id="r")
        task = asyncio.create_task(asyncio.sleep(0))
        assert type(task) is asyncio.Task
        done, _ = await asyncio.wait([task, asyncio.create_task(asyncio.sleep(5))], return_when="FIRST_COMPLETED")
        assert done == {task}
