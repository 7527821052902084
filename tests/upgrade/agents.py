"""The workflows whose journals are kept in `golden_v1.sql`. A name here is in a journal: change none of them."""

from __future__ import annotations

import os
from typing import Any

import surefoot
from surefoot import Attempt, effect, keyed, natural, opaque, step, workflow

SENT: list[tuple[str, str]] = []
"""(effect, key) of every request that left this process."""
DIES_WHILE_SENDING: list[str] = []
"""The process ends in the body of these effects, after the request left."""


def send(name: str, attempt: Attempt) -> None:
    SENT.append((name, attempt.key))
    if name in DIES_WHILE_SENDING:
        os._exit(17)


@step(name="read")
def read(topic: str) -> str:
    return f"notes on {topic}"


@step(name="long read")
def long_read(size: int) -> str:
    return "long " * size


@step(name="fragile", raises=(LookupError,))
def fragile(number: int) -> int:
    raise LookupError(f"no {number}")


@effect(natural(owned=True), name="open ticket", identity="ticket:{title}")
def open_ticket(attempt: Attempt, title: str) -> dict[str, str]:
    send("open ticket", attempt)
    return {"ticket": title}


@effect(keyed(window=3600), name="charge")
def charge(attempt: Attempt, order: str, amount: int) -> dict[str, Any]:
    send("charge", attempt)
    return {"order": order, "amount": amount}


@effect(opaque(), name="mail")
def mail(attempt: Attempt, to: str) -> dict[str, str]:
    send("mail", attempt)
    raise ConnectionResetError("after the receiver acted")


@workflow(name="golden order")
def order(topic: str) -> dict[str, Any]:
    """Every kind of entry: steps, a failure, marks, branches, a large value, effects."""
    notes = [read(topic), *surefoot.gather(lambda: read("left"), lambda: read("right"))]
    try:
        fragile(7)
    except LookupError as error:
        notes.append(str(error))
    if surefoot.patched("twice"):
        notes.append(read(topic))
    at, length = surefoot.now().isoformat(), len(long_read(100))
    return {"notes": notes, "at": at, "length": length, "ticket": open_ticket(topic), "paid": charge(topic, 40)}


@workflow(name="golden charging")
def charging(name: str) -> dict[str, Any]:
    return {"notes": read(name), "paid": charge(name, 40)}


@workflow(name="golden mailing")
def mailing(to: str) -> dict[str, Any]:
    return {"notes": read(to), "mail": mail(to)}
