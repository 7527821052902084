"""What Claude's program writes into its requests that is no part of the question.

It names its version and entry point in a block of the system prompt, to who bills it; some versions put a number there
that is another one in each process. And it says which day it is, so that a run that is started again after midnight
would ask another question than it did: what was answered the day before is still its answer.
"""

from __future__ import annotations

import re
from typing import Any, cast

BILLING = "x-anthropic-billing-header:"
_TODAY = re.compile(r"\b(Today's date is) \d{4}-\d{2}-\d{2}\b|\b(The current month is) [A-Z][a-z]+ \d{4}\b")


def question_of(content: Any) -> Any:
    """The body of a request as it counts; that of any other program is given back as it is."""
    body = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if not isinstance(body.get("system"), list):
        return cast("Any", content)
    blocks = cast("list[Any]", body["system"])
    rest = [block for block in blocks if not _text(block).startswith(BILLING)]
    if len(rest) == len(blocks):
        return body
    return {**body, **{name: _undated(body.get(name)) for name in ("messages", "tools")}, "system": _undated(rest)}


def _text(block: Any) -> str:
    return str(cast("dict[str, Any]", block).get("text", "")) if isinstance(block, dict) else ""


def _undated(value: Any) -> Any:
    match value:
        case str():
            return _TODAY.sub(r"\1\2", value)
        case list():
            return [_undated(each) for each in cast("list[Any]", value)]
        case {"role": "user" | "system", "content": content}:
            return {**cast("dict[str, Any]", value), "content": _undated(content)}
        case {"type": "text", "text": str(text)}:
            return {**cast("dict[str, Any]", value), "text": _undated(text)}
        case {"name": str(), "description": str(text)}:  # a tool: that of its search names the month
            return {**cast("dict[str, Any]", value), "description": _undated(text)}
        case _:
            return value
