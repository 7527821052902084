"""`surefoot.first` and `surefoot.timeout`: what time decided is recorded, and a replay decides the same."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Attempt, RunWaiting, Surefoot, UsageError, effect, keyed, opaque, step, workflow
from tests.runtime.support import Crash, Ledger, live_and_replayed_async, slots


@step
async def fast(n: int) -> str:
    await asyncio.sleep(0)
    return f"fast {n}"


@step
async def slow(n: int) -> str:
    await asyncio.sleep(0.05)
    return f"slow {n}"


@step
async def endless() -> str:
    await asyncio.sleep(600)
    return "never"


async def test_the_winner_is_recorded_and_wins_again(db: Path) -> None:
    delays = [0.05, 0.0]

    @step
    async def race(n: int) -> int:
        await asyncio.sleep(delays[n])
        return n

    async def ask() -> tuple[int, int]:
        got = await surefoot.first(race(0), race(1))
        delays.reverse()
        return got

    live, replayed = await live_and_replayed_async(db, ask)
    assert live == replayed == (1, 1)


async def test_the_losers_recorded_steps_are_handed_out_and_no_more(db: Path) -> None:
    reached: list[str] = []

    async def loser() -> None:
        reached.append(await fast(1))
        reached.append(await endless())

    async def winner() -> str:
        await fast(3)
        await asyncio.sleep(0.02)
        return await fast(4)

    live, replayed = await live_and_replayed_async(db, lambda: surefoot.first(loser(), winner()))
    assert live == replayed == (1, "fast 4")
    assert reached == ["fast 1", "fast 1"]


async def test_a_winner_that_failed_fails_again(db: Path) -> None:
    @step
    async def fail() -> None:
        raise ValueError("first to end")

    live, replayed = await live_and_replayed_async(db, lambda: surefoot.first(slow(1), fail()))
    assert type(live) is type(replayed) is ValueError and live.args == replayed.args


async def test_first_in_first_and_in_branches(db: Path) -> None:
    async def ask() -> list[Any]:
        inner = asyncio.gather(surefoot.first(fast(1), endless()), surefoot.first(endless(), slow(2)))
        outer = surefoot.first(surefoot.first(endless(), fast(3)), endless())
        return [*(await inner), await outer]

    live, replayed = await live_and_replayed_async(db, ask)
    assert live == replayed == [(0, "fast 1"), (1, "slow 2"), (0, (1, "fast 3"))]


async def test_a_losers_effect_in_flight_is_settled_before_the_run_ends(db: Path, ledger: Ledger) -> None:
    @effect(keyed(window=3600))
    async def send(attempt: Attempt) -> str:
        ledger.post(attempt.key, "sent")
        await asyncio.sleep(0.3 if len(ledger.requests) == 1 else 0)
        return "sent"

    @workflow
    async def flow() -> str:
        return (await surefoot.first(send(), slow(1)))[1]

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "slow 1"
        (record,) = sf.store.find_effects()
        assert record.status == "confirmed" and record.attempts == 2
        assert await sf.run(flow, id="r") == "slow 1"
    assert ledger.things == ["sent"] and len(ledger.requests) == 2


async def test_a_losers_effect_that_only_a_person_can_settle_keeps_the_run_waiting(db: Path, ledger: Ledger) -> None:
    @effect(opaque())
    async def send(attempt: Attempt) -> str:
        ledger.post(attempt.key, "sent")
        await asyncio.sleep(30)
        return "sent"

    @workflow
    async def flow() -> str:
        return (await surefoot.first(send(), slow(1)))[1]

    async with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(RunWaiting, match="parked effects of branches that ended"):
                await sf.run(flow, id="r")
        assert sf.get("r").status == "waiting"
    assert len(ledger.requests) == 1


async def test_first_refuses_what_it_cannot_run(db: Path) -> None:
    @workflow
    async def flow() -> str:
        with pytest.raises(UsageError, match="at least one"):
            await surefoot.first()
        future: Any = asyncio.get_running_loop().create_future()
        with pytest.raises(UsageError, match="takes coroutines"):
            await surefoot.first(future)
        return "refused"

    async with Surefoot(db) as sf:
        assert await sf.run(flow, id="r") == "refused"


@pytest.mark.filterwarnings("error")
def test_first_in_a_def_workflow_says_what_to_use_there() -> None:
    """It gave a coroutine that nobody awaits."""

    @step
    async def fast() -> int:
        return 1

    @workflow
    def flow() -> str:
        with pytest.raises(UsageError, match=r"for async def workflows; .* within="):
            surefoot.first(fast.function())
        return "refused"

    with Surefoot("memory:") as sf:
        assert sf.run(flow, id="r") == "refused"
    with pytest.raises(UsageError, match="inside a workflow"):
        surefoot.first()


# --- timeout ----------------------------------------------------------------------------------------------------------


async def limited(seconds: float, body: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with surefoot.timeout(seconds) as limit:
            await body()
    except TimeoutError:
        assert limit.fired
        return "timed out"
    assert limit.fired is False
    return "in time"


async def two_steps() -> None:
    await fast(1)
    await endless()


async def plain_sleep() -> None:
    await asyncio.sleep(0.4)


async def recorded_sleep() -> None:
    await surefoot.sleep(0.4)


async def branches() -> None:
    await asyncio.gather(fast(1), endless())


async def group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(two_steps())
        tasks.create_task(fast(7))


BODIES = [two_steps, plain_sleep, recorded_sleep, branches, group, endless]


@pytest.mark.parametrize("body", BODIES, ids=lambda b: getattr(b, "__name__", ""))
async def test_a_timeout_that_fired_fires_again_on_replay(db: Path, body: Callable[[], Awaitable[Any]]) -> None:
    live, replayed = await asyncio.wait_for(live_and_replayed_async(db, lambda: limited(0.03, body)), 20)
    assert (live, replayed) == ("timed out", "timed out")


async def test_a_timeout_that_did_not_fire_never_does_on_replay(db: Path) -> None:
    delays = [0.0, 0.1]

    async def body() -> None:
        await fast(1)
        await asyncio.sleep(delays.pop(0))

    live, replayed = await live_and_replayed_async(db, lambda: limited(0.05, body))
    assert (live, replayed) == ("in time", "in time")


async def test_timeouts_nest(db: Path) -> None:
    async def ask() -> list[str]:
        out: list[str] = []
        try:
            async with surefoot.timeout(0.6):
                out.append(await limited(0.01, endless))
                out.append(await limited(30, lambda: fast(1)))
                out.append(await limited(30, endless))
        except TimeoutError:
            out.append("outer")
        out.append(await limited(30, lambda: fast(2)))
        return out

    live, replayed = await asyncio.wait_for(live_and_replayed_async(db, ask), 20)
    assert live == replayed == ["timed out", "in time", "outer", "in time"]


async def test_a_failure_inside_a_timeout_is_itself(db: Path) -> None:
    @step
    async def fail() -> None:
        raise ValueError("inside")

    live, replayed = await live_and_replayed_async(db, lambda: limited(30, fail))
    assert type(live) is type(replayed) is ValueError


async def test_a_run_that_crashed_inside_a_timeout_may_still_make_it(db: Path) -> None:
    crashed: list[bool] = []

    @workflow
    async def flow() -> str:
        async with surefoot.timeout(30):
            await fast(1)
            if not crashed:
                crashed.append(True)
                raise Crash
            return await fast(2)

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        assert await sf.run(flow, id="r") == "fast 2"


@pytest.mark.parametrize("settles", ["on replay", "before the crash"])
async def test_an_effect_cut_short_by_a_timeout_times_out_again_although_it_happened(
    db: Path, ledger: Ledger, settles: str
) -> None:
    """Live the block ended with TimeoutError; on replay the effect is settled, and the block must still time out."""
    seen: list[str] = []

    @effect(keyed(window=3600))
    async def send(attempt: Attempt) -> str:
        ledger.post(attempt.key, "sent")
        await asyncio.sleep(5 if len(ledger.requests) == 1 else 0)
        return "sent"

    @workflow
    async def flow() -> None:
        try:
            async with surefoot.timeout(0.5):
                await send()
        except TimeoutError:
            seen.append("timed out")
        else:
            seen.append("in time")
        if settles == "before the crash" and len(seen) == 1:
            await asyncio.sleep(0)
        if len(seen) == 1:
            raise Crash

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        await sf.run(flow, id="r")
    assert seen == ["timed out", "timed out"] and ledger.things == ["sent"]


async def test_a_step_recorded_at_the_moment_of_the_timeout_times_out_again(db: Path) -> None:
    """The step's record was on its way when the timer fired: it is kept, and the block still timed out."""
    for pause in (0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007):
        path = db.with_name(f"{pause}.db")

        @step
        async def busy(pause: float = pause) -> str:
            until = asyncio.get_running_loop().time() + 0.01 + pause - 0.004
            while asyncio.get_running_loop().time() < until:  # noqa: ASYNC110
                await asyncio.sleep(0)
            return "busy"

        live, replayed = await live_and_replayed_async(path, lambda busy=busy: limited(0.01, busy))
        assert live == replayed


async def test_what_follows_a_timeout_replays_as_it_went(db: Path) -> None:
    crashed: list[bool] = []

    @workflow
    async def flow() -> str:
        if await limited(0.02, two_steps) == "timed out":
            answer = await fast(9)
        else:
            answer = await slow(9)
        if not crashed:
            crashed.append(True)
            raise Crash
        return answer

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        before = slots(sf, "r")
        assert await sf.run(flow, id="r") == "fast 9"
        assert slots(sf, "r") == before


def test_timeout_in_a_def_workflow_names_the_way(db: Path) -> None:
    @workflow
    def flow() -> str:
        with pytest.raises(UsageError, match=r"@step\(timeout="):
            surefoot.timeout(5)
        return "refused"

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == "refused"
