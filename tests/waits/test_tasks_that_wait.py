"""Waiting in `async def`: no busy loop, no blocked event loop, and cancellation that loses no message."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import surefoot
from surefoot import Surefoot, step, workflow
from surefoot.runtime import tasks as run_tasks
from tests.waits.support import read_messages, until, waits, worker


@step
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def test_while_another_branch_works_a_wait_looks_now_and_then_and_keeps_one_watch(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def flow() -> list[Any]:
        waits = [surefoot.wait_for(f"go{n}", within=3600) for n in range(5)]
        return list(await surefoot.first(slow(1.2), surefoot.gather(*waits)))

    watched: list[int] = []
    watch = run_tasks._suspend_if_quiet
    monkeypatch.setattr(run_tasks, "_suspend_if_quiet", lambda *a: (watched.append(1), watch(*a)))
    async with Surefoot(db) as sf:
        board, looks = sf.store.board, list[str]()
        read = board.read_mail
        board.read_mail = lambda run_id: (looks.append(run_id), read(run_id))[1]  # type: ignore[method-assign]
        assert await sf.run(flow, id="r") == [0, "done"]
        assert 5 <= len(looks) <= 5 * 6, "each wait looks four times a second at most"
        assert len(watched) <= 1.2 / run_tasks.QUIET_SECONDS + 2, "one watch, however many waits and looks"


async def test_the_event_loop_turns_while_a_networked_store_is_read(postgres_url: str) -> None:
    """The read returns only when the loop has turned meanwhile: on the loop itself it would hang for ever."""

    @workflow
    async def flow() -> str:
        return await surefoot.wait_for("go")

    turned = threading.Event()
    async with Surefoot(postgres_url) as sf:
        sf.start(flow, id="r", queue="default")
        sf.signal("r", "go", "hello")
        board = sf.store.board
        read = board.read_mail

        def held(run_id: str) -> Any:
            asyncio_loop.call_soon_threadsafe(turned.set)
            assert turned.wait(20), "the event loop stood still"
            return read(run_id)

        asyncio_loop = asyncio.get_running_loop()
        board.read_mail = held  # type: ignore[method-assign]
        assert await sf.run(flow, id="r") == "hello"


async def test_a_wait_that_is_cancelled_reads_nothing(db: str) -> None:
    @workflow
    async def flow() -> list[Any]:
        task = asyncio.create_task(surefoot.wait_for("go"))
        await slow(0.05)
        task.cancel()
        told: list[Any] = list(await asyncio.gather(task, return_exceptions=True))
        return [type(told[0]).__name__, await surefoot.wait_for("go")]

    async with Surefoot(db) as sf, sf.worker([flow]):
        handle = sf.start(flow, id="r", queue="default")
        await asyncio.to_thread(until, lambda: waits(sf, "r"))
        sf.signal("r", "go", 1)
        assert await handle == ["CancelledError", 1]
        assert read_messages(sf, "r") == [1]


async def test_tasks_groups_and_plain_waits_for_all_give_the_run_back(db: str) -> None:
    @workflow
    async def flow() -> list[Any]:
        tasks = [asyncio.create_task(surefoot.wait_for(f"go{n}")) for n in range(2)]
        async with asyncio.TaskGroup() as group:
            third = group.create_task(surefoot.wait_for("go2"))
        await asyncio.wait(tasks)
        return [*(task.result() for task in tasks), third.result()]

    async with Surefoot(db) as sf, sf.worker([flow]):
        handle = sf.start(flow, id="r", queue="default")
        await asyncio.to_thread(until, lambda: (run := waits(sf, "r")) and len(run.waits) == 3)
        sf.signal("r", "go2", 2)
        await asyncio.to_thread(until, lambda: (run := waits(sf, "r")) and len(run.waits) == 2)
        for number in (1, 0):
            sf.signal("r", f"go{number}", number)
        assert await handle == [0, 1, 2]


def test_many_waiting_runs_take_no_place_from_others(url: str) -> None:
    """A worker with two hands, fifty runs that wait: nothing of them is left in the process."""

    @workflow
    def listener() -> int:
        return surefoot.wait_for("go")

    @workflow
    async def listener_async() -> int:
        return await surefoot.wait_for("go")

    flows = [listener, listener_async]
    with worker(url, *flows, concurrency=2) as sf:
        handles = [sf.start(flows[n % 2], id=f"r{n}", queue="default") for n in range(50)]
        until(lambda: all(waits(sf, f"r{n}") for n in range(50)))
        (busy,) = sf._runner.workers
        until(lambda: not busy._active)
        assert not sf._runner._sessions and not sf._runner._local and not sf.engine.working
        assert sum(thread.name.startswith("surefoot-worker") for thread in threading.enumerate()) <= 4
        for number in range(50):
            sf.signal(f"r{number}", "go", number)
        assert [handle.result(30) for handle in handles] == list(range(50))


async def joined_by_first(busy: Any, waiting: Any) -> Any:
    return (await surefoot.first(busy, waiting))[1]


async def joined_by_await(busy: Any, waiting: Any) -> Any:
    background = asyncio.create_task(waiting)
    told = await asyncio.create_task(busy)
    background.cancel()
    return told


async def joined_by_gather(busy: Any, waiting: Any) -> Any:
    background = asyncio.create_task(waiting)
    told, _ = await asyncio.gather(busy, surefoot.sleep(0))
    background.cancel()
    return told


async def joined_by_a_group(busy: Any, waiting: Any) -> Any:
    background = asyncio.create_task(waiting)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(busy)
    background.cancel()
    return task.result()


async def joined_by_wait(busy: Any, waiting: Any) -> Any:
    background = asyncio.create_task(waiting)
    task = asyncio.create_task(busy)
    await asyncio.wait([task])
    background.cancel()
    return task.result()


@pytest.mark.parametrize(
    "join", [joined_by_first, joined_by_await, joined_by_gather, joined_by_a_group, joined_by_wait]
)
async def test_a_run_whose_timer_has_come_is_not_given_back_before_it_goes_on(db: str, join: Any) -> None:
    """The loop is held up just as a branch ends. Given back then, the run would wait for the other branch alone."""

    async def busy() -> str:
        await surefoot.sleep(0.02)
        time.sleep(3 * run_tasks.QUIET_SECONDS)  # noqa: ASYNC251
        return "done"

    @workflow
    async def flow() -> str:
        return await join(busy(), surefoot.wait_for("what nobody sends"))

    async with Surefoot(db) as sf, sf.worker([flow]):
        handle = sf.start(flow, id="r", queue="default")
        assert await asyncio.wait_for(asyncio.ensure_future(result_of(handle)), 20) == "done"
        assert sf.get("r").claims == 1, "it never was given back"


async def result_of(handle: Any) -> Any:
    return await handle


@pytest.mark.parametrize("kind", ["asyncio", "anyio", "recorded", "in a step"])
async def test_a_bare_timer_around_a_wait_is_told_since_it_ends_with_the_process(
    db: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is given back before such a timer fires, and it would begin anew at each replay, and so on for ever."""
    import anyio

    timer = {"asyncio": asyncio.timeout, "anyio": anyio.fail_after, "recorded": surefoot.timeout}.get(kind)

    @step(name="timed")
    async def timed() -> str:
        async with asyncio.timeout(600):
            return await slow.function(0)

    @workflow
    async def flow() -> str:
        if timer is None:
            return await timed() + await surefoot.wait_for("go")
        scope = timer(600)
        if kind == "anyio":
            with scope:  # type: ignore[attr-defined]
                return await surefoot.wait_for("go")
        async with scope:  # type: ignore[attr-defined]
            return await surefoot.wait_for("go")

    with worker(db, flow) as sf:
        handle = sf.start(flow, id="r", queue="default")
        await asyncio.to_thread(until, lambda: waits(sf, "r"))
        sf.signal("r", "go", "hello")
        assert (await asyncio.to_thread(handle.result, 30)).endswith("hello")
    told = [r.getMessage() for r in caplog.records if "is given back inside" in r.getMessage()]
    assert told == [] if kind in ("recorded", "in a step") else "use surefoot.timeout(...) or within=" in told[0]
