"""A few models that are plain functions. Each decides from the request alone."""

from __future__ import annotations

from collections.abc import Sequence

from .words import Ask, Json, Planner, Say, ToolCall, listed

OPERATIONS = ("reserve", "charge", "confirm")


def checkout(
    ask: Ask,
    *,
    tool: str = "shop",
    operations: Sequence[str] = OPERATIONS,
    argument: str = "op",
    at_once: bool = False,
    final: str = "order complete",
) -> Say:
    """Asks for one operation after another until the conversation holds `receipt:OPERATION:` of each.

    `at_once` asks for all that are missing in one turn. Where the agent brings a tool `final_answer`, the end is a call
    of that.
    """
    missing = [operation for operation in operations if f"receipt:{operation}:" not in ask.text]
    if missing and tool in ask.tools:
        wanted = missing if at_once else missing[:1]
        return Say(calls=tuple(ToolCall(name=tool, arguments={argument: operation}) for operation in wanted))
    if "final_answer" in ask.tools:
        return Say(calls=(ToolCall(name="final_answer", arguments={"answer": final}),))
    return Say(text=final)


def checkout_at_once(ask: Ask) -> Say:
    """`checkout` in which one turn asks for everything that is missing: parallel tool calls."""
    return checkout(ask, at_once=True)


def replies(*says: Say | str) -> Planner:
    """A planner of fixed replies: the nth turn of a conversation gets the nth, and the last stands for all later."""
    script = [Say(text=say) if isinstance(say, str) else say for say in says]

    def planner(ask: Ask) -> Say:
        return script[min(ask.answers, len(script) - 1)]

    return planner


def scripted(turns: Sequence[Json]) -> Planner:
    """`replies` from plain JSON: `{"text": ..., "calls": [{"name": ..., "arguments": {...}}]}` for each turn."""
    return replies(*(_say(turn) for turn in turns))


def _say(turn: Json) -> Say:
    return Say(
        text=str(turn.get("text") or ""),
        thinking=str(turn.get("thinking") or ""),
        calls=tuple(
            ToolCall(name=str(call["name"]), arguments=call.get("arguments") or {})
            for call in listed(turn.get("calls"))
        ),
    )


PLANNERS: dict[str, Planner] = {
    "checkout": checkout,
    "checkout_at_once": checkout_at_once,
    "hello": replies("hello"),
}
"""Those that a command line can name."""
