"""What a provider does with a refresh token that comes a second time, and so what may be done after a lost answer.

A refresh has no idempotency key: the old refresh token itself is the key. Half of a grace window is relied on, counted
from the first possible send, however short it is: the provider counts from when it acted, which is never earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from msgspec.structs import replace as with_fields

from ..core.contract import Contract, Kind, Margins, Place, Promises, keyed, natural, opaque
from ..core.errors import UsageError

DEAD_CODES = frozenset(
    {
        "invalid_grant",  # RFC 6749, section 5.2
        "invalid_refresh_token",
        "bad_refresh_token",
        "BAD_REFRESH_TOKEN",
        "token_expired",
        "token_revoked",
        "NotAuthorizedException",
    }
)
"""Error codes that mean: this refresh token is no good any more, and no other request will change that."""

GRACE_MARGINS = Margins(window_factor=0.5, safety_seconds=0.0, clock_skew_seconds=0.0, short_window_seconds=0.0)


class Mode(StrEnum):
    """What a second use of a refresh token does."""

    STRICT = "strict"
    GRACE = "grace"
    REUSABLE = "reusable"


@dataclass(frozen=True, kw_only=True)
class TokenContract:
    """One provider's promise about its refresh tokens; made by `strict()`, `grace(...)`, `reusable()` and their kin.

    `revokes_family`: a second use of a spent token ends every token of the family. `dead_codes`: error codes that mean
    that the refresh token itself was refused.
    """

    mode: Mode
    grace_seconds: float = 0.0
    revokes_family: bool = False
    dead_codes: frozenset[str] = DEAD_CODES
    receiver: str = ""

    @property
    def contract(self) -> Contract:
        """The contract that is stored in the intent of every refresh."""
        match self.mode:
            case Mode.STRICT:
                made = opaque(refused=())
            case Mode.GRACE:
                made = keyed(self.grace_seconds, margins=GRACE_MARGINS, refused=(), in_flight=(), lag=0.0)
            case Mode.REUSABLE:
                made = natural(exists=(), refused=(), lag=0.0)
        return with_fields(made, receiver=self.receiver, place=Place.NONE, key_name="")


def strict(*, dead_codes: Iterable[str] = DEAD_CODES) -> TokenContract:
    """Each refresh token is good for one use. After a lost answer it is never sent again: reconnect."""
    return TokenContract(mode=Mode.STRICT, dead_codes=frozenset(dead_codes))


def family_revocation(*, dead_codes: Iterable[str] = DEAD_CODES) -> TokenContract:
    """As `strict`, and a second use would end the whole family, with the token that the lost answer carried."""
    return TokenContract(mode=Mode.STRICT, revokes_family=True, dead_codes=frozenset(dead_codes))


def grace(
    window: timedelta | float, *, revokes_family: bool = True, dead_codes: Iterable[str] = DEAD_CODES
) -> TokenContract:
    """The old refresh token works for `window` after it was used: within half of it, it is sent again."""
    made = TokenContract(mode=Mode.GRACE, revokes_family=revokes_family, dead_codes=frozenset(dead_codes))
    return replace(made, grace_seconds=keyed(window, margins=GRACE_MARGINS).window_seconds)


def reusable(*, dead_codes: Iterable[str] = DEAD_CODES) -> TokenContract:
    """The refresh token stays the same and may be used again and again."""
    return TokenContract(mode=Mode.REUSABLE, dead_codes=frozenset(dead_codes))


def rotating_reusable(*, dead_codes: Iterable[str] = DEAD_CODES) -> TokenContract:
    """Each refresh gives another refresh token, and the old ones stay good."""
    return reusable(dead_codes=dead_codes)


def token_contract(receiver: TokenContract | Contract | Promises | str) -> TokenContract:
    """What was passed as `receiver=`, as a token contract; UsageError for what promises nothing about tokens."""
    given: Any = receiver
    if isinstance(given, str):
        from ..receivers import get

        given = get(given)
    if isinstance(given, TokenContract):
        return given
    if isinstance(given, Contract):
        return _from_contract(given)
    if isinstance(given, Promises):
        return _from_entry(given)
    raise UsageError(f"receiver= must be strict(), grace(...), reusable() or the name of a receiver, found {given!r}")


def _from_entry(entry: Any) -> TokenContract:
    """An entry of the catalog. A grace whose length is not known is none."""
    token = getattr(entry, "token", None)
    if token is None:
        raise UsageError(f"receiver {getattr(entry, 'id', entry)!r} says nothing about refresh tokens; {_CHOOSE}")
    seconds = token.grace_seconds or 0.0
    match token.mode.value:
        case "reusable" | "rotating_reusable":
            mode = Mode.REUSABLE
        case "grace" if seconds:
            mode = Mode.GRACE
        case _:
            mode = Mode.STRICT
    return TokenContract(
        mode=mode,
        grace_seconds=seconds if mode is Mode.GRACE else 0.0,
        revokes_family=token.revokes_family.value != "no",
        dead_codes=DEAD_CODES | frozenset(token.refusals),
        receiver=entry.id,
    )


def _from_contract(contract: Contract) -> TokenContract:
    match contract.kind:
        case Kind.OPAQUE if not contract.at_least_once:
            return TokenContract(mode=Mode.STRICT, receiver=contract.receiver)
        case Kind.KEYED if contract.window_seconds:
            return replace(grace(contract.window_seconds), receiver=contract.receiver)
        case Kind.NATURAL:
            return TokenContract(mode=Mode.REUSABLE, receiver=contract.receiver)
        case _:
            raise UsageError(f"the contract {contract.kind} says nothing about refresh tokens; {_CHOOSE}")


_CHOOSE = "use strict(), family_revocation(), grace(...), reusable() or rotating_reusable()"
