"""The agent of the soak: nine steps and three effects, in a worker that is forked, killed, stopped and started again.

Nothing here is random, so that a key is enough: a step that is lost with a failover writes the same request again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import surefoot.runtime.worker
import surefoot.stores.postgres.store
import surefoot.stores.sqlite.store  # noqa: F401
from surefoot import Surefoot, effect, keyed, lookup, opaque, step, workflow
from surefoot.core.errors import StoreRefused
from surefoot.testing.receiver import find, post

TIMEOUT, LAG = 1.0, 0.05
PROMISES = ("keyed", "lookup", "opaque")
STEPS_EACH = 3
RESTARTS_MAX = 50
PORT = [0]


@step
def think(about: str) -> str:
    return f"thought about {about}"


def request(attempt: Any, promise: str, name: str, text: str) -> dict[str, Any]:
    return post(PORT[0], promise, name, {"text": text}, headers=attempt.headers, timeout=attempt.timeout)


@effect(keyed(window=3600), timeout=TIMEOUT)
def open_ticket(attempt: Any, name: str, text: str) -> dict[str, Any]:
    return request(attempt, "keyed", name, text)


@effect(lookup(lag=LAG), timeout=TIMEOUT)
def page(attempt: Any, name: str, text: str) -> dict[str, Any]:
    return request(attempt, "lookup", name, text)


@page.lookup
def paged(attempt: Any, name: str, text: str) -> dict[str, Any] | None:
    found = find(PORT[0], name, timeout=TIMEOUT)
    return found[0] if found else None


@effect(opaque(), timeout=TIMEOUT)
def send_mail(attempt: Any, name: str, text: str) -> dict[str, Any]:
    return request(attempt, "opaque", name, text)


@workflow
def onboard(run: str) -> dict[str, Any]:
    """Three times: think thrice, then act; the order of the effects differs from run to run."""
    receipts: dict[str, Any] = {}
    first = sum(run.encode()) % len(PROMISES)
    for promise in (*PROMISES[first:], *PROMISES[:first]):
        texts = [think(f"{run} {promise} {number}") for number in range(STEPS_EACH)]
        act = {"keyed": open_ticket, "lookup": page, "opaque": send_mail}[promise]
        receipts[promise] = act(f"{run}.{promise}", texts[-1])
    return receipts


def work(say: Callable[[str], object], url: str, port: int, lease: float, concurrency: int) -> None:
    """A worker's life, in a forked child: until SIGTERM, or a kill."""
    PORT[0] = port
    with when_reachable(url, lease) as sf:
        say("works")
        sf.work([onboard], queues=("soak",), concurrency=concurrency)


def when_reachable(url: str, lease: float) -> Surefoot:
    """A program that starts while its database is away is refused; whoever supervises it starts it again."""
    for _ in range(RESTARTS_MAX):
        try:
            return Surefoot(url, lease=lease)
        except StoreRefused:
            time.sleep(0.2)
    return Surefoot(url, lease=lease)
