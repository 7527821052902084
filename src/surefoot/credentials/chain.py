"""A credential's chain of generations, as it stands in the store: a family for each authorization, numbered from 1.

Number 0 of a family is its first token, given by a person; every later number is one refresh. A number is declared only
when the one before it is settled, so what exists has no gaps, and the newest is found by reading a few keys. A refresh
that gave no token (it was refused for a reason that can be mended, or never left) is void: the next number starts from
the same token, which its request names.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from ..core.contract import Kind
from ..core.effect import Effect, Status
from .answers import DEAD

CONNECT, REFRESH, FORGET = "credential.connect", "credential.refresh", "credential.forget"


class State(StrEnum):
    """What one number of a chain stands for."""

    TOKEN = "token"
    OPEN = "open"
    VOID = "void"
    PARKED = "parked"
    DEAD = "dead"


class RefreshRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The stored request of a refresh: no secret, and the same for all who ask for this generation.

    `previous` is the generation whose refresh token is used.
    """

    credential: str
    family: int
    generation: int
    previous: int


def identity_of(credential: str, family: int, generation: int) -> str:
    """The identity of one number of a chain; it is stored, so it never changes."""
    return f"credential:{credential}/{family}.{generation}"


def state_of(effect: Effect) -> State:
    """What a refresh stands for, whatever its receipt holds."""
    harmless = effect.contract.kind is Kind.NATURAL
    match effect.status:
        case Status.CONFIRMED | Status.COMPENSATED:
            return State.TOKEN
        case Status.REFUSED:
            return State.DEAD if effect.reason.startswith(DEAD) else State.VOID
        case Status.ABANDONED:
            return State.VOID if harmless else State.DEAD
        case Status.PARKED:
            return State.DEAD if harmless and refused_at_last(effect) else State.VOID if harmless else State.PARKED
        case Status.INTENDED | Status.ATTEMPTED | Status.IN_DOUBT:
            return State.OPEN


def refused_at_last(effect: Effect) -> bool:
    """True if the last answer refused the refresh token itself."""
    answers = [each for each in effect.evidence if each.kind == "answer"]
    return bool(answers) and DEAD in answers[-1].text


Read = Callable[[int], Effect | None]


def newest(read: Read, known: int) -> tuple[int, Effect | None]:
    """The last number that exists and its effect; `known` exists (or is one before the first).

    One read when nothing is new; otherwise about twice the logarithm of how many are.
    """
    low, step, found = known, 1, None
    while (held := read(low + step)) is not None:
        low, step, found = low + step, step * 2, held
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        held = read(middle)
        if held is None:
            high = middle
        else:
            low, found = middle, held
    return low, found
