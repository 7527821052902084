"""The same agent on Surefoot; `OFFER` is what the receiver promises, `CODE` which version of the program runs."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from office import AMOUNT, CHARGE, CODE, TIMEOUT, Json, assess, find, say, send

from surefoot import (
    Attempt,
    Diverged,
    NotApproved,
    RunWaiting,
    Surefoot,
    approve,
    effect,
    keyed,
    lookup,
    opaque,
    step,
    workflow,
)

OFFER = os.environ["OFFER"]
LAG = timedelta(seconds=float(os.environ.get("LAG", "0.1")))
WINDOW = timedelta(seconds=float(os.environ.get("WINDOW", "86400")))
CONTRACT: Any = {"keys": keyed(WINDOW), "lookup": lookup(LAG), "nothing": opaque()}[OFFER]
ASKABLE = OFFER == "lookup" or "ASKABLE" in os.environ
APPROVED = "APPROVAL" in os.environ
WAITING_EXIT, TOLD_EXIT = 75, 76
RENAMED = {"renamed": "reimburse", "renamed, said": "reimburse"}
FORMERLY: Any = {"formerly": ("refund",)} if CODE == "renamed, said" else {}


def headers_of(attempt: Attempt) -> dict[str, str]:
    """The key as the receiver takes it; one that is only asked is given it as a reference."""
    return dict(attempt.headers) if OFFER == "keys" else {"Idempotency-Key": attempt.key}


@step(name="assess")
def assessed(charge: str) -> Json:
    """The model call; paid for once."""
    return assess(charge)


@step
def check_policy() -> Json:
    """A step that the next version has and this one has not."""
    return {"policy": "checked"}


@effect(CONTRACT, timeout=TIMEOUT, name=RENAMED.get(CODE, "refund"), needs_approval=APPROVED, **FORMERLY)
def refund(attempt: Attempt, charge: str, amount: int) -> Json:
    """Give the money back."""
    return send("refund", {"charge": charge, "amount": amount}, headers=headers_of(attempt), timeout=attempt.timeout)


@effect(CONTRACT, timeout=TIMEOUT)
def mail(attempt: Attempt, text: str) -> Json:
    """Tell the customer."""
    return send("mail", {"text": text}, headers=headers_of(attempt), timeout=attempt.timeout)


if ASKABLE:

    @refund.lookup
    def _(attempt: Attempt, charge: str, amount: int) -> Json | None:
        return find("refund", attempt.key)

    @mail.lookup
    def _(attempt: Attempt, text: str) -> Json | None:
        return find("mail", attempt.key)


@workflow
def settle(charge: str) -> list[Json]:
    """Assess, have it approved, refund, mail."""
    if CODE == "inserted":
        check_policy()
    assessment = {"text": "low risk"} if CODE == "removed" else assessed(charge)
    amount = AMOUNT
    if APPROVED:
        approve(refund.request(charge, amount=AMOUNT), by="finance", within=timedelta(hours=1))
        amount = 9_999 if CODE == "other_amount" else AMOUNT
    receipt = refund(charge, amount=amount)
    mail(f"refund of {charge}")
    return [assessment, receipt]


def main() -> int:
    """One life."""
    store = os.path.join(os.environ["STATE"], "agents.db")
    with Surefoot(store, lease=float(os.environ.get("LEASE", "15"))) as surefoot:
        try:
            say(*surefoot.run(settle, CHARGE, id="refund-7"))
        except RunWaiting as waiting:
            print(waiting)
            return WAITING_EXIT
        except (Diverged, NotApproved) as told:
            print(told)
            return TOLD_EXIT
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
