"""Exceptions as values: builtins and those that a step names come back as themselves, others as StepFailed.

Live and on replay the workflow gets the exception that was rebuilt from the record, so both see the same. Nothing is
imported by a name found in the record: classes come from `builtins` or from the step's own `raises=`.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import msgspec

from .errors import (
    Abandoned,
    BudgetExceeded,
    Denied,
    Disagreement,
    NotApproved,
    Refused,
    RunCancelled,
    StepFailed,
    UsageError,
    ValueRefused,
)

MESSAGE_CHARACTERS = 4000


class Failure(msgspec.Struct, frozen=True):
    """What the journal keeps of an exception."""

    type: str
    message: str
    args: list[Any] | None = None


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Failure).decode


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()[:MESSAGE_CHARACTERS]


def message_of(error: BaseException) -> str:
    """What an exception says; where its own `__str__` fails, that."""
    try:
        return str(error)
    except Exception as broken:
        return f"(its message cannot be shown: {type(broken).__name__})"


def _is_plain(arg: object) -> bool:
    return isinstance(arg, str | int | bool | None) or (isinstance(arg, float) and math.isfinite(arg))


def encode_failure(error: BaseException) -> bytes:
    """The exception's class, message and, when they are plain values, its arguments."""
    args: list[Any] | None = list(getattr(error, "rebuild_args", error.args))
    try:
        if not all(_is_plain(arg) for arg in args):
            args = None
        content = _encode(Failure(type(error).__qualname__, _clean(message_of(error)), args))
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        content = _encode(Failure(type(error).__qualname__, _clean(message_of(error))))
    return content


def rebuild_failure(
    content: bytes, name: str, raises: tuple[type[BaseException], ...], what: str = "step"
) -> BaseException:
    """The exception that is seen for a recorded failure of the step, or `what` else, of that name."""
    failure = _decode(content)
    failed = StepFailed(name, failure.type, failure.message, what)
    for kind in (*raises, *_BUILTINS, *_OURS):
        if kind.__qualname__ == failure.type:
            return _rebuild(kind, failure) or failed
    return failed


def _rebuild(kind: type[BaseException], failure: Failure) -> BaseException | None:
    for args in (failure.args, [failure.message]):
        if args is None:
            continue
        try:
            error = kind(*args)
        except Exception:
            continue
        return error
    return None


_BUILTINS = tuple(
    value
    for value in vars(builtins).values()
    if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, ExceptionGroup)
)
_OURS = (
    BudgetExceeded,
    RunCancelled,
    StepFailed,
    Refused,
    Abandoned,
    Denied,
    NotApproved,
    Disagreement,
    ValueRefused,
    UsageError,
)
