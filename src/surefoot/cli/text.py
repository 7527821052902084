"""How stored things look to a person. Nothing that was stored may steer the terminal: every control character, also
those that reverse or hide text, is shown as an escape.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..core.plain import plain as safe

__all__ = ["ago", "clock", "compact", "day", "moment", "safe", "shell"]

PREVIEW_CHARACTERS = 160


def compact(value: Any) -> str:
    """A JSON value on one line, cut to a preview."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= PREVIEW_CHARACTERS else f"{text[:PREVIEW_CHARACTERS]}… ({len(text):,} characters)"


def day(at: float) -> str:
    """The local date."""
    return _local(at).strftime("%Y-%m-%d")


def clock(at: float) -> str:
    """The local time of day, to the millisecond."""
    moment = _local(at)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def moment(at: float) -> str:
    """The local date and time, with its offset."""
    return _local(at).strftime("%Y-%m-%d %H:%M:%S %z")


def _local(at: float) -> datetime:
    try:
        return datetime.fromtimestamp(at).astimezone()
    except (ValueError, OverflowError, OSError):  # an instant that no calendar here has: the nearest that it has
        return datetime.max.replace(tzinfo=UTC) if at > 0 else datetime.fromtimestamp(0).astimezone()


def ago(seconds: float) -> str:
    """How long ago, in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def shell(*words: str) -> str:
    """A command that can be pasted, whatever its words hold."""
    return " ".join(shlex.quote(word) for word in words)
