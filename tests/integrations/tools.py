"""The tools that the tests of tools call, and the model that asks for them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from surefoot import (
    Surefoot,
    keyed,
    opaque,
    tool,
)
from surefoot.runtime import calls

KEYED = keyed(timedelta(hours=24))

sent: list[Any] = []


@tool(KEYED)
def charge(attempt: Any, order: str, cents: int = 100) -> dict[str, str]:
    """Charge an order."""
    sent.append((order, cents, attempt.key))
    return {"charged": order}


@tool(opaque())
def lose(what: str) -> str:
    """Send something whose answer never comes."""
    sent.append(what)
    raise TimeoutError("no answer")


@tool(read_only=True)
def draw() -> int:
    """Another number each time."""
    sent.append("draw")
    return len(sent)


def model_answers(*ids: str, asked: str = "") -> None:
    """The model's recorded answer, which asks for tool calls of these ids."""
    place = calls.place("the model")
    assert place is not None
    answer = json.dumps({"tool_calls": [{"id": id} for id in ids]}).encode()
    calls.record(place, kind="model", name="m", fingerprint=asked.encode(), preview="", body=lambda: answer)


def slots(sf: Surefoot, run: str = "run") -> list[str]:
    """The journal's slots of effects and steps, without model calls."""
    read = sf.engine.store.read_run(run)
    assert read is not None
    return list(dict.fromkeys(e.slot for e in read[1] if "/call:" not in e.slot))
