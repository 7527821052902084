"""What the runtime tests share: a crash, a clock that needs no waiting, a ledger, a look at the store from outside."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from surefoot import Surefoot, workflow
from surefoot.core.effect import Do, Effect, Event, Evidence, Status
from surefoot.core.journal import FENCE
from surefoot.core.writes import Answer, DecideEffect
from surefoot.runtime import step as step_module

ROOT = Path(__file__).resolve().parents[2]
_stamps = itertools.count(1 << 62)


class Crash(BaseException):
    """Ends a workflow as a crash between two steps would: no `except Exception` sees it, and the run is unfinished."""


class FakeClock:
    """Time that passes only by sleeping, and then at once."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self.time = start
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def lease_now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
        await asyncio.sleep(0)


class Ledger:
    """A receiver that honours keys: what it did, in order, once a key."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.done: dict[str, Any] = {}

    def post(self, key: str, thing: Any) -> Any:
        """Perform once under this key; every request is counted."""
        self.requests.append(key)
        return self.done.setdefault(key, thing)

    @property
    def things(self) -> list[Any]:
        """What was really done, in order."""
        return list(self.done.values())


def restart() -> None:
    """A new process, perhaps of changed code, knows no workflow of the old one's."""
    step_module._workflows.clear()


def slots(sf: Surefoot, run_id: str) -> list[str]:
    """The slots of what was recorded in a run, in order, without the places that were taken from its owners."""
    read = sf.store.read_run(run_id)
    assert read is not None
    return [entry.slot for entry in read[1] if not entry.slot.startswith(FENCE)]


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the file but its owners, read over a connection of our own."""
    db = sqlite3.connect(path)
    try:
        tables = ("runs", "entries", "effects", "blobs")
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables}
    finally:
        db.close()


def recorded_slots(path: Path) -> list[str]:
    """The slots on disk, in order, seen from outside."""
    return [row[6] for row in rows(path)["entries"] if not row[6].startswith(FENCE)]


def the_effect(sf: Surefoot, status: Status | None = None) -> Effect:
    """The only effect in the store, in that status."""
    (found,) = sf.store.find_effects([status] if status else [])
    return found


def decide(sf: Surefoot, effect: Effect, do: Do, *, receipt: bytes = b"", why: str = "asked the receiver") -> Answer:
    """What `surefoot resolve` writes."""
    at = effect.updated_at + 1
    evidence = Evidence(at=at, kind="decision", found=do, text=why, who="tester")
    event = Event(do=do, at=at, receipt=receipt, reason=why, evidence=evidence)
    (answer,) = sf.store.transact([DecideEffect(key=effect.key, event=event, stamp=next(_stamps))])
    return answer


def live_and_replayed(db: Path, ask: Callable[[], Any]) -> tuple[Any, Any]:
    """What a workflow gets from `ask()` when it happens, and what it gets after a crash right behind it."""
    seen: list[Any] = []

    @workflow(name="live and replayed")
    def observe() -> None:
        try:
            seen.append(ask())
        except Exception as error:
            seen.append(error)
        if len(seen) == 1:
            raise Crash

    for _ in range(2):
        with Surefoot(db) as sf:
            try:
                sf.run(observe, id="observed")
            except Crash:
                continue
    return seen[0], seen[1]


async def live_and_replayed_async(db: Path, ask: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
    """The same for `async def`."""
    seen: list[Any] = []

    @workflow(name="live and replayed, async")
    async def observe() -> None:
        try:
            seen.append(await ask())
        except Exception as error:
            seen.append(error)
        if len(seen) == 1:
            raise Crash

    for _ in range(2):
        async with Surefoot(db) as sf:
            try:
                await sf.run(observe, id="observed")
            except Crash:
                continue
    return seen[0], seen[1]


def child(folder: Path, program: str, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start_child(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program in a process of its own; its output can be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program, *arguments],
        cwd=folder,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def child_environment() -> dict[str, str]:
    """Ours, with the source tree first."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
