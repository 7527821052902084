"""Which call of the model a tool is being run for, and which attempt its body is making: context variables.

Frameworks say the first (`with tool_call_id("call_1"):`), the gate says the second. Threads and tasks that copy the
context see both.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..core.errors import UsageError
from ..effects.attempt import Attempt


class ToolCall:
    """One time that a framework runs a tool for one call of the model; `taken` counts the gated calls within it."""

    __slots__ = ("id", "taken")

    def __init__(self, id: str) -> None:
        """`id` is the tool_call_id of the model's response."""
        self.id = id
        self.taken: dict[str, int] = {}

    def occurrence(self, name: str) -> int:
        """How often `name` was called within it before; a framework that runs it anew begins at 0 again."""
        occurrence = self.taken.get(name, 0)
        self.taken[name] = occurrence + 1
        return occurrence


tool_call: ContextVar[ToolCall | None] = ContextVar("surefoot_tool_call", default=None)
attempting: ContextVar[Attempt | None] = ContextVar("surefoot_attempt", default=None)


@contextmanager
def tool_call_id(id: str | None) -> Generator[ToolCall | None]:
    """Within the block tools are run for this call of the model. None: for none that is known."""
    call = ToolCall(id) if id else None
    token = tool_call.set(call)
    try:
        yield call
    finally:
        tool_call.reset(token)


@contextmanager
def under(attempt: Attempt) -> Generator[Any]:
    """Within the block, `attempt()` is this one."""
    token = attempting.set(attempt)
    try:
        yield
    finally:
        attempting.reset(token)


def attempt() -> Attempt:
    """The attempt that the calling tool's body makes: its key, headers and timeout. UsageError outside of one."""
    held = attempting.get()
    if held is None:
        raise UsageError(
            "attempt() was called outside a tool's body, or in a read-only tool, which has no key to send; a tool with "
            "a contract (@tool(keyed(...))) has one"
        )
    return held
