"""The agent as it is usually written; `sys.argv[1]`: none, checkpoint (after each turn), or keys (and a checkpoint)."""

from __future__ import annotations

import json
import os
import sys

from shop import ORDER, Json, ask, asked_for, opening, operate

FORM = sys.argv[1]
PATH = os.path.join(os.environ["STATE"], "checkpoint.json")


def load() -> list[Json]:
    """The conversation so far."""
    if FORM == "none" or not os.path.exists(PATH):
        return opening()
    with open(PATH) as file:
        return json.load(file)


def save(messages: list[Json]) -> None:
    """Keep it; on disk when this returns."""
    if FORM == "none":
        return
    with open(PATH + ".draft", "w") as file:
        json.dump(messages, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(PATH + ".draft", PATH)


def act(operation: str) -> Json:
    """Do it, at most three times."""
    headers = {"Idempotency-Key": f"{ORDER}:{operation}"} if FORM == "keys" else {}
    for left in (2, 1, 0):
        try:
            return operate(operation, headers)
        except Exception:
            if not left:
                raise
    raise AssertionError


def main() -> None:
    """Ask, act, until the model has said its last word."""
    messages = load()
    while True:
        message = ask(messages)
        if not message.get("tool_calls"):
            print(message["content"])
            return
        call, operation = asked_for(message)
        result = act(operation)
        messages += [message, {"role": "tool", "tool_call_id": call, "content": json.dumps(result)}]
        save(messages)


if __name__ == "__main__":
    main()
