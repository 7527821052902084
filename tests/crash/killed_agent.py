"""The agent that is really killed: each job here runs in a forked process, which opens Surefoot after the fork.

It says what it does into a pipe that a SIGKILL cannot take back: `exec X` when a step's body begins, `ack X` when the
workflow has its result, `sending X` and `answered X` around a request.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from surefoot import (
    Refused,
    RunWaiting,
    Surefoot,
    effect,
    keyed,
    lookup,
    natural,
    opaque,
    step,
    workflow,
)
from surefoot.core.effect import Do, Event, Evidence, Status
from surefoot.core.writes import DecideEffect, Verdict
from surefoot.testing.ledger import read_ledger
from surefoot.testing.receiver import find, post

TIMEOUT, LAG = 0.2, 0.05
SETTLED_SECONDS = 0.6
"""No request of this test's receiver acts later than this."""

PORT = [0]
SAY: list[Callable[[str], object]] = [print]


def say(line: str) -> None:
    SAY[0](line)


# --- the agent ----------------------------------------------------------------------------------------------------


@step
def think(about: str) -> str:
    say(f"exec {about}")
    return f"{about} {random.random()}"


def ask(about: str) -> str:
    text = think(about)
    say(f"ack {about}")
    return text


def request(attempt: Any, promise: str, name: str, text: str, fault: str) -> dict[str, Any]:
    say(f"sending {promise}")
    body = {"text": text}
    receipt = post(PORT[0], promise, name, body, fault=fault, headers=attempt.headers, timeout=attempt.timeout)
    say(f"answered {promise}")
    return receipt


@effect(keyed(window=600), timeout=TIMEOUT)
def open_ticket(attempt: Any, name: str, text: str, fault: str) -> dict[str, Any]:
    return request(attempt, "keyed", name, text, fault)


@effect(lookup(lag=LAG), timeout=TIMEOUT)
def page(attempt: Any, name: str, text: str, fault: str) -> dict[str, Any]:
    return request(attempt, "lookup", name, text, fault)


@page.lookup
def paged(attempt: Any, name: str, text: str, fault: str) -> dict[str, Any] | None:
    found = find(PORT[0], name, timeout=TIMEOUT)
    return found[0] if found else None


@effect(natural(), timeout=TIMEOUT)
def put_status(attempt: Any, name: str, text: str, fault: str) -> dict[str, Any]:
    return request(attempt, "natural", name, text, fault)


@effect(opaque(), timeout=TIMEOUT)
def send_mail(attempt: Any, name: str, text: str, fault: str) -> dict[str, Any]:
    return request(attempt, "opaque", name, text, fault)


@workflow
def incident(run: str, faults: dict[str, str]) -> dict[str, Any]:
    """Four effects, each behind the step that wrote it; a refused ticket is told, the others are receipts."""
    try:
        ticket = open_ticket(f"{run}.keyed", ask("ticket"), faults["keyed"])
    except Refused as refused:
        ticket = {"refused": refused.reason}
    paging = page(f"{run}.lookup", ask("page"), faults["lookup"])
    status = put_status(f"{run}.natural", ask("status"), faults["natural"])
    mail = send_mail(f"{run}.opaque", ask("mail"), faults["opaque"])
    return {"keyed": ticket, "lookup": paging, "natural": status, "opaque": mail}


# --- jobs ---------------------------------------------------------------------------------------------------------


def live(tell: Callable[[str], object], db: str, port: int, ledger: str, run: str, faults: dict[str, str]) -> None:
    """One life of the agent; a person stands by who decides from the receiver's books what is parked."""
    SAY[0], PORT[0] = tell, port
    with Surefoot(db) as surefoot:
        say("ready")
        while True:
            try:
                result = surefoot.run(incident, run, faults, id=run)
            except RunWaiting:
                say("parked")
                decide(surefoot, run, Path(ledger))
            else:
                say(f"result {msgspec.json.encode(result).decode()}")
                return


def decide(surefoot: Surefoot, run: str, ledger: Path) -> None:
    """Only what no receiver can tell is parked: an opaque effect, or a repeat that was refused."""
    parked = surefoot.store.find_effects([Status.PARKED], run_id=run)
    assert parked and all(held.name == "send_mail" or "proves nothing" in held.reason for held in parked), parked
    time.sleep(SETTLED_SECONDS)
    for held in parked:
        name = msgspec.json.decode(held.request)["name"]
        done = [line for line in read_ledger(ledger) if line.what == "performed" and line.name == name]
        do = Do.HAPPENED if done else Do.DID_NOT_HAPPEN
        receipt = msgspec.json.encode({"name": name, "number": done[0].number}) if done else b""
        at = surefoot.engine.clock.now()
        evidence = Evidence(at=at, kind="decision", found=do, who="the ledger's reader")
        event = Event(do=do, at=at, receipt=receipt, evidence=evidence)
        write = DecideEffect(key=held.key, event=event, stamp=next(surefoot.engine.stamps))
        verdict = surefoot.engine.committer.commit(write).verdict
        assert verdict is Verdict.DONE, verdict
    say("decided")
