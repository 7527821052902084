"""What a receiver promises about duplicates. The whole contract is data, stored in the intent.

So `doubts`, `doctor` and a later version of the code can do the arithmetic without the code that sent the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum

import msgspec

from .errors import UsageError
from .ids import check_key_shape


class Kind(StrEnum):
    """The five kinds of promise."""

    SAME_TRANSACTION = "same_transaction"
    KEYED = "keyed"
    NATURAL = "natural"
    LOOKUP = "lookup"
    OPAQUE = "opaque"


REFUSING_CODES: tuple[int | str, ...] = (400, 401, 403, 404, 405, 413, 415, 422)
_Code = int | str


class Contract(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One receiver's promise. Seconds throughout; `margin` is the part of the window that is relied on."""

    kind: Kind
    window_seconds: float = 0.0
    margin: float = 0.5
    lag_seconds: float = 0.0
    header: str = "Idempotency-Key"
    shape: str = "uuid"
    length: int = 0
    stores_refusals: bool = False
    at_least_once: bool = False
    refuses: tuple[int | str, ...] = REFUSING_CODES
    in_flight: tuple[int | str, ...] = ()
    exists: tuple[int | str, ...] = ()
    owned: bool = False

    @property
    def protected_seconds(self) -> float:
        """How long after the first possible send a repeat under the same key is harmless."""
        return self.window_seconds * self.margin


def _seconds(value: timedelta | float, what: str, *, zero: bool = False) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not (seconds > 0 or (zero and seconds == 0)) or seconds == float("inf") or seconds != seconds:
        raise UsageError(f"{what} must be a positive, finite time, found {value!r}")
    return seconds


def _refuse_overlap(**named: Iterable[_Code]) -> None:
    seen: dict[_Code, str] = {}
    for name, codes in named.items():
        for code in codes:
            if seen.setdefault(code, name) != name:
                raise UsageError(
                    f"code {code!r} is named by {seen[code]}= and by {name}=, which say different things about what "
                    f"happened; name it once (refuses= is {list(REFUSING_CODES)} unless given)"
                )


def _codes(codes: Iterable[_Code]) -> tuple[_Code, ...]:
    return tuple(sorted(set(codes), key=str))


def keyed(
    window: timedelta | float,
    *,
    margin: float = 0.5,
    header: str = "Idempotency-Key",
    shape: str = "uuid",
    length: int = 0,
    stores_refusals: bool = False,
    lag: timedelta | float = 30.0,
    refuses: Iterable[_Code] = REFUSING_CODES,
    in_flight: Iterable[_Code] = (409,),
) -> Contract:
    """The receiver keeps our key for `window` and performs it once; after `margin` of it, lookup or a person.

    `lag` counts only when the effect also has a lookup. Raises UsageError for what contradicts itself.
    """
    if not 0 < margin <= 1:
        raise UsageError(f"margin must be in (0, 1], found {margin!r}: it is the part of the window to rely on")
    check_key_shape(shape, length)
    refuses, in_flight = _codes(refuses), _codes(in_flight)
    _refuse_overlap(refuses=refuses, in_flight=in_flight)
    return Contract(
        kind=Kind.KEYED,
        window_seconds=_seconds(window, "keyed(window=)"),
        margin=margin,
        lag_seconds=_seconds(lag, "keyed(lag=)", zero=True),
        header=header,
        shape=shape,
        length=length,
        stores_refusals=stores_refusals,
        refuses=refuses,
        in_flight=in_flight,
    )


def natural(
    *,
    exists: Iterable[_Code] = (409, 412),
    refuses: Iterable[_Code] = REFUSING_CODES,
    lag: timedelta | float = 30.0,
    shape: str = "uuid",
    length: int = 0,
    owned: bool = False,
) -> Contract:
    """PUT, upsert, delete, if-match, an id that we choose: a repeat does no harm, and its answer says whose it is.

    `owned=True` says that the object's id is made of `attempt.key`, so that whatever exists under it is ours.
    """
    check_key_shape(shape, length)
    refuses, exists = _codes(refuses), _codes(exists)
    _refuse_overlap(refuses=refuses, exists=exists)
    return Contract(
        kind=Kind.NATURAL,
        lag_seconds=_seconds(lag, "natural(lag=)", zero=True),
        exists=exists,
        refuses=refuses,
        shape=shape,
        length=length,
        owned=owned,
    )


def lookup(
    lag: timedelta | float, *, refuses: Iterable[_Code] = REFUSING_CODES, shape: str = "uuid", length: int = 0
) -> Contract:
    """The receiver ignores keys but can be asked; `lag` is the longest time until it shows what it has accepted."""
    check_key_shape(shape, length)
    return Contract(
        kind=Kind.LOOKUP,
        lag_seconds=_seconds(lag, "lookup(lag=)", zero=True),
        refuses=_codes(refuses),
        shape=shape,
        length=length,
    )


def opaque(*, at_least_once: bool = False, refuses: Iterable[_Code] = REFUSING_CODES) -> Contract:
    """The receiver promises nothing. In doubt a person decides, unless `at_least_once=True` accepts a duplicate."""
    return Contract(kind=Kind.OPAQUE, at_least_once=at_least_once, refuses=_codes(refuses))
