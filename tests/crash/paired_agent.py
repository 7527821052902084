"""Jobs of processes that share one store: they race, stop themselves with SIGSTOP, and hold each other up."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from surefoot import RunBusy, Surefoot, create_receipts_table, effect, keyed, same_transaction, step, workflow
from surefoot.core.commands import SendEffect
from surefoot.testing.crash import When, strike_at
from surefoot.testing.receiver import post

Say = Callable[[str], object]
TIMEOUT = 0.2
PORT = [0]
SAY: list[Say] = [print]
HOLD: list[Path] = []
STOPS_IN_BODY = [False]
DIES_IN_BODY = [False]


def say(line: str) -> None:
    SAY[0](line)


@step
def work(part: str) -> str:
    say(f"exec {part}")
    time.sleep(0.02)
    return part


@step
def hold() -> str:
    """Takes until the file of this test appears."""
    say("exec hold")
    while HOLD and not HOLD[0].exists():
        time.sleep(0.01)
    return "held"


@workflow
def shared(run: str) -> list[str]:
    say("body")
    parts = []
    for part in ("a", "b", "c", "d"):
        parts.append(work(part))
        say(f"ack {part}")
    return [*parts, hold()]


@effect(keyed(window=600), timeout=TIMEOUT)
def notify(attempt: Any, name: str, text: str) -> dict[str, Any]:
    say("sending")
    if STOPS_IN_BODY[0]:
        STOPS_IN_BODY[0] = False
        stop_here()
    return post(PORT[0], "keyed", name, {"text": text}, headers=attempt.headers, timeout=attempt.timeout)


@workflow
def errand(run: str) -> dict[str, Any]:
    text = work("think")
    receipt = notify(run, text)
    return {"receipt": receipt, "after": work("after")}


def stop_here() -> None:
    """Stand still as a suspended machine does, until somebody sends SIGCONT."""
    say("stopping")
    os.kill(os.getpid(), signal.SIGSTOP)
    say("woke")


# --- jobs ---------------------------------------------------------------------------------------------------------


def run_shared(tell: Say, db: str, run: str, lease: float, hold_file: str, when_running: str) -> None:
    """Run, resume or wait for the shared run."""
    SAY[0] = tell
    if hold_file:
        HOLD[:] = [Path(hold_file)]
    with Surefoot(db, lease=lease) as surefoot:
        say("ready")
        try:
            say(f"result {surefoot.run(shared, run, id=run, when_running=when_running)}")  # type: ignore[call-overload]
        except RunBusy as busy:
            say(f"busy {busy.holder}")


def run_errand(tell: Say, db: str, port: int, run: str, number: int, when: When, stops_in_body: bool) -> None:
    """Run the errand; stand still before or after command `number` (0: never), or inside the effect's body."""
    SAY[0], PORT[0], STOPS_IN_BODY[0] = tell, port, stops_in_body
    with Surefoot(db, lease=0.5) as surefoot:
        driver = strike_at(number, stop_here, when=when).drive(surefoot)
        result = surefoot.run(errand, run, id=run)
        say(f"struck {driver.struck}")
        say(f"result {msgspec.json.encode(result).decode()}")


def hold_lock(tell: Say, db: str, seconds: float) -> None:
    """A stranger's write transaction on the store's file."""
    stranger = sqlite3.connect(db, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    tell("locked")
    time.sleep(seconds)
    stranger.execute("ROLLBACK")
    tell("released")


# --- the user's own database --------------------------------------------------------------------------------------

APP = [""]
ISOLATION: list[str | None] = [None]


def connect_app() -> sqlite3.Connection:
    return sqlite3.connect(APP[0], isolation_level=ISOLATION[0])  # type: ignore[arg-type]


@effect(same_transaction(connect_app), timeout=TIMEOUT)
def book(attempt: Any, order: str) -> dict[str, str]:
    attempt.connection.cursor().execute("INSERT INTO orders VALUES (?)", (order,))
    say("inserted")
    if DIES_IN_BODY[0]:
        die()
    return {"order": order}


@workflow
def booking(order: str) -> dict[str, str]:
    return book(order)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_booking(tell: Say, db: str, app: str, driver: str, place: str) -> None:
    """Book an order in the user's database, and die at `place`: body, before, after, or nowhere."""
    SAY[0], APP[0], ISOLATION[0] = tell, app, None if driver == "autocommit" else "DEFERRED"
    DIES_IN_BODY[0] = place == "body"
    setup = sqlite3.connect(app)
    create_receipts_table(setup)
    setup.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT)")
    setup.commit()
    setup.close()
    with Surefoot(db) as surefoot:
        when: When = "before" if place == "before" else "after"
        strike_at(1 if place in ("before", "after") else 0, die, when=when, kind=SendEffect).drive(surefoot)
        say(f"result {surefoot.run(booking, 'o1', id='o1')}")


def open_and_close(tell: Say, db: str) -> None:
    """Open, appear in the store, and leave."""
    with Surefoot(db) as surefoot:
        surefoot.engine.join()
        tell("joined")
