"""Times as people say and read them: lengths are seconds or timedeltas, instants are told in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ..core.errors import UsageError

YEARS_MAX = 100
SPAN_SECONDS_MAX = YEARS_MAX * 366 * 86400.0


def span_of(value: Any, what: str, *, least: str = "0") -> float:
    """A length in seconds: a number or timedelta from `least` ("0", or "more than 0") to 100 years; else UsageError."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(seconds, str | bytes | bool):
        try:
            length = float(seconds)
        except (TypeError, ValueError, OverflowError):
            length = -1.0
        if 0 <= length <= SPAN_SECONDS_MAX and (length > 0 or least == "0"):
            return length
    raise UsageError(f"{what} must be a timedelta or seconds, {least} to {YEARS_MAX} years, found {shown(value)}")


def optional_span(value: Any, what: str) -> float | None:
    """The same for what may be left out: more than 0, or None."""
    return None if value is None else span_of(value, what, least="more than 0")


def instant(at: float) -> str:
    """The time in words, in UTC; one that no calendar has is the nearest that it has."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.max.replace(tzinfo=UTC) if at > 0 else datetime.min.replace(tzinfo=UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def shown(value: Any) -> str:
    """The value as it was given; one of thousands of digits only by its type."""
    try:
        text = repr(value)
    except ValueError:
        text = f"a very large {type(value).__qualname__}"
    return text if len(text) <= 120 else f"{text[:120]}…"
