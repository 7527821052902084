"""What the outbox's tests share: a shop's database, a receiver in a process of its own, effects of each contract.

Also the jobs of processes that are really killed; each runs in a forked process and opens everything after the fork.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from surefoot import Surefoot, effect, keyed, lookup, opaque, outbox
from surefoot.core.commands import Commit, SendEffect
from surefoot.testing.crash import strike_at
from surefoot.testing.receiver import find, post

TIMEOUT, ASKED_TIMEOUT, LAG = 20.0, 1.0, 0.05
"""Long enough that only what is killed or told to fail is ever in doubt, also on a busy machine."""
PORT = [0]
Say = Callable[[str], object]


def request(attempt: Any, promise: str, name: str, body: dict[str, Any], fault: str) -> dict[str, Any]:
    return post(PORT[0], promise, name, body, fault=fault, headers=attempt.headers, timeout=attempt.timeout)


@effect(keyed(window=600), timeout=TIMEOUT, name="outbox.keyed")
def keyed_mail(attempt: Any, name: str, text: str = "hello", fault: str = "") -> dict[str, Any]:
    return request(attempt, "keyed", name, {"text": text}, fault)


@effect(lookup(lag=LAG), timeout=ASKED_TIMEOUT, name="outbox.lookup")
def lookup_mail(attempt: Any, name: str, text: str = "hello", fault: str = "") -> dict[str, Any]:
    return request(attempt, "lookup", name, {"text": text}, fault)


@lookup_mail.lookup
def _(attempt: Any, name: str, text: str, fault: str) -> dict[str, Any] | None:
    found = find(PORT[0], name, timeout=TIMEOUT)
    return found[0] if found else None


@effect(opaque(), timeout=TIMEOUT, name="outbox.opaque")
def opaque_mail(attempt: Any, name: str, text: str = "hello", fault: str = "") -> dict[str, Any]:
    return request(attempt, "opaque", name, {"text": text}, fault)


@effect(keyed(window=600), timeout=TIMEOUT, identity="review:{name}", name="outbox.review")
def review(attempt: Any, name: str, text: str = "hello", fault: str = "") -> dict[str, Any]:
    return request(attempt, "keyed", name, {"text": text}, fault)


@effect(keyed(window=600), timeout=TIMEOUT, name="outbox.async")
async def async_mail(attempt: Any, name: str, text: str = "hello", fault: str = "") -> dict[str, Any]:
    return request(attempt, "keyed", name, {"text": text}, fault)


@effect(keyed(window=600), timeout=TIMEOUT, name="outbox.poison")
def poison_mail(attempt: Any, name: str) -> None:
    die()


MAILS = {"keyed": keyed_mail, "lookup": lookup_mail, "opaque": opaque_mail}


@contextmanager
def receiver_process(ledger: Path, lag: float = 0.02) -> Iterator[int]:
    """A receiver that fsyncs its ledger, over a loopback socket; its port. What it did shows `lag` seconds later."""
    command = [sys.executable, "-m", "surefoot.testing.receiver", str(ledger), "0.3", str(lag)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    yield int(process.stdout.readline())
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


# --- the shop -----------------------------------------------------------------------------------------------------


def connector(where: str) -> Callable[[], Any]:
    """How the shop connects to its own database: a path, or a PostgreSQL URL."""
    if where.startswith("postgresql://"):
        import psycopg

        return lambda: psycopg.connect(where)
    return lambda: sqlite3.connect(where, timeout=30)


def make_shop(where: str) -> Callable[[], Any]:
    connect = connector(where)
    connection = connect()
    connection.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
    outbox.create_outbox_table(connection)
    connection.close()
    return connect


def order(connection: Any, name: str, mail: Any, *args: Any, **options: Any) -> str:
    """The business change and the wish, in one transaction that is still open."""
    connection.execute(f"INSERT INTO orders VALUES ('{name}')")
    return outbox.put(connection, mail, name, *args, **options)


def orders(connect: Callable[[], Any]) -> list[str]:
    connection = connect()
    found = sorted(row[0] for row in connection.execute("SELECT id FROM orders").fetchall())
    connection.close()
    return found


def states(connect: Callable[[], Any]) -> dict[str, str]:
    connection = connect()
    rows = connection.execute("SELECT id, state FROM surefoot_outbox ORDER BY number").fetchall()
    connection.close()
    return {str(id): str(state) for id, state in rows}


# --- processes that are killed ------------------------------------------------------------------------------------


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def put_and_stop(say: Say, where: str, name: str, promise: str, commits: bool) -> None:
    connection = connector(where)()
    order(connection, name, MAILS[promise], id=name)
    if commits:
        connection.commit()
    say("here")
    time.sleep(60)


class Deadly(sqlite3.Connection):
    """Dies around the commit of the statement that holds `words`."""

    words, when = "", ""

    def watch(self, words: str, when: str) -> sqlite3.Connection:
        self.words, self.when, self.seen = words, when, False
        self.set_trace_callback(self.look)
        return self

    def look(self, statement: str) -> None:
        self.seen = self.seen or (bool(self.words) and self.words in statement)

    def commit(self) -> None:
        if self.when == "before" and self.seen:
            die()
        super().commit()
        if self.when == "after" and self.seen:
            die()


STORE_POINTS = {
    "before the intent": (1, "before", Commit),
    "before the send": (1, "before", SendEffect),
    "after the receiver acted": (1, "after", SendEffect),
    "before it is confirmed": (2, "before", Commit),
    "after it is confirmed": (2, "after", Commit),
}
TABLE_POINTS = {
    "before the claim": ("claims BETWEEN 0 AND 0", "before"),
    "after the claim": ("claims BETWEEN 0 AND 0", "after"),
    "before the mark": ("ended_at = 1", "before"),
    "after the mark": ("ended_at = 1", "after"),
}


def deliver_and_die(say: Say, store: str, where: str, port: int, point: str) -> None:
    PORT[0] = port
    words, when = TABLE_POINTS.get(point, ("", ""))
    with Surefoot(store) as sf:
        if point in STORE_POINTS:
            number, moment, kind = STORE_POINTS[point]
            strike_at(number, die, when=moment, kind=kind).drive(sf)  # type: ignore[arg-type]
        outbox.deliver(sf, lambda: sqlite3.connect(where, factory=Deadly).watch(words, when), workers=1)


def deliver_all(say: Say, store: str, where: str, port: int) -> None:
    """Deliver until nothing is waiting any more."""
    PORT[0] = port
    connect = connector(where)
    with Surefoot(store) as sf:
        say("ready")
        while "waiting" in states(connect).values():
            outbox.deliver(sf, connect)
            time.sleep(0.02)
    say("done")
