"""A scripted model, a proxy before it, and agents that are forked: all real, all on loopback."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from surefoot import Surefoot
from surefoot.proxy import Options
from surefoot.proxy.address import prefix
from surefoot.proxy.background import Background
from surefoot.proxy.options import read_upstream, with_known
from surefoot.proxy.serving import address_of, listen
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.models import Ask, ModelServer, Say

AGENT = str(Path(__file__).with_name("agent.py"))
_names = itertools.count()


def answer(ask: Ask) -> Say:
    """What is said depends on how many were asked before, so that no answer can be had twice."""
    return Say(text=f"answer {ask.number} to a question of {len(ask.text)} characters")


@pytest.fixture(scope="module")
def agents() -> Iterator[ForkServer]:
    with ForkServer(AGENT) as server:
        yield server


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder where an fsync costs nothing, if this machine has one: kills say nothing about the disk."""
    memory = Path("/dev/shm")
    where = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="surefoot-") as folder:
        yield Path(folder)


@pytest.fixture
def models(folder: Path) -> Iterator[ModelServer]:
    with ModelServer(answer, record=folder / f"paid-{next(_names)}.jsonl") as models:
        yield models


@dataclass(frozen=True)
class Running:
    """A proxy that answers, and its store."""

    url: str
    db: str
    background: Background

    def base(self, run: str, attempt: str, scope: str = "") -> str:
        """The base URL of an OpenAI client."""
        return f"{self.url}{prefix(run=run, attempt=attempt, scope=scope)}/openai/v1"


@pytest.fixture
def proxies(folder: Path, models: ModelServer) -> Iterator[Callable[..., Running]]:
    """Makes proxies on threads of this process, each with a store of its own unless told."""
    made: list[Background] = []

    def make(db: str | None = None, open_store: Callable[[], Surefoot] | None = None, **changes: object) -> Running:
        db = db or str(folder / f"proxy-{next(_names)}.db")
        upstreams = with_known(
            tuple(read_upstream(f"{name}={models.url}") for name in ("openai", "anthropic", "gemini"))
        )
        options = replace(Options(port=0, upstreams=upstreams, patience_seconds=0.3), **changes)
        listener = listen(options)
        made.append(Background(open_store or (lambda: Surefoot(db)), options, listener).__enter__())
        return Running(address_of(listener), db, made[-1])

    yield make
    for background in made:
        background.__exit__()


class ProxyProcess:
    """`surefoot proxy` as a process of its own."""

    def __init__(self, db: str, *options: str) -> None:
        program = "import sys; from surefoot.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "proxy", "--port", "0", "--db", db, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().rpartition(" ")[2].strip()
        assert self.url.startswith("http://"), "the proxy did not start"

    def base(self, run: str, attempt: str) -> str:
        """The base URL of an OpenAI client."""
        return f"{self.url}{prefix(run=run, attempt=attempt)}/openai/v1"

    def end(self) -> int:
        """SIGTERM, and how it ended."""
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture
def processes() -> Iterator[Callable[..., ProxyProcess]]:
    made: list[ProxyProcess] = []

    def make(db: str, *options: str) -> ProxyProcess:
        made.append(ProxyProcess(db, *options))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(60)
