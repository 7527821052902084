"""A row of the outbox: what is wanted, and what became of it.

A row is open (`waiting`, `parked`, `stuck`) or has ended. It never ends by a guess: each end is copied from the
effect's record in Surefoot's store, or said by a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """Where a row stands.

    `waiting`: to be delivered, or tried again. `parked`: in doubt, and only a person can tell (`surefoot doubts`).
    `stuck`: cannot be delivered as things stand; `reason` says why, and nothing was sent since. `delivered`: confirmed,
    with its receipt. `refused`: the receiver refused it, or it could never be sent. `abandoned`: a person gave it up.
    """

    WAITING = "waiting"
    PARKED = "parked"
    STUCK = "stuck"
    DELIVERED = "delivered"
    REFUSED = "refused"
    ABANDONED = "abandoned"


OPEN = frozenset({State.WAITING, State.PARKED, State.STUCK})


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row. Times are seconds since the epoch; `arguments` and `receipt` are JSON.

    `identity` is "" where it is the row's own; `claims` counts deliverers that took it and have not said what became of
    it; `tries` counts looks at it; `effect_key` is the effect's key in Surefoot's store, once somebody has looked.
    """

    number: int
    id: str
    effect: str
    arguments: str
    identity: str
    ordered_by: str | None
    state: State
    created_at: float
    due_at: float
    claims: int
    tries: int
    ended_at: float | None
    effect_key: str
    receipt: str | None
    reason: str


_NAMES = tuple(Row.__dataclass_fields__)


def row_of(columns: Sequence[Any]) -> Row:
    """The row, from its columns in the order of the fields; an unknown state is an error."""
    values: dict[str, Any] = dict(zip(_NAMES, columns, strict=True))
    values["state"] = State(values["state"])
    return Row(**values)
