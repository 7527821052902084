"""A shop that speaks MCP, and an agent that is killed while it calls it."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import Line, read_ledger

pytest.importorskip("mcp")

HERE = Path(__file__).parent
SECONDS_MAX = 60.0


class World:
    """The folder that outlives every process, and the shop's process."""

    def __init__(self, folder: Path, shops: ForkServer, agents: ForkServer) -> None:
        self.folder, self._shops, self._agents = folder, shops, agents
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.open_shop()

    def open_shop(self) -> None:
        """Begin to serve, also after it died."""
        self.shop: Child = self._shops.start("serve", str(self.folder), self.port)
        give_up = time.monotonic() + SECONDS_MAX
        while time.monotonic() < give_up:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.shop.read(0.02), "the shop did not open"
        raise AssertionError("the shop did not open in time")

    def start_agent(self, tool: str, run: str = "order", *, trusted: bool = True) -> Child:
        """A life of the agent."""
        return self._agents.start("live", str(self.folder), self.url, tool, run, trusted)

    def agent(self, tool: str, run: str = "order", *, trusted: bool = True) -> tuple[int, str]:
        """A life of the agent to its end: its exit status, and what it said last."""
        child = self.start_agent(tool, run, trusted=trusted)
        assert not child.read(SECONDS_MAX), f"the agent hangs; it said {child.lines}"
        status = child.join()
        return status, child.lines[-1] if child.lines else ""

    def place(self, file: str, where: str = "") -> None:
        """Place a kill."""
        (self.folder / file).write_text(where)

    def lines(self) -> list[Line]:
        path = self.folder / "ledger"
        return read_ledger(path) if path.exists() else []

    def performed(self) -> dict[str, int]:
        return dict(Counter(line.name for line in self.lines() if line.what == "performed"))


@pytest.fixture(scope="module")
def shops() -> Iterator[ForkServer]:
    with ForkServer(str(HERE / "shop.py")) as server:
        yield server


@pytest.fixture(scope="module")
def agents() -> Iterator[ForkServer]:
    with ForkServer(str(HERE / "agent.py")) as server:
        yield server


@pytest.fixture
def world(tmp_path: Path, shops: ForkServer, agents: ForkServer) -> Iterator[World]:
    made = World(tmp_path, shops, agents)
    yield made
    made.shop.kill()
