"""What a receiver promises about duplicates. The whole contract is data, stored in the intent.

So `doubts`, `doctor` and a later version of the code can do the arithmetic without the code that sent the request.
What is not known is not relied on: an unknown window protects for no time, an unnamed answer says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec
from msgspec.structs import fields

from .errors import UsageError
from .ids import check_key_shape


class Kind(StrEnum):
    """The five kinds of promise."""

    SAME_TRANSACTION = "same_transaction"
    KEYED = "keyed"
    NATURAL = "natural"
    LOOKUP = "lookup"
    OPAQUE = "opaque"


class Bound(StrEnum):
    """How sure a window is. `state` protects only while the thing that the key names is open."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    CONFIGURABLE = "configurable"
    STATE = "state"
    FOR_EVER = "for_ever"
    UNKNOWN = "unknown"


class Place(StrEnum):
    """Where in a request the key goes."""

    HEADER = "header"
    BODY = "body"
    QUERY = "query"
    PATH = "path"
    MAIL_HEADER = "mail_header"
    PROPERTY = "property"
    NONE = "none"


class Meaning(StrEnum):
    """What a code in an answer says about the request that it answers, and about earlier ones under its key."""

    LANDED = "landed"
    EXISTS = "exists"
    IN_FLIGHT = "in_flight"
    CHANGED_PAYLOAD = "changed_payload"
    SPENT = "spent"
    EXPIRED = "expired"
    NOT_PROCESSED = "not_processed"
    REFUSED = "refused"


Code = int | str
REFUSING_CODES: tuple[Code, ...] = (400, 401, 403, 404, 405, 413, 415, 422)
UNKEYED_CODES: frozenset[Code] = frozenset((401, 403, 429))
"""Given before a receiver looks at the key: they say nothing about an earlier try, even if refusals are stored."""


class Answers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which codes mean what: an integer is a status, a string is a code in the body, also inside a 200.

    `landed`: the first request took effect. `exists`: the thing is there, compare whose it is. `in_flight`: an earlier
    try still runs. `changed_payload`: the key belongs to another request. `spent`: the key is used up and the outcome
    is not told. `expired`: the key is too old. `not_processed`: certainly nothing happened. `refused`: it did not
    happen and will not.
    """

    landed: tuple[Code, ...] = ()
    exists: tuple[Code, ...] = ()
    in_flight: tuple[Code, ...] = ()
    changed_payload: tuple[Code, ...] = ()
    spent: tuple[Code, ...] = ()
    expired: tuple[Code, ...] = ()
    not_processed: tuple[Code, ...] = ()
    refused: tuple[Code, ...] = REFUSING_CODES

    def meaning(self, codes: Iterable[Code]) -> tuple[Meaning, Code] | None:
        """What the first code that is named here means; a code of the body is asked before the status."""
        for code in sorted(codes, key=lambda code: isinstance(code, int)):
            for meaning in Meaning:
                if code in getattr(self, meaning.value):
                    return meaning, code
        return None


class Margins(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a promise is relied on.

    `window_factor`: the part of a window that is used, and at least `safety_seconds` plus `clock_skew_seconds` of it
    are left. `unknown_window_seconds`: what an unknown window is taken for. `short_window_seconds`: a window below it
    is not relied on by another process than the one that sent first. `in_flight_seconds`: how long "still running" is
    believed. `clear_nos`: how many empty answers, one lag apart, prove absence.
    """

    window_factor: float = 0.5
    safety_seconds: float = 60.0
    clock_skew_seconds: float = 30.0
    unknown_window_seconds: float = 0.0
    short_window_seconds: float = 600.0
    in_flight_seconds: float = 300.0
    clear_nos: int = 2

    def check(self) -> Margins:
        """These margins; UsageError for a value that cannot be one."""
        if not 0 < self.window_factor <= 1:
            raise UsageError(
                f"Margins(window_factor={self.window_factor!r}) must be in (0, 1]: the part of the window to rely on"
            )
        if self.clear_nos < 1:
            raise UsageError(
                f"Margins(clear_nos={self.clear_nos!r}) must be 1 or more; without asking nothing is known"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise UsageError(f"Margins({field.name}={value!r}) must be a finite number, 0 or more")
        return self


DEFAULT_ANSWERS, DEFAULT_MARGINS = Answers(), Margins()


class Contract(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One receiver's promise. Seconds throughout; `receiver` is its name in the catalog, "" for one written by hand.

    `asks_by` names the field by which the lookup finds us. `absence=False` says that an empty answer of the lookup
    proves nothing. `owned=True` says that whatever exists under the key is ours. `code_at` says where an answer's body
    holds its codes, as "error.code" or "errors.*.code"; () means the usual places.
    """

    kind: Kind
    receiver: str = ""
    window_seconds: float = 0.0
    bound: Bound = Bound.EXACT
    margins: Margins = DEFAULT_MARGINS
    lag_seconds: float = 0.0
    asks_by: str = ""
    absence: bool = True
    place: Place = Place.HEADER
    key_name: str = "Idempotency-Key"
    quoted: bool = False
    shape: str = "uuid"
    length: int = 0
    prefix: str = ""
    answers: Answers = DEFAULT_ANSWERS
    code_at: tuple[str, ...] = ()
    stores_refusals: bool = False
    at_least_once: bool = False
    owned: bool = False

    @property
    def protected_seconds(self) -> float:
        """How long after the first possible send a repeat under the same key is harmless; inf: for ever."""
        margins = self.margins
        match self.bound:
            case Bound.FOR_EVER:
                return math.inf
            case Bound.UNKNOWN | Bound.STATE if not self.window_seconds:
                return margins.unknown_window_seconds
            case _:
                left = self.window_seconds - margins.safety_seconds - margins.clock_skew_seconds
                return max(0.0, min(self.window_seconds * margins.window_factor, left))

    @property
    def is_short(self) -> bool:
        """True if the window is too short to be relied on by another process than the one that sent first."""
        return self.bound is not Bound.FOR_EVER and 0 < self.window_seconds < self.margins.short_window_seconds


@runtime_checkable
class Promises(Protocol):
    """Anything that stands for a contract, such as an entry of the catalog."""

    @property
    def contract(self) -> Contract:
        """The contract that is stored in the intent."""
        ...


def _seconds(value: timedelta | float, what: str, *, zero: bool = False) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not (seconds > 0 or (zero and seconds == 0)) or seconds == math.inf or seconds != seconds:
        raise UsageError(f"{what} must be a positive, finite time, found {value!r}")
    return seconds


def answers(
    *,
    landed: Iterable[Code] = (),
    exists: Iterable[Code] = (),
    in_flight: Iterable[Code] = (),
    changed_payload: Iterable[Code] = (),
    spent: Iterable[Code] = (),
    expired: Iterable[Code] = (),
    not_processed: Iterable[Code] = (),
    refused: Iterable[Code] | None = None,
) -> Answers:
    """Name what codes mean. `refused` is the usual list of statuses, less what is named otherwise, unless given.

    Raises UsageError for a code with two meanings.
    """
    named = {
        "landed": landed,
        "exists": exists,
        "in_flight": in_flight,
        "changed_payload": changed_payload,
        "spent": spent,
        "expired": expired,
        "not_processed": not_processed,
    }
    sorted_codes = {name: tuple(sorted(set(codes), key=repr)) for name, codes in named.items()}
    taken = {code for codes in sorted_codes.values() for code in codes}
    usual = tuple(code for code in REFUSING_CODES if code not in taken)
    usual = REFUSING_CODES if len(usual) == len(REFUSING_CODES) else usual
    sorted_codes["refused"] = usual if refused is None else tuple(sorted(set(refused), key=repr))
    seen: dict[Code, str] = {}
    for name, codes in sorted_codes.items():
        for code in codes:
            if seen.setdefault(code, name) != name:
                raise UsageError(
                    f"code {code!r} is named by {seen[code]}= and by {name}=, which say different things about what "
                    "happened; name it once"
                )
    found = Answers(**sorted_codes)
    return DEFAULT_ANSWERS if found == DEFAULT_ANSWERS else found


def keyed(
    window: timedelta | float,
    *,
    margins: Margins = DEFAULT_MARGINS,
    header: str = "Idempotency-Key",
    shape: str = "uuid",
    length: int = 0,
    stores_refusals: bool = False,
    lag: timedelta | float = 30.0,
    refused: Iterable[Code] | None = None,
    in_flight: Iterable[Code] = (409,),
    landed: Iterable[Code] = (),
) -> Contract:
    """The receiver keeps our key for `window` and performs it once; past the margin of it, lookup or a person.

    `lag` counts only when the effect also has a lookup. Raises UsageError for what contradicts itself.
    """
    check_key_shape(shape, length)
    return Contract(
        kind=Kind.KEYED,
        window_seconds=_seconds(window, "keyed(window=)"),
        margins=margins.check(),
        lag_seconds=_seconds(lag, "keyed(lag=)", zero=True),
        key_name=header,
        shape=shape,
        length=length,
        stores_refusals=stores_refusals,
        answers=answers(refused=refused, in_flight=in_flight, landed=landed),
    )


def natural(
    *,
    exists: Iterable[Code] = (409, 412),
    refused: Iterable[Code] | None = None,
    lag: timedelta | float = 30.0,
    shape: str = "uuid",
    length: int = 0,
    owned: bool = False,
) -> Contract:
    """PUT, upsert, delete, if-match, an id that we choose: a repeat does no harm, and its answer says whose it is.

    `owned=True` says that the object's id is made of `attempt.key`, so that whatever exists under it is ours.
    """
    check_key_shape(shape, length)
    return Contract(
        kind=Kind.NATURAL,
        lag_seconds=_seconds(lag, "natural(lag=)", zero=True),
        answers=answers(exists=exists, refused=refused),
        shape=shape,
        length=length,
        owned=owned,
    )


def lookup(
    lag: timedelta | float, *, refused: Iterable[Code] | None = None, shape: str = "uuid", length: int = 0
) -> Contract:
    """The receiver ignores keys but can be asked; `lag` is the longest time until it shows what it has accepted."""
    check_key_shape(shape, length)
    return Contract(
        kind=Kind.LOOKUP,
        lag_seconds=_seconds(lag, "lookup(lag=)", zero=True),
        answers=answers(refused=refused),
        shape=shape,
        length=length,
    )


def opaque(*, at_least_once: bool = False, refused: Iterable[Code] | None = None) -> Contract:
    """The receiver promises nothing. In doubt a person decides, unless `at_least_once=True` accepts a duplicate."""
    return Contract(kind=Kind.OPAQUE, at_least_once=at_least_once, answers=answers(refused=refused))
