"""A token endpoint of the test's own, in its process or as another one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.credentials import TokenContract, strict
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.ledger import Line, read_ledger
from surefoot.testing.oauth import Promise
from tests.credentials.world import World

AGENT = str(Path(__file__).with_name("agent.py"))


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(AGENT) as server:
        yield server


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder where an fsync costs nothing, if this machine has one: kills say nothing about the disk."""
    memory = Path("/dev/shm")
    where = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="surefoot-") as folder:
        yield Path(folder)


class Endpoint:
    """A token endpoint in a process of its own."""

    def __init__(self, path: Path, promise: str, told_seconds: float) -> None:
        self.promise, self.path = promise, path
        command = [sys.executable, "-m", "surefoot.testing.oauth", str(path), promise, "3600", str(told_seconds), "600"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def lines(self, name: str) -> list[Line]:
        """What it did for one family name, in order."""
        return [line for line in read_ledger(self.path) if line.name == name]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@pytest.fixture(scope="module")
def endpoints(folder: Path) -> Iterator[Callable[..., Endpoint]]:
    """Makes endpoints, each with a ledger of its own."""
    made: list[Endpoint] = []

    def make(promise: str, *, told_seconds: float = 3600.0) -> Endpoint:
        made.append(Endpoint(folder / f"ledger-{len(made)}.jsonl", promise, told_seconds))
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.close()


@pytest.fixture
def worlds() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(promise: Promise = Promise.STRICT, receiver: TokenContract | None = None, **options: Any) -> World:
        made.append(World(promise, receiver or strict(), **options))
        return made[-1]

    yield make
    for world in made:
        world.surefoot.close()
