"""A fleet: a store, a ledger, and workers that are real processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import Line, read_ledger
from tests.crash.conftest import quick_path as quick_path

PATIENCE_SECONDS = 40.0


def until(true: Callable[[], Any], what: str, *, seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until it is true, and return what it gave; a test that fails says what it waited for."""
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up, f"waited {seconds:g} s for: {what}"
        time.sleep(0.01)
    return found


class Fleet:
    """One store, one ledger, and the workers that a test starts."""

    def __init__(self, server: ForkServer, folder: Path, url: str) -> None:
        self.server, self.url = server, url
        self.ledger_path, self.gate = folder / "ledger.jsonl", folder / "go on"
        self.ledger_path.touch()
        self.sf = Surefoot(url, lease=60.0)
        self.children: list[Child] = []

    def worker(self, queues: tuple[str, ...] = ("default",), *, wait: bool = True, **options: Any) -> Child:
        """A worker process, that has announced itself unless told otherwise."""
        child = self.server.start(
            "work_as", self.url, str(self.ledger_path), str(self.gate), {"queues": list(queues), **options}
        )
        self.children.append(child)
        if wait:
            assert child.read(PATIENCE_SECONDS, until="ready"), child.lines
        return child

    def owner(self, child: Child) -> int:
        """The number under which a worker owns runs."""
        said = child.said("ready ")
        assert said is not None, child.lines
        return int(said)

    def lines(self, what: str = "") -> list[Line]:
        """What was written down, in order."""
        return [line for line in read_ledger(self.ledger_path) if not what or line.what == what]

    def count(self, what: str) -> Counter[str]:
        """How often each thing was written down."""
        return Counter(line.name for line in self.lines(what))

    def effects(self) -> Counter[str]:
        """How often the world changed, by the effect's name: a key that came before changes nothing."""
        return Counter(name for _, name in {(line.key, line.name) for line in self.lines("performed")})

    def statuses(self) -> Counter[str]:
        """How many runs are in each status."""
        return Counter(str(run.status) for run in self.sf.store.find_runs(limit=10_000))

    def until_ended(self, count: int, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until so many runs have succeeded."""
        until(lambda: self.statuses()["succeeded"] >= count, f"{count} runs to succeed", seconds=seconds)

    def close(self) -> None:
        """End what is left."""
        for child in self.children:
            try:
                child.signal(9)
            except ProcessLookupError:
                continue
        self.sf.close()


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.worker.fleet") as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, server: ForkServer, quick_path: Path) -> Iterator[Fleet]:
    """A fleet on each store that several processes can share."""
    yield from _fleet(request, server, quick_path, request.param)


@pytest.fixture
def small_fleet(request: pytest.FixtureRequest, server: ForkServer, quick_path: Path) -> Iterator[Fleet]:
    """A fleet on SQLite, for what no store can change."""
    yield from _fleet(request, server, quick_path, "sqlite")


def _fleet(request: pytest.FixtureRequest, server: ForkServer, folder: Path, kind: str) -> Iterator[Fleet]:
    url = str(folder / "fleet.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with ExitStack() as stack:
        fleet = Fleet(server, folder, url)
        stack.callback(fleet.close)
        yield fleet
