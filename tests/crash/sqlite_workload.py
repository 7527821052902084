"""What the power-loss and bit-flip proofs put into a real store: an agent's runs that end in every way there is.

Runs that succeed, fail, wait for a person and are cancelled; effects confirmed, refused, found by a lookup after doubt,
compensated, parked and resolved; group commits and a value that is stored apart.
"""

from __future__ import annotations

import hashlib
from typing import Any

import surefoot
from surefoot import (
    Attempt,
    Refused,
    RunWaiting,
    Surefoot,
    effect,
    keyed,
    lookup,
    natural,
    now,
    opaque,
    step,
    workflow,
)
from surefoot.core.effect import Do, Event, Evidence, Status
from surefoot.core.writes import DecideEffect
from surefoot.stores.base import Store
from surefoot.testing.clock import FakeClock

INLINE_BYTES = 16_384  # a user's is 64 KiB; how many overflow pages a value has is all that this changes


@step
def assess(partner: str, number: int) -> dict[str, Any]:
    return {"score": number, "text": hashlib.sha256(f"{partner} {number}".encode()).hexdigest() * 2}


@step
def read_logs(partner: str, size: int) -> str:
    lines = (hashlib.sha256(f"{partner} {n}".encode()).hexdigest() for n in range(size // 64))
    return "".join(lines)


@effect(keyed(86_400), identity="ticket:{partner}", timeout=10)
def open_ticket(attempt: Attempt, partner: str, body: str) -> dict[str, str]:
    return {"id": attempt.key, "url": f"https://tickets.test/{partner}"}


@open_ticket.compensate
def _(attempt: Attempt, receipt: dict[str, str]) -> None:
    """Closes the ticket."""


@effect(lookup(0.1), timeout=0.5)
def page(attempt: Attempt, who: str) -> dict[str, str]:
    raise TimeoutError("no answer")


@page.lookup
def _(attempt: Attempt, who: str) -> dict[str, str] | None:
    return {"paged": who}


@effect(natural(), timeout=10)
def post_status(attempt: Attempt, text: str) -> None:
    raise Refused("the incident is closed")


@effect(opaque(), identity="mail:{partner}", timeout=0.5)
def mail(attempt: Attempt, partner: str, text: str) -> None:
    raise ConnectionResetError("no answer")


@workflow(name="onboard_and_lose_power")
def onboard(partner: str, log_bytes: int) -> str:
    scores = [assess(partner, number)["score"] for number in range(3)]
    log = read_logs(partner, log_bytes)
    ticket = open_ticket(partner, f"scores {scores} on {now():.0f}, log of {len(log)} characters")
    page(f"on-call for {partner}")
    return ticket["url"]


@workflow(compensate=True)
def give_up(partner: str) -> None:
    open_ticket(partner, "try")
    try:
        post_status(f"{partner} joins")
    except Refused:
        assess(partner, 1)
    raise ValueError("the partner withdrew")


@workflow
def announce(partner: str) -> None:
    surefoot.map(lambda number: assess(partner, number), range(3))
    mail(partner, "welcome " * 20)


def work(store: Store, rounds: range, *, log_bytes: int = 600) -> None:
    """Run three workflows a round; the mail of every other round is resolved by a person and sent again, in vain."""
    clock = FakeClock(1_800_000_000.123 + 1000 * rounds.start)
    with Surefoot(store, clock=clock, lease=3600.0, inline_bytes=INLINE_BYTES) as sf:
        for number in rounds:
            sf.run(onboard, f"acme-{number}", log_bytes if number == rounds[-1] else 600, id=f"onboard-{number}")
            try:
                sf.run(give_up, f"bree-{number}", id=f"give-up-{number}")
            except ValueError:
                pass
            for tries in range(1 + number % 2, 0, -1):
                try:
                    sf.run(announce, f"cole-{number}", id=f"announce-{number}")
                except RunWaiting:
                    if tries > 1:
                        resolve(store)
            if number % 3 == 2:
                sf.cancel(f"announce-{number}")


def resolve(store: Store) -> None:
    """A person looked: what is parked did not happen."""
    for parked in store.find_effects([Status.PARKED]):
        at = parked.updated_at + 60
        why = Evidence(at=at, kind="decision", found="did not happen", text="not in the outbox", who="ana")
        event = Event(do=Do.DID_NOT_HAPPEN, at=at, evidence=why)
        store.transact([DecideEffect(stamp=hash((parked.key, at)) & (1 << 60) - 1, key=parked.key, event=event)])
