"""The same client, its order an effect; `sys.argv[1]` is what the shop offers: keyed or asked."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

from api import ORDER, end_what_still_runs, find_order, submit, wait

from surefoot import Attempt, RunWaiting, Surefoot, effect, keyed, lookup, step, workflow

OFFER = sys.argv[1]
CONTRACT: Any = keyed(timedelta(hours=24)) if OFFER == "keyed" else lookup(timedelta(seconds=1))
WAITING_EXIT = 75


class NotCompleted(Exception):
    """Skyvern gave up, or is gone: the order may be out."""


@effect(CONTRACT, identity="order:{order}", timeout=240.0)
def place_order(attempt: Attempt, order: str) -> dict[str, Any]:
    """Order once, through a Skyvern task; no task of an earlier attempt goes on beside it."""
    end_what_still_runs()
    try:
        task = submit(dict(attempt.headers) if OFFER == "keyed" else None)
        said = wait(task, attempt.timeout)
    except OSError as error:  # a refused connection while it waits says nothing about the order
        raise NotCompleted(str(error)) from error
    if said != "completed":
        raise NotCompleted(said)
    return {"task": task}


if OFFER == "asked":

    @place_order.lookup
    def _(attempt: Attempt, order: str) -> dict[str, Any] | None:
        return find_order()


@step
def settled(order: str) -> list[str]:
    """The order is certain: what Skyvern still calls running is over."""
    return end_what_still_runs()


@workflow
def buy(order: str) -> None:
    """Order, and leave nothing behind."""
    place_order(order)
    settled(order)


def main() -> int:
    """One life."""
    with Surefoot(os.path.join(os.environ["STATE"], "agents.db")) as surefoot:
        try:
            surefoot.run(buy, ORDER, id=f"order-{ORDER}")
        except RunWaiting as waiting:
            print(waiting)
            return WAITING_EXIT
    print("SAID completed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
