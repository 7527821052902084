"""What Claude's program is answered: results of tools, and what hooks say."""

from __future__ import annotations

from typing import Any, cast

Answer = dict[str, Any]


def as_result(found: Any) -> Answer:
    """A tool's result; also of what a lookup found, or a person gave as the receipt."""
    if isinstance(found, dict) and "content" in found:
        return cast("Answer", found)
    text = str(cast("object", found))
    return {"content": [{"type": "text", "text": text}]}


def error(text: str) -> Answer:
    """A result that says what went wrong."""
    return {**as_result(text), "is_error": True}


def deny(why: str) -> Answer:
    """The program may not run this tool."""
    told = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}
    return {"hookSpecificOutput": told}


def output_of(value: Any) -> Answer:
    """The program shows the model this, in place of what the tool gave."""
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": value}}
