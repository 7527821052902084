"""A receiver for a whole module, and shops on both databases."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot
from surefoot.testing.clock import FakeClock
from surefoot.testing.ledger import Line, read_ledger
from tests.outbox import world
from tests.outbox.world import make_shop


class Post:
    """The receiver's process: its port, and what it has done."""

    def __init__(self, port: int, ledger: Path) -> None:
        self.port, self.ledger = port, ledger

    def lines(self, name: str) -> list[Line]:
        """What it did under this name."""
        return [line for line in read_ledger(self.ledger) if line.name == name and line.what != "looked_up"]

    def performed(self, name: str) -> int:
        """How often the world changed."""
        return sum(line.what == "performed" for line in self.lines(name))


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Post]:
    ledger = tmp_path_factory.mktemp("receiver") / "ledger.jsonl"
    ledger.touch()
    with world.receiver_process(ledger, getattr(request.module, "RECEIVER_LAG", 0.02)) as port:
        world.PORT[0] = port
        yield Post(port, ledger)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder where an fsync costs nothing, if there is one: a process's death says nothing about the disk."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="surefoot-") as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, quick_path: Path) -> str:
    """Where the shop's database is."""
    if request.param == "postgres":
        url: Any = request.getfixturevalue("postgres_url")
        return str(url)
    return str(quick_path / "shop.db")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def virtual(clock: FakeClock) -> Iterator[Surefoot]:
    """A memory store on a clock that the test turns."""
    with Surefoot("memory:", clock=clock) as surefoot:
        yield surefoot


@pytest.fixture
def connect(quick_path: Path) -> Callable[[], Any]:
    return make_shop(str(quick_path / "shop.db"))
