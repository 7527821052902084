"""Models for agents that do not simply call a tool."""

from __future__ import annotations

import json

from surefoot.testing.models import Ask, Planner, Say, ToolCall, checkout

from .kit import OPERATIONS

BUTTONS = {"reserve": (210, 130), "charge": (210, 230), "confirm": (210, 330)}
"""Where the computer-use agent finds each button."""


def browser(ask: Ask) -> Say:
    """browser-use asks for one JSON object: thoughts, and a list of actions."""
    missing = [op for op in OPERATIONS if f"receipt:{op}:" not in ask.text]
    return action("shop", {"op": missing[0]} if missing else None)


def action(tool: str, arguments: dict[str, str] | None) -> Say:
    """What browser-use takes for an action, or for the end."""
    done = {"done": {"text": "order complete", "success": True, "files_to_display": []}}
    thoughts = dict.fromkeys(("thinking", "evaluation_previous_goal", "memory", "next_goal"), "go on")
    return Say(text=json.dumps({**thoughts, "action": [done if arguments is None else {tool: arguments}]}))


def computer(ask: Ask) -> Say:
    """Clicks one button after another; the screen never tells, so it knows by the clicks that stand in the request."""
    clicked = {(call.arguments.get("x"), call.arguments.get("y")) for call in ask.calls}
    missing = [at for at in BUTTONS.values() if at not in clicked]
    if not missing:
        return Say(text="order complete")
    action = {"type": "click", "x": missing[0][0], "y": missing[0][1], "button": "left"}
    return Say(calls=(ToolCall(name="computer", arguments=action),))


def coder(ask: Ask) -> Say:
    """smolagents' CodeAgent wants Python between its tags."""
    missing = [op for op in OPERATIONS if f"receipt:{op}:" not in ask.text]
    line = f"print(shop(op={missing[0]!r}))" if missing else "final_answer('order complete')"
    return Say(text=f"Thought: go on\n<code>\n{line}\n</code>")


def react(ask: Ask) -> Say:
    """Where an agent names its tools in words only, as older versions of CrewAI do, it is answered in words."""
    missing = [op for op in OPERATIONS if f"receipt:{op}:" not in ask.text]
    return checkout(ask) if ask.tools else in_words("shop", {"op": missing[0]} if missing else None)


def in_words(tool: str, arguments: dict[str, str] | None) -> Say:
    """What a model without tool calls writes: the action that it wants, or its final answer."""
    if arguments is None:
        return Say(text="Thought: I now know the final answer\nFinal Answer: order complete")
    return Say(text=f"Thought: go on\nAction: {tool}\nAction Input: {json.dumps(arguments)}")


def page(ask: Ask) -> Say:
    """Has order 81 charged by the tool of that name, whatever a framework puts before the name, then ends."""
    missing = "receipt:charge:" not in ask.text
    if not ask.tools and "Final Answer:" in ask.text:
        return in_words("charge", {"order": "81"} if missing else None)
    if not ask.tools and "evaluation_previous_goal" in ask.text:
        return action("charge", {"order": "81"} if missing else None)
    if "computer" in ask.tools:
        return Say(text="order complete") if ask.calls else computer(ask)
    names = [name for name in ask.tools if name.endswith("charge")] if missing else []
    return Say(calls=(ToolCall(name=names[0], arguments={"order": "81"}),)) if names else checkout(ask, operations=())


def claude(ask: Ask) -> Say:
    """The tool of an SDK MCP server, under the name that Claude's program gives it."""
    return checkout(ask, tool="mcp__shop__shop")


def claude_at_once(ask: Ask) -> Say:
    """`claude` with all that is missing in one turn."""
    return checkout(ask, tool="mcp__shop__shop", at_once=True)


def bash(ask: Ask) -> Say:
    """Claude's built-in shell; the command is in the environment of the program."""
    missing = [op for op in OPERATIONS if f"receipt:{op}:" not in ask.text]
    if not missing or "Bash" not in ask.tools:
        return Say(text="order complete")
    arguments = {"command": f"python3 $PRESS {missing[0]}", "description": "one operation of the checkout"}
    return Say(calls=(ToolCall(name="Bash", arguments=arguments),))


PLANNERS: dict[str, Planner] = {
    "browser": browser,
    "computer": computer,
    "coder": coder,
    "react": react,
    "claude": claude,
    "bash": bash,
}
AT_ONCE: dict[Planner, Planner] = {claude: claude_at_once}
"""For each of these, the one that asks for everything in one turn; the shop's checkout otherwise."""
