"""Which of our key shapes fits a receiver's limits. The key has 128 bits; 64 of them must survive, or keys would meet.

A UUID where it fits, since most receivers suggest one; else the shortest change: hex without hyphens, base 32 where
letters are lower-case, base 62.
"""

from __future__ import annotations

import string
from typing import NamedTuple

from ..core.errors import UsageError
from ..core.ids import check_key_shape
from .model import Key
from .words import Charset, KeyShape

UUID_LENGTH, HEX_LENGTH, BASE32_LENGTH, BASE62_LENGTH, NUMBER_LENGTH = 36, 32, 26, 22, 39
_UNBOUNDED = 1 << 20

LETTERS = {
    Charset.TOKEN: string.ascii_letters + string.digits + "-_",
    Charset.DNS: string.ascii_lowercase + string.digits + "-",
    Charset.ALPHANUMERIC: string.ascii_letters + string.digits,
    Charset.BASE32HEX: string.digits + "abcdefghijklmnopqrstuv",
    Charset.HEX: string.digits + "abcdef",
    Charset.DIGITS: string.digits,
}
"""What each charset allows; `any` allows everything that is printed here."""


class Shape(NamedTuple):
    """What the contract's `shape`, `length` and `prefix` say."""

    shape: str = "uuid"
    length: int = 0
    prefix: str = ""


def fit_key(key: Key, receiver: str) -> Shape:
    """The shape that fits; UsageError naming the field and the receiver when none does."""
    room = (_UNBOUNDED if key.max_length is None else key.max_length) - len(key.prefix)
    floor = (key.min_length or 0) - len(key.prefix)
    for shape, length in _choices(key, room):
        size = length or _full(shape)
        if size <= room and size >= floor and _is_allowed(shape, key.charset):
            if length and length < _full(shape):
                _check(shape, length, key, receiver)
                return Shape(shape, length, key.prefix)
            return Shape(shape, 0, key.prefix)
    raise UsageError(
        f"receiver {receiver!r}: no key fits key.min_length={key.min_length}, key.max_length={key.max_length}, "
        f"key.charset={key.charset.value!r}, key.prefix={key.prefix!r}; a key needs room for 64 bits (11 letters and "
        "digits in both cases, 14 lower-case, 16 hex digits, 20 digits). Use another field of the request as key"
    )


def _choices(key: Key, room: int) -> list[tuple[str, int]]:
    match key.shape:
        case KeyShape.ANY:
            digits = [("number", min(room, NUMBER_LENGTH))] if key.charset is Charset.DIGITS else []
            full = [("uuid", 0), ("hex", 0), ("base32", 0), ("base62", 0)]
            shortened = [(shape, room) for shape in ("base62", "base32", "hex") if room < _full(shape)]
            return [*digits, *full, *shortened]
        case KeyShape.HEX:
            return [("hex", min(room, HEX_LENGTH))]
        case KeyShape.NUMBER:
            return [("number", min(room, NUMBER_LENGTH))]
        case KeyShape.UUID | KeyShape.UUID4 | KeyShape.GIVEN:
            return [("uuid", 0)]
        case KeyShape.UUID5 | KeyShape.UUID7 | KeyShape.SEQUENCE:
            return [(key.shape.value, 0)]


def _full(shape: str) -> int:
    return {
        "hex": HEX_LENGTH,
        "base32": BASE32_LENGTH,
        "base62": BASE62_LENGTH,
        "number": NUMBER_LENGTH,
        "sequence": 1,
    }.get(shape, UUID_LENGTH)


def _is_allowed(shape: str, charset: Charset) -> bool:
    if charset is Charset.ANY:
        return True
    needs = {"hex": "0f", "base32": "0z", "base62": "0zZ", "number": "09", "sequence": "09"}.get(shape, "0f-")
    return set(needs) <= set(LETTERS[charset])


def _check(shape: str, length: int, key: Key, receiver: str) -> None:
    try:
        check_key_shape(shape, length)
    except UsageError as error:
        raise UsageError(
            f"receiver {receiver!r}: key.max_length={key.max_length} leaves {length} characters: {error}. "
            "Use another field of the request as key"
        ) from None
