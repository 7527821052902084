"""The agent of the tests of children and cancellation: each function here runs in a forked process that may be killed.

The receiver is a ledger on disk that honours keys: the same key again is written down as repeated.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import surefoot
from surefoot import Child, RunCancelled, Surefoot, effect, keyed, step, workflow
from surefoot.core.commands import Commit
from surefoot.testing.crash import strike_at
from surefoot.testing.ledger import Ledger, Line, read_ledger

SAY: list[Callable[[str], object]] = [print]
LEDGER = [Path("ledger.jsonl")]


def post(attempt: Any, name: str) -> str:
    """Do it once under this key, and write that down."""
    path = LEDGER[0]
    known = path.exists() and any(line.key == attempt.key for line in read_ledger(path))
    ledger = Ledger(path)
    ledger.add(Line(what="repeated" if known else "performed", name=name, key=attempt.key, at=0.0))
    ledger.close()
    return name


@effect(keyed(window=86400))
def act(attempt: Any, name: str) -> str:
    SAY[0](f"acting {name}")
    return post(attempt, name)


@act.compensate
@effect(keyed(window=86400))
def unact(attempt: Any, name: str) -> None:
    post(attempt, f"undo {name}")


@step
def think(about: str) -> str:
    SAY[0](f"exec {about}")
    return about.upper()


@workflow
def child(name: str) -> str:
    return act(think(name))


@workflow
async def child_async(name: str) -> str:
    return act(think(name))


@workflow
def parent(names: list[str]) -> list[str]:
    first: list[Child[str]] = [surefoot.start_child(child, name) for name in names]
    think("meanwhile")
    return [one.result() for one in first] + [surefoot.call(child, "last")]


@workflow
async def parent_async(names: list[str]) -> list[str]:
    first = [surefoot.start_child(child_async, name) for name in names]
    think("meanwhile")
    return [await one for one in first] + [await surefoot.call(child_async, "last")]


@workflow
def slow(name: str) -> str:
    act(f"{name} 1")
    act(f"{name} 2")
    SAY[0](f"waits {name}")
    surefoot.wait_for("go")
    return act(f"{name} 3")


@workflow
def busy(name: str) -> None:
    act(f"{name} 1")
    for turn in range(10_000):
        think(f"{name} turn {turn}")
        time.sleep(0.01)
    act(f"{name} 2")


@workflow
def family(name: str) -> str:
    one = surefoot.start_child(slow, f"{name} child")
    try:
        return one.result()
    except RunCancelled:
        return "cancelled child"


@workflow
def hasty(name: str) -> None:
    surefoot.call(busy, f"{name} child")


FAMILIES = {"def": parent, "async": parent_async}


def bear(say: Callable[[str], None], db: str, ledger: str, kind: str, number: int) -> None:
    """Run a parent with three children, killed after its `number`-th commit (0: never)."""
    SAY[0], LEDGER[0] = say, Path(ledger)
    with Surefoot(db) as sf:
        strike_at(number, lambda: os.kill(os.getpid(), signal.SIGKILL), when="after", kind=Commit).drive(sf)
        result: Any = sf.run(FAMILIES[kind], ["a", "b"], id="p")
        if kind == "async":
            import asyncio

            result = asyncio.run(result)
        say(f"result {result}")


def run(say: Callable[[str], None], db: str, ledger: str, name: str, run_id: str) -> None:
    """Run one workflow to its end here."""
    SAY[0], LEDGER[0] = say, Path(ledger)
    with Surefoot(db) as sf:
        say("begins")
        try:
            say(f"result {sf.run({'slow': slow, 'busy': busy, 'family': family}[name], run_id, id=run_id)}")
        except RunCancelled:
            say("cancelled")


def work(say: Callable[[str], None], db: str, ledger: str, seconds: float) -> None:
    """A worker of the queue `default`, for so long."""
    SAY[0], LEDGER[0] = say, Path(ledger)
    with Surefoot(db) as sf, sf.worker([parent, parent_async, child, child_async, slow, busy, family, hasty]):
        say("works")
        time.sleep(seconds)
