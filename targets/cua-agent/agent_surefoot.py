"""The same program, its click handler an effect; `sys.argv[1]` is what the shop offers: keyed, lookup, nothing.

The identity of a click is the business fact (this order, this button), never the call id of the model, new each time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

from machine import ORDER, checkout, look, post

from surefoot import Attempt, RunWaiting, Surefoot, effect, keyed, lookup, opaque

OFFER = sys.argv[1]
CONTRACTS = {"keyed": keyed(timedelta(hours=24)), "lookup": lookup(timedelta(seconds=0.1)), "nothing": opaque()}
WAITING_EXIT = 75


@effect(CONTRACTS[OFFER], identity="order-{order}:{operation}", timeout=1.0 if OFFER == "lookup" else 20.0)
async def press_once(attempt: Attempt, order: str, operation: str) -> dict[str, Any]:
    """Press one button of this order."""
    headers = {"keyed": dict(attempt.headers), "lookup": {"Idempotency-Key": attempt.key}}.get(OFFER, {})
    return post(operation, headers, attempt.timeout)


if OFFER == "lookup":

    @press_once.lookup
    async def _(attempt: Attempt, order: str, operation: str) -> dict[str, Any] | None:
        return look(operation, attempt.key)


async def press(operation: str) -> None:
    """Press one button."""
    await press_once(ORDER, operation)


async def main() -> int:
    """One life; 75 when a person has to say what happened."""
    async with Surefoot(os.path.join(os.environ["STATE"], "agents.db")):
        try:
            print(await checkout(press))
        except RunWaiting as waiting:
            print(waiting)
            return WAITING_EXIT
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
