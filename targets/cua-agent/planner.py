"""The scripted model: presses the first button that no earlier call of the conversation pressed."""

from __future__ import annotations

from surefoot.testing.models import Ask, Say, ToolCall

OPERATIONS = {"reserve": (210, 130), "charge": (210, 230), "confirm": (210, 330)}


def plan(ask: Ask) -> Say:
    """Decides from the request alone."""
    pressed = {(call.arguments.get("x"), call.arguments.get("y")) for call in ask.calls}
    for x, y in OPERATIONS.values():
        if (x, y) not in pressed:
            return Say(
                calls=(ToolCall(name="computer", arguments={"type": "click", "x": x, "y": y, "button": "left"}),)
            )
    return Say(text="order complete")
