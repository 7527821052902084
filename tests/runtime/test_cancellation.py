"""asyncio cancellation at every place of a run: nothing recorded is lost or doubled, and the run is released."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Attempt, Surefoot, effect, keyed, step, workflow
from surefoot.stores.memory import MemoryStore
from tests.runtime.support import Ledger, restart, slots

# Every turn at first; then further apart, since how many turns a commit takes depends on how busy the machine is.
TICKS = [*range(90), *range(90, 200, 7), 300, 500, 1000, 3000, 10_000, 30_000, 30_000]


class World:
    """One workflow with everything in it that can be cancelled, and what it really did."""

    def __init__(self, shape: str) -> None:
        self.shape = shape
        self.ran: list[str] = []
        self.ledger = Ledger()

        @step(name="work")
        async def work(n: int) -> int:
            await asyncio.sleep(0)
            self.ran.append(f"work {n}")
            return n

        @effect(keyed(window=3600), name="send")
        async def send(attempt: Attempt, n: int) -> int:
            await asyncio.sleep(0)
            self.ledger.post(attempt.key, n)
            await asyncio.sleep(0)
            return n

        @workflow(name="cancelled")
        async def flow() -> int:
            return await getattr(self, f"_{shape}")(work, send)

        self.flow = flow

    async def _sequence(self, work: Callable[[int], Awaitable[int]], send: Callable[[int], Awaitable[int]]) -> int:
        return await work(1) + await send(2) + await work(3)

    async def _branches(self, work: Callable[[int], Awaitable[int]], send: Callable[[int], Awaitable[int]]) -> int:
        left = asyncio.gather(work(1), send(2))
        async with asyncio.TaskGroup() as group:
            right = group.create_task(work(3))
        return sum(await left) + await right

    async def _first(self, work: Callable[[int], Awaitable[int]], send: Callable[[int], Awaitable[int]]) -> int:
        async def long() -> int:
            await asyncio.sleep(30)
            return 0

        won = await surefoot.first(long(), work(1))
        async with surefoot.timeout(30):
            return won[1] + await send(2) + await work(3)

    async def _left_over(self, work: Callable[[int], Awaitable[int]], send: Callable[[int], Awaitable[int]]) -> int:
        async def stubborn() -> None:
            try:
                await asyncio.sleep(30)
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)

        self.task = asyncio.create_task(stubborn())
        return await work(1) + await send(2) + await work(3)


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel_at(sf: Surefoot, world: World, tick: int, run_id: str) -> bool:
    """Run, and cancel after so many turns of the loop; True if it had ended by then."""
    task = asyncio.ensure_future(sf.run(world.flow, id=run_id))
    await ticks(tick)
    if task.done():
        assert task.result() == 6
        return True
    task.cancel()
    try:
        assert await task == 6, "a cancellation that came too late may give the result"
    except asyncio.CancelledError:
        pass
    return False


async def faults(sf: Surefoot, world: World, run_id: str, tick: int) -> list[str]:
    """What is wrong after the cancellation, and after the run has been brought to its end; empty when nothing is."""
    found: list[str] = []
    read = sf.store.read_run(run_id)
    if read is not None:
        run, entries = read
        kept = [(entry.slot, entry.kind) for entry in entries]
        if len(set(kept)) != len(kept):
            found.append(f"tick {tick}: doubled entries: {kept}")
        if run.status not in ("pending", "succeeded") or run.owner:
            found.append(f"tick {tick}: the run is {run.status} and still held")
    assert await sf.run(world.flow, id=run_id) == 6
    names = slots(sf, run_id)
    if sum("work" in name for name in names) != 2:
        found.append(f"tick {tick}: a step was doubled or lost: {names}")
    (record,) = sf.store.find_effects(run_id=run_id)
    if record.status != "confirmed" or len(world.ledger.done) != 1:
        found.append(f"tick {tick}: the effect is {record.status}, done {len(world.ledger.done)} times")
    return found


SHAPES = ["sequence", "branches", "first", "left_over"]


@pytest.mark.parametrize("durability", ["sync", "pipelined"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_cancellation_at_any_turn_of_the_loop_loses_and_doubles_nothing(shape: str, durability: Any) -> None:
    ended, found = 0, list[str]()
    for tick in TICKS:
        restart()
        world = World(shape)
        async with Surefoot(MemoryStore(), durability=durability) as sf:
            ended = ended + 1 if await cancel_at(sf, world, tick, "r") else 0
            found += await faults(sf, world, "r", tick)
        if ended >= 2:
            break
    assert found == []
    assert ended >= 2, "the run never ended by itself"


@pytest.mark.parametrize("shape", SHAPES)
async def test_two_cancellations_in_a_row_do_no_more_harm_than_one(shape: str) -> None:
    found: list[str] = []
    for tick in range(0, 60, 2):
        for gap in (1, 2, 4):
            restart()
            world = World(shape)
            async with Surefoot(MemoryStore()) as sf:
                task = asyncio.ensure_future(sf.run(world.flow, id="r"))
                await ticks(tick)
                task.cancel()
                await ticks(gap)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
                found += await faults(sf, world, "r", tick)
    assert found == []


async def test_a_recorded_step_is_not_run_again_after_a_cancellation_on_disk(db: Path) -> None:
    for tick in range(0, 60, 3):
        restart()
        world, run_id = World("sequence"), f"r{tick}"
        async with Surefoot(db) as sf:
            await cancel_at(sf, world, tick, run_id)
            read = sf.store.read_run(run_id)
            recorded = {entry.slot for entry in read[1]} if read else set()
            ran = len(world.ran)
            assert await sf.run(world.flow, id=run_id) == 6
            repeated = [line for line in world.ran[ran:] if line in world.ran[:ran]]
            assert len(repeated) <= 1 and not ("work" in recorded and "work 1" in repeated)


async def test_another_process_can_take_a_run_whose_start_was_cancelled(db: Path) -> None:
    """A run that was cancelled while it was being opened must not stay claimed by a process that lives on."""
    for tick in range(12):
        restart()
        world = World("sequence")
        async with Surefoot(db) as sf, Surefoot(db) as other:
            await cancel_at(sf, world, tick, f"r{tick}")
            assert await other.run(world.flow, id=f"r{tick}", when_running="refuse") == 6


async def test_cancelling_a_handle_releases_its_run(db: Path) -> None:
    world = World("sequence")
    async with Surefoot(db) as sf:
        handle = sf.start(world.flow, id="r")
        await ticks(8)
    with pytest.raises((asyncio.CancelledError, surefoot.SurefootError)):
        await handle
    restart()
    async with Surefoot(db) as sf:
        assert sf.list("running") == []
        assert await sf.run(world.flow, id="r") == 6


async def test_a_cancellation_that_a_workflow_catches_is_its_own_business(db: Path) -> None:
    @step(name="tidy")
    async def tidy() -> str:
        return "tidied"

    @workflow
    async def flow() -> str:
        task = asyncio.create_task(asyncio.sleep(30))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return await tidy()
        return "never"

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "tidied"


async def test_a_task_that_swallows_its_cancellation_does_not_hold_the_run(
    db: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A framework that awaits a task of its own takes a cancellation for that task's end, and goes on waiting."""
    monkeypatch.setattr("surefoot.runtime.tasks.CANCEL_AGAIN_SECONDS", 0.05)
    swallowed: list[int] = []
    free = asyncio.Event()

    async def stubborn() -> None:
        while len(swallowed) < 2:
            try:
                await free.wait()
                return
            except asyncio.CancelledError:
                swallowed.append(1)
        await free.wait()

    @workflow
    async def flow() -> int:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        return 1 if not task.done() else 0

    async with Surefoot(db) as sf:
        run = asyncio.create_task(sf.run(flow, id="r"))
        ended, _ = await asyncio.wait({run}, timeout=30)
        free.set()
        assert await run == 1 and ended
    assert len(swallowed) == 2 and "stubborn" in caplog.text
