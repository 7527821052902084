"""A message is read once wherever the process dies: at every command, and by real SIGKILL around every commit."""

from __future__ import annotations

import contextvars
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Surefoot, step, workflow
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.crash import CrashDriver, SimulatedCrash, abandon, crash_at
from surefoot.testing.forkserver import ForkServer
from tests.waits.killed import RESULT, listener
from tests.waits.support import read_messages

COMMANDS_MIN = 12


@step
def note(value: Any) -> Any:
    return value


@workflow
def flow() -> list[Any]:
    told = [note(surefoot.wait_for("go"))]
    try:
        surefoot.wait_for("never", within=10)
    except TimeoutError:
        told.append("in vain")
    surefoot.sleep(100)
    both = surefoot.gather(lambda: surefoot.wait_for("late"), lambda: note(surefoot.wait_for("go")))
    return [*told, *both]


@workflow
async def flow_async() -> list[Any]:
    told = [await surefoot.wait_for("go")]
    try:
        await surefoot.wait_for("never", within=10)
    except TimeoutError:
        told.append("in vain")
    index, value = await surefoot.first(surefoot.wait_for("never"), surefoot.wait_for("late"))
    return [*told, index, value, await surefoot.wait_for("go")]


class World:
    """One store, one clock; two messages were sent before, the third comes after a while."""

    def __init__(self, place: Any) -> None:
        self.place, self.clock = place, FakeClock()
        self.sender = Surefoot(place, clock=self.clock)

    def begin(self, flow: Any) -> None:
        self.sender.start(flow, id="r", queue="default")
        self.sender.signal("r", "go", 1)
        self.sender.signal("r", "go", 2)
        self.clock.at(60, lambda: contextvars.Context().run(self.sender.signal, "r", "late", 3, message="late"))

    def live(self, driver: CrashDriver | None, run: Any) -> Any:
        sf = Surefoot(self.place, clock=self.clock)
        if driver is not None:
            driver.drive(sf)
        try:
            return run(sf)
        except SimulatedCrash:
            abandon(sf)
            return None


def places(store: str, quick_path: Path) -> Iterator[Any]:
    for number in itertools.count():
        yield MemoryStore() if store == "memory" else str(quick_path / f"{number}.db")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_crash_at_any_command_loses_and_repeats_no_message(store: str, when: Any, quick_path: Path) -> None:
    struck: Counter[str] = Counter()
    for number, place in zip(itertools.count(1), places(store, quick_path), strict=False):
        world, driver = World(place), crash_at(number, when=when)
        world.begin(flow)
        result = world.live(driver, lambda sf: sf.run(flow, id="r"))
        if driver.struck:
            assert result is None
            struck[driver.struck] += 1
            result = world.live(None, lambda sf: sf.run(flow, id="r"))
        assert result == [1, "in vain", 3, 2]
        assert sorted(read_messages(world.sender, "r")) == [1, 2, 3]
        if not driver.struck:
            assert number > COMMANDS_MIN
            break
    assert {"Commit", "Record", "ReadRun"} <= set(struck)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_command_of_async_code_loses_and_repeats_no_message(when: Any, quick_path: Path) -> None:
    for number, place in zip(itertools.count(1), places("memory", quick_path), strict=False):
        world, driver = World(place), crash_at(number, when=when)
        world.begin(flow_async)
        result: Any = None
        for life in (driver, None):
            sf = Surefoot(place, clock=world.clock)
            if life is not None:
                life.drive(sf)
            try:
                result = await sf.run(flow_async, id="r")
                break
            except SimulatedCrash:
                abandon(sf)
        assert result == [1, "in vain", 1, 3, 2]
        assert sorted(read_messages(world.sender, "r")) == [1, 2, 3]
        if not driver.struck:
            assert number > COMMANDS_MIN
            break


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer("tests.waits.killed")
    yield server
    server.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_around_any_commit_of_the_sender_and_the_same_id_again_is_one_message(
    url: str, when: str, server: ForkServer
) -> None:
    """Killed before the n-th commit, after it, and so on; then all is sent again."""
    with Surefoot(url) as sf:
        sf.start(listener, id="r", queue="default")
        for number in itertools.count(1):
            child = server.start("send", url, number, when)
            status = child.join()
            if child.said("sent") is not None:
                assert status == 0 and number > 3
                break
            assert status == -9 and child.said(f"dies {when} commit {number}")
        assert [mail.id for mail in sf.store.board.read_mail("r")] == ["m1", "m2", "m3"]
        assert sf.run(listener, id="r") == RESULT


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_around_any_commit_of_the_reader_loses_and_repeats_no_message(
    url: str, when: str, server: ForkServer
) -> None:
    """The process dies at its n-th commit, its successor at the n+1-th, until one lives to the end."""
    with Surefoot(url) as sf:
        sf.start(listener, id="r", queue="default")
        for value in (1, 2, 3):
            sf.signal("r", "go", value)
        kills, number = 0, 1
        while True:
            child = server.start("run", url, number, when)
            status = child.join()
            if child.said("result") is not None:
                break
            assert status == -9 and child.said(f"dies {when} commit {number}"), child.lines
            kills, number = kills + 1, number + 1
        assert child.said("result") == str(RESULT) and kills >= 4
        assert read_messages(sf, "r") == [1, 2, 3]
