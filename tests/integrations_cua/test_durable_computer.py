"""A durable computer acts once, shows the same screen again, and leaves a click that was cut off to a person.

cua-agent itself is killed in frameworks/cua; here its handler's shape is enough, and the process is forked and killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from surefoot import RunWaiting, Surefoot, UsageError, keyed, lookup, workflow
from surefoot.integrations.cua import durable
from surefoot.integrations.policy import Policy
from surefoot.integrations.tool import attempt
from surefoot.testing.forkserver import ForkServer

AT: dict[str, Any] = {}
CLICK = keyed(timedelta(hours=1))


def note(folder: Path, line: str) -> int:
    """Write down what really happened, and return how often anything did."""
    with (folder / "world").open("a") as file:
        file.write(line + "\n")
    return len(happened(folder))


def happened(folder: Path) -> list[str]:
    path = folder / "world"
    return path.read_text().splitlines() if path.exists() else []


class Machine:
    """A handler as cua-agent knows them; its screen shows how much has happened."""

    def __init__(self, folder: Path, die_at: str = "") -> None:
        self.folder, self.die_at = folder, die_at
        self.owner = "ann"

    async def screenshot(self, text: str | None = None) -> str:
        return f"screen {note(self.folder, 'looked')}"

    async def get_dimensions(self) -> tuple[int, int]:
        return (640, 480)

    async def click(self, x: int, y: int, button: str = "left") -> None:
        note(self.folder, f"click {x} {button} {attempt().key if AT.get('keyed') else ''}".strip())
        if self.die_at == "click":
            os.kill(os.getpid(), signal.SIGKILL)

    async def move(self, x: int, y: int) -> None:
        note(self.folder, f"move {x}")


class Picture:
    """As far as pictures of Pillow matter here."""

    size = (1, 1)

    def save(self, file: Any, format: str) -> None:
        file.write(b"png")


@workflow
async def press_twice() -> list[Any]:
    computer = AT["computer"]
    seen: list[Any] = []
    for _ in range(2):
        await computer.click(1, 2)
        await computer.move(x=3, y=4)
        seen.append(await computer.screenshot())
    if AT["die_at"] == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    return [*seen, repr(await computer.get_dimensions())]


async def _life(folder: Path, die_at: str, rules: Any) -> Any:
    AT.update(computer=durable(Machine(folder, die_at), rules=rules), die_at=die_at)
    async with Surefoot(folder / "agents.db") as surefoot:
        return await surefoot.run(press_twice, id="desk")


def live(say: Any, folder: str, die_at: str, has_key: bool) -> None:
    """One life, in a process of its own."""
    import asyncio

    AT["keyed"] = has_key
    try:
        say(f"result {asyncio.run(_life(Path(folder), die_at, {'click': CLICK} if has_key else None))}")
    except RunWaiting:
        say("waiting")


@pytest.fixture(scope="module")
def agents() -> Iterator[ForkServer]:
    with ForkServer(__file__) as server:
        yield server


def test_what_was_done_and_seen_is_neither_done_nor_seen_again(agents: ForkServer, tmp_path: Path) -> None:
    first = agents.start("live", str(tmp_path), "end", True)
    assert first.join() == -signal.SIGKILL
    before = happened(tmp_path)
    assert [line.split()[0] for line in before] == ["click", "move", "looked"] * 2
    second = agents.start("live", str(tmp_path), "", True)
    assert second.join() == 0
    assert second.said("result") == "['screen 3', 'screen 6', '(640, 480)']"
    assert happened(tmp_path) == before


def test_a_click_that_was_cut_off_is_sent_again_under_its_key(agents: ForkServer, tmp_path: Path) -> None:
    assert agents.start("live", str(tmp_path), "click", True).join() == -signal.SIGKILL
    assert agents.start("live", str(tmp_path), "", True).join() == 0
    clicks = [line.split()[-1] for line in happened(tmp_path) if line.startswith("click")]
    assert len(clicks) == 3
    assert clicks[0] == clicks[1] != clicks[2]


def test_a_click_of_which_nothing_is_known_waits_for_a_person(agents: ForkServer, tmp_path: Path) -> None:
    assert agents.start("live", str(tmp_path), "click", False).join() == -signal.SIGKILL
    second = agents.start("live", str(tmp_path), "", False)
    assert second.join() == 0
    assert second.lines == ["waiting"]
    assert [line.split()[0] for line in happened(tmp_path)] == ["click"]


async def test_a_lookup_tells_of_a_click(tmp_path: Path) -> None:
    asked: list[str] = []

    async def seen(attempt: Any, x: int, y: int, button: str) -> dict[str, Any]:
        asked.append(f"{x} {button}")
        return {"plain": None}

    class Lost(Machine):
        async def click(self, x: int, y: int, button: str = "left") -> None:
            note(self.folder, "click")
            raise TimeoutError

    rule = Policy(contract=lookup(timedelta(milliseconds=10)), lookup=seen, timeout=0.05, identity="press:{x}")

    @workflow
    async def press_once() -> Any:
        return await durable(Lost(tmp_path), rules={"click": rule}).click(7, 8)

    async with Surefoot("memory:") as surefoot:
        assert await surefoot.run(press_once, id="x") is None
    assert (asked, happened(tmp_path)) == (["7 left"], ["click"])


async def test_functions_in_a_dict_and_pictures_of_each_kind(tmp_path: Path) -> None:
    clicked: list[Any] = []
    functions = {
        "screenshot": lambda: Picture(),
        "get_current_url": lambda: b"raw",
        "click": lambda x, y, button="left": clicked.append((x, y, button)),
        "environment": "linux",
        "dimensions": (2, 3),
    }

    @workflow
    async def look() -> list[Any]:
        computer = durable(functions, rules={"click": CLICK})
        assert (computer["environment"], computer["dimensions"]) == ("linux", (2, 3))
        await computer["click"](5, 6, "right")
        return [repr(await computer["screenshot"]()), repr(await computer["get_current_url"]())]

    async with Surefoot("memory:") as surefoot:
        assert await surefoot.run(look, id="x") == ["b'png'", "b'raw'"]
    assert clicked == [(5, 6, "right")]


async def test_outside_a_run_it_can_be_looked_at_and_not_acted_on(tmp_path: Path) -> None:
    computer = durable(Machine(tmp_path), rules={"click": False})
    await computer.click(1, 2)  # not gated
    assert computer.owner == "ann"
    assert await computer.screenshot() == "screen 2"
    with pytest.raises(UsageError, match="outside a run"):
        await computer.move(3, 4)
    assert happened(tmp_path) == ["click 1 left", "looked"]


def test_a_rule_for_what_the_computer_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rules name tap; this computer has click"):
        durable(Machine(tmp_path), rules={"tap": "read"})
