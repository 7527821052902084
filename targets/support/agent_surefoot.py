"""The same agent on Surefoot: the model call is a step, the write is an effect; no checkpoint of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

from calls import STEPS, WRITES, Desk, Json

from surefoot import Attempt, Surefoot, effect, keyed, lookup, step, workflow


@step
def think(place: str, number: int) -> Json:
    """The model call of a step; paid for once."""
    return Desk(place).ask_model(number)


@effect(keyed(window=timedelta(hours=24)))
def write_keyed(attempt: Attempt, place: str, number: int) -> Json:
    """The write, at a receiver that honours keys."""
    return Desk(place).write(number, headers=dict(attempt.headers), timeout=attempt.timeout)


@effect(lookup(lag=timedelta(milliseconds=50)), timeout=0.4)
def write_asked(attempt: Attempt, place: str, number: int) -> Json:
    """The write, at a receiver that knows no keys and can only be asked."""
    return Desk(place).write(number, reference=attempt.key, timeout=attempt.timeout)


@write_asked.lookup
def _(attempt: Attempt, place: str, number: int) -> Json | None:
    found = Desk(place).find(number, attempt.key)
    return found[0] if found else None


@workflow
def support(arm: str, place: str) -> None:
    """Twelve steps, three of which write."""
    write = write_keyed if arm == "keyed" else write_asked
    for number in range(1, STEPS + 1):
        think(place, number)
        if number in WRITES:
            write(place, number)


def life(say: Callable[[str], None], arm: str, place: str, folder: str) -> None:
    """One life; `arm` is keyed or lookup."""
    with Surefoot(os.path.join(folder, "agents.db")) as surefoot:
        surefoot.run(support, arm, place, id="ticket")
