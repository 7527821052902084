"""The model: a chat-completions endpoint whose planner knows only what the request says.

A planner that counted its own calls could not be resumed, so the turn is read off the history: one tool result, one
turn done. As real endpoints do, it refuses a history with an unanswered tool call, its call ids are new each time,
and so is its wording: whoever asks twice gets a different text. What it served, it records before it answers.
"""

import json
import uuid

from surefoot.demo.receiver import Handler, Json, Place, serve_until_orphaned
from surefoot.demo.scenario import TURNS, Turn, Window

_COMPLETION_TOKENS = 400
_ARGUMENTS: dict[str, Json] = {
    "read_logs": {"service": "checkout", "minutes": 15},
    "open_ticket": {"title": "Checkout error rate above 5%", "severity": "S2"},
    "page_on_call": {"team": "payments", "urgency": "high"},
    "post_status": {"component": "checkout", "state": "degraded"},
    "read_metrics": {"service": "checkout", "metric": "error_rate"},
}
_REMARKS = {
    "open_ticket": "Card authorisations time out since the 14:02 deploy.",
    "page_on_call": "Checkout degraded, please look at the payment gateway.",
    "post_status": "Some payments fail. We are on it.",
}


class ModelHandler(Handler):
    """``POST /{place}/v1/chat/completions``."""

    def serve(self, place: Place, method: str, path: list[str], body: Json) -> tuple[int, Json] | None:
        if method != "POST" or path != ["v1", "chat", "completions"]:
            return 404, {"error": {"message": f"no such endpoint: {method} {self.path}"}}
        number = place.arrive()
        if place.strike(number, Window.BEFORE):
            return None
        turn, complaint = _read_turn(body)
        if turn is None:
            return 400, {"error": {"message": complaint, "type": "invalid_request_error"}}
        with place.lock:
            place.append({"event": "served", "turn": turn.number, "tokens": turn.tokens})
        if place.strike(number, Window.EFFECT):
            return None
        return 200, _completion(turn, model=str(body.get("model", "scripted")))


def _read_turn(body: Json) -> tuple[Turn | None, str]:
    asked: set[str] = set()
    answered: set[str] = set()
    messages: list[Json] = body.get("messages", [])
    for message in messages:
        calls: list[Json] = message.get("tool_calls") or []
        asked |= {call["id"] for call in calls}
        if message.get("role") == "tool":
            answered.add(message["tool_call_id"])
    if asked != answered:
        return None, "every tool call must be followed by a tool message with its tool_call_id"
    if len(answered) >= len(TURNS):
        return None, "the incident is over: there is nothing left to ask for"
    return TURNS[len(answered)], ""


def _completion(turn: Turn, *, model: str) -> Json:
    arguments = dict(_ARGUMENTS[turn.tool])
    if turn.tool in _REMARKS:
        arguments["text"] = f"{_REMARKS[turn.tool]} (draft {uuid.uuid4().hex[:6]})"
    call = {
        "id": f"call_{uuid.uuid4().hex[:12]}",
        "type": "function",
        "function": {"name": turn.tool, "arguments": json.dumps(arguments)},
    }
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex[:12]}",
        "object": "chat.completion",
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": None, "tool_calls": [call]},
            }
        ],
        "usage": {
            "prompt_tokens": turn.tokens - _COMPLETION_TOKENS,
            "completion_tokens": _COMPLETION_TOKENS,
            "total_tokens": turn.tokens,
        },
    }


if __name__ == "__main__":
    serve_until_orphaned(ModelHandler)
