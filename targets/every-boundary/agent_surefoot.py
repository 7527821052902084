"""The same agent on Surefoot; `sys.argv[1]`: keyed (the shop honours keys) or asked (it can only be asked)."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any

from shop import ORDER, Json, ask, asked_for, find, opening, operate

from surefoot import Attempt, Surefoot, effect, keyed, lookup, step, workflow

OFFER = sys.argv[1]
CONTRACT: Any = keyed(timedelta(hours=24)) if OFFER == "keyed" else lookup(timedelta(seconds=0.5))


@step(retries=3)
def think(messages: list[Json]) -> Json:
    """One model call; paid for once."""
    return ask(messages)


@effect(CONTRACT, identity="{order}:{operation}", timeout=1.0)
def act(attempt: Attempt, order: str, operation: str) -> Json:
    """One operation of this order."""
    return operate(operation, attempt.headers, attempt.timeout)


if OFFER == "asked":

    @act.lookup
    def _(attempt: Attempt, order: str, operation: str) -> Json | None:
        return find(operation)


@workflow
def checkout(order: str) -> str:
    """Ask, act, until the model has said its last word."""
    messages = opening()
    while True:
        message = think(messages)
        if not message.get("tool_calls"):
            return str(message["content"])
        call, operation = asked_for(message)
        result = act(order, operation)
        messages = [*messages, message, {"role": "tool", "tool_call_id": call, "content": json.dumps(result)}]


if __name__ == "__main__":
    with Surefoot(os.path.join(os.environ["STATE"], "agents.db"), lease=2) as surefoot:
        print(surefoot.run(checkout, ORDER, id=f"order-{ORDER}"))
