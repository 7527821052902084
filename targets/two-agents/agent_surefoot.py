"""The same agent, its refund an effect of the ticket; both agents share one store."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

from desk import TICKET, find, refund

from surefoot import Attempt, Disagreement, RunWaiting, Surefoot, effect, keyed, lookup

AMOUNT, OFFER = int(os.environ["AMOUNT"]), sys.argv[1]
CONTRACT: Any = keyed(timedelta(hours=24)) if OFFER == "keyed" else lookup(timedelta(seconds=0.1))


@effect(CONTRACT, identity="refund:{ticket}", timeout=5.0 if OFFER == "keyed" else 1.0)
def pay_back(attempt: Attempt, ticket: str, amount: int) -> dict[str, Any]:
    """Refund this ticket."""
    headers = dict(attempt.headers) if OFFER == "keyed" else {"Idempotency-Key": attempt.key}
    return refund(amount, headers, attempt.timeout)


if OFFER == "lookup":

    @pay_back.lookup
    def _(attempt: Attempt, ticket: str, amount: int) -> dict[str, Any] | None:
        return find(attempt.key)


if __name__ == "__main__":
    with Surefoot(os.path.join(os.environ["STATE"], "agents.db")):
        try:
            pay_back(TICKET, AMOUNT)
            print(f"SAID {AMOUNT}")
        except (Disagreement, RunWaiting) as told:
            print(told)
            sys.exit(76)
