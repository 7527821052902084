"""Writes a statement's `?` marks as a DB-API driver wants them (PEP 249, `paramstyle`).

Our `.sql` files that run on a connection of the user's use `?`, and no other question mark.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from ..core.errors import UsageError

_NUMBERED = {"numeric": ":", "numeric_dollar": "$"}
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


@cache
def with_marks(statement: str, style: str) -> str:
    """The statement for a driver of that paramstyle; values are then given by position."""
    if style in _MARKS:
        return statement.replace("?", _MARKS[style])
    if style not in _NUMBERED:
        known = sorted([*_MARKS, *_NUMBERED])
        raise UsageError(f"the driver's paramstyle is {style!r}; expected one of {known}: use another driver")
    first, *others = statement.split("?")
    return first + "".join(f"{_NUMBERED[style]}{number}{part}" for number, part in enumerate(others, 1))


def style_of(connection: Any) -> str:
    """The paramstyle of the driver that a DB-API connection (or a subclass of one) comes from; `qmark` if unsaid."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        style = getattr(module, "paramstyle", None)
        if isinstance(style, str):
            return style
    return "qmark"
