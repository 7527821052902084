"""A scripted model on your machine: OpenAI chat and responses, Anthropic messages, Gemini; streamed, failing, cut.

It costs nothing, says the same thing for the same request, refuses what the real endpoints refuse, and writes down
every answer that would have been paid, before it leaves.
"""

from .planners import PLANNERS, checkout, checkout_at_once, replies, scripted
from .server import ModelServer
from .service import Meets
from .victim import Boundary, Victim
from .words import Ask, Planner, Say, ToolCall, ToolResult, Turn, Usage

__all__ = [
    "PLANNERS",
    "Ask",
    "Boundary",
    "Meets",
    "ModelServer",
    "Planner",
    "Say",
    "ToolCall",
    "ToolResult",
    "Turn",
    "Usage",
    "Victim",
    "checkout",
    "checkout_at_once",
    "replies",
    "scripted",
]
