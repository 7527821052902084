"""Tells where a stream hands its reader a whole tool call: from there on an eager agent may act.

Agents that start a tool before the answer has ended (Claude's program, Codex, the AI SDK) would else act on an answer
that nobody has recorded, and that a cut connection or a crash may replace by another one.
"""

from __future__ import annotations

from typing import Any, cast

ACTS = frozenset(
    ("apply_patch_call", "computer_call", "custom_tool_call", "function_call", "local_shell_call", "shell_call")
)
"""Items of a response that the agent runs; others, such as `web_search_call`, the provider has run already."""
WHOLE_INPUT = frozenset(("response.function_call_arguments.done", "response.custom_tool_call_input.done"))


class Handing:
    """Is shown the events of one answer in order."""

    def __init__(self) -> None:
        """No tool call has begun."""
        self._calls: set[Any] = set()

    def hands_over(self, event: dict[str, Any]) -> bool:
        """True if after this event its reader may hold a whole tool call. Earlier is harmless, later is not."""
        match event:
            case {"type": "content_block_start", "content_block": {"type": "tool_use"}}:
                self._calls.add(event.get("index"))
                return False
            case {"type": "content_block_stop"}:
                return event.get("index") in self._calls
            case {"type": "response.output_item.done", "item": {"type": str(kind)}}:
                return kind in ACTS
            case {"type": str(kind)}:
                return kind in WHOLE_INPUT
            case {"choices": choices}:
                return any(map(_ends_arguments, _items(choices)))
            case {"candidates": candidates}:
                return any(map(_calls_function, _items(candidates)))
            case _:
                return False


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _ends_arguments(choice: Any) -> bool:
    """In a chat nothing says that a call is whole; a reader takes it when its arguments are an object."""
    match choice:
        case {"delta": {"tool_calls": calls}} if calls:
            return any(map(_is_object_end, _items(calls)))
        case {"delta": {"function_call": call}}:
            return _is_object_end({"function": call})
        case _:
            return False


def _is_object_end(call: Any) -> bool:
    match call:
        case {"function": {"arguments": str(text)}}:
            return text.rstrip().endswith("}")
        case _:
            return False


def _calls_function(candidate: Any) -> bool:
    match candidate:
        case {"content": {"parts": parts}}:
            return any("functionCall" in part for part in _items(parts))
        case _:
            return False
