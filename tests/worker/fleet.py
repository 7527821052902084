"""The code that the workers of these tests run, as processes of their own. Everything that counts is in a ledger."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import surefoot
from surefoot import Surefoot, effect, keyed, step, workflow
from surefoot.testing.ledger import Ledger, Line

Say = Callable[[str], object]
LEDGER: list[Ledger] = []
HOLD: list[Path] = []


def note(what: str, name: str, key: str = "") -> None:
    """Write it down, durably: who did it stands in `body`."""
    LEDGER[0].add(Line(what=what, name=name, at=time.monotonic(), key=key, body=str(os.getpid())))


@step
def touch(name: str) -> str:
    note("begun", name)
    note("ended", name)
    return name


@step
def stay(name: str, seconds: float) -> str:
    """A step that takes a while."""
    note("begun", name)
    time.sleep(seconds)
    note("ended", name)
    return name


@step
def hold(name: str) -> str:
    """A step that takes until the test's file is there."""
    note("begun", name)
    while not HOLD[0].exists():
        time.sleep(0.01)
    note("ended", name)
    return name


@step
async def touch_async(name: str) -> str:
    note("begun", name)
    note("ended", name)
    return name


@effect(keyed(window=3600), timeout=5.0)
def send(attempt: Any, name: str) -> str:
    """The ledger is the receiver: it takes each key once."""
    note("performed", name, attempt.key)
    return name


@workflow
def short(name: str) -> str:
    return touch(name)


@workflow
async def short_async(name: str) -> str:
    return await touch_async(name)


@workflow
def staying(name: str, seconds: float) -> str:
    return stay(name, seconds)


@workflow
def letter(name: str) -> str:
    """Three steps, and an effect between them."""
    touch(f"{name} a")
    touch(f"{name} b")
    send(name)
    return touch(f"{name} c")


@workflow
def held(name: str) -> str:
    touch(f"{name} before")
    hold(name)
    return touch(f"{name} after")


@workflow
def deadly(name: str) -> str:
    touch(name)
    return die(name)


@step
def die(name: str) -> str:
    note("begun", f"{name} dies")
    os.kill(os.getpid(), signal.SIGKILL)
    return name


@workflow
def leaves(name: str) -> str:
    touch(name)
    raise SystemExit(3)


@workflow
def listens(name: str) -> str:
    touch(f"{name} waits")
    return surefoot.wait_for("go", str)


@workflow(name="versioned", version="1")
def versioned_1(name: str) -> str:
    return touch(f"{name} by 1")


@workflow(name="versioned", version="2")
def versioned_2(name: str) -> str:
    return touch(f"{name} by 2")


# --- jobs of a forked process -----------------------------------------------------------------------------------


def work(
    say: Say,
    url: str,
    ledger: str,
    hold: str,
    *,
    queues: list[str],
    concurrency: int = 4,
    lease: float = 60.0,
    grace: float = 10.0,
    only: list[str] | None = None,
) -> None:
    """A worker, until it is told to stop."""
    LEDGER[:] = [Ledger(Path(ledger))]
    HOLD[:] = [Path(hold)]
    logging.basicConfig(level=logging.WARNING)
    code = [globals()[name] for name in only or []]
    with Surefoot(url, lease=lease, grace=grace) as sf:
        threading.Thread(target=_tell, args=(say, sf), daemon=True).start()
        sf.work(code, queues=queues, concurrency=concurrency)
    say("stopped")


def _tell(say: Say, sf: Surefoot) -> None:
    while sf.engine.serves is None or not sf.engine.leased():
        time.sleep(0.005)
    say(f"ready {sf.engine.owner}")
    while sf._switch.asked is None:
        time.sleep(0.005)
    say("asked to stop")


def work_as(say: Say, url: str, ledger: str, hold: str, options: dict[str, Any]) -> None:
    """The same, with options from JSON."""
    work(say, url, ledger, hold, **options)


def run_here(say: Say, url: str, ledger: str, hold: str, name: str) -> None:
    """A process that runs `held` itself, as `sf.run` does."""
    LEDGER[:] = [Ledger(Path(ledger))]
    HOLD[:] = [Path(hold)]
    with Surefoot(url, lease=60.0) as sf:
        say("ready")
        say(f"result {sf.run(held, name, id=name)}")
