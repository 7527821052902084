"""OpenAI chat completions: `POST …/chat/completions`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .openai import error, failed
from .words import (
    Ask,
    Dialect,
    Event,
    Generation,
    Json,
    Role,
    ToolCall,
    ToolResult,
    Turn,
    arguments_of,
    halves,
    joined,
    keyed,
    plain,
    words,
)

ROLES: dict[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}


def read(body: Json, path: str) -> Ask:
    """The request in our words."""
    messages: list[Json] = body.get("messages") or []
    tools: list[Json] = body.get("tools") or []
    return Ask(
        api="chat",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=joined([_turn(message) for message in messages]),
        tools=tuple(str(keyed(tool.get("function") or tool.get("custom")).get("name", "")) for tool in tools),
        body=body,
    )


def _turn(message: Json) -> Turn:
    role = ROLES.get(str(message.get("role")), "user")
    text = plain(message.get("content"))
    if role == "tool":
        return Turn(role="tool", results=(ToolResult(id=str(message.get("tool_call_id", "")), text=text),))
    calls: list[Json] = message.get("tool_calls") or []
    return Turn(
        role=role,
        text=text,
        calls=tuple(
            ToolCall(
                id=call["id"], name=call["function"]["name"], arguments=arguments_of(call["function"]["arguments"])
            )
            for call in calls
            if "function" in call
        ),
    )


def refusal(ask: Ask) -> str:
    """What the endpoint has against this request, or ""."""
    messages: list[Json] = ask.body.get("messages") or []
    if not ask.model:
        return "you must provide a model parameter"
    if not messages:
        return (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                return (
                    f"Invalid parameter: messages[{place}] with role 'tool' must be a response to a preceeding message "
                    "with 'tool_calls'."
                )
            waiting.remove(str(message["tool_call_id"]))
            continue
        if waiting:
            return _unanswered(waiting)
        calls: list[Json] = message.get("tool_calls") or []
        waiting = [str(call.get("id")) for call in calls]
        if message.get("role") == "assistant" and not calls and message.get("content") is None:
            return f"Invalid value for 'content' of messages[{place}]: expected a string, got null."
    return _unanswered(waiting) if waiting else ""


def _unanswered(waiting: list[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
    )


def whole(made: Generation) -> Json:
    """The answer as one object."""
    message: Json = {"role": "assistant", "content": made.text or None, "refusal": None, "annotations": []}
    if made.calls:
        message["tool_calls"] = [_call(call) for call in made.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(made)}
    return {**_head(made, "chat.completion"), "choices": [choice], "usage": usage(made)}


def events(made: Generation) -> Iterator[Event]:
    """The answer as it streams; `usage` comes last, and only to who asked for it."""
    options: Json = made.ask.body.get("stream_options") or {}
    with_usage = bool(options.get("include_usage"))

    def chunk(delta: Json, finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        held: Json = {**_head(made, "chat.completion.chunk"), "choices": [choice]}
        return "", json.dumps({**held, "usage": None} if with_usage else held)

    yield chunk({"role": "assistant", "content": None if made.calls and not made.text else "", "refusal": None})
    for word in words(made.text):
        yield chunk({"content": word})
    for index, call in enumerate(made.calls):
        asked = _call(call)
        yield chunk({"tool_calls": [{**asked, "index": index, "function": {"name": call.name, "arguments": ""}}]})
        for half in halves(asked["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    yield chunk({}, _finish(made))
    if with_usage:
        yield "", json.dumps({**_head(made, "chat.completion.chunk"), "choices": [], "usage": usage(made)})
    yield "", "[DONE]"


def usage(made: Generation) -> Json:
    """Tokens in this endpoint's words."""
    return {
        "prompt_tokens": made.usage.input,
        "completion_tokens": made.usage.output,
        "total_tokens": made.usage.input + made.usage.output,
        "prompt_tokens_details": {"cached_tokens": made.usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": made.usage.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(made: Generation, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{made.nonce}",
        "object": kind,
        "created": made.created,
        "model": made.ask.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _call(call: ToolCall) -> Json:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
    }


def _finish(made: Generation) -> str:
    return "length" if made.truncated else "tool_calls" if made.calls else "stop"


CHAT = Dialect(
    api="chat",
    call_id=lambda nonce, index: f"call_{nonce[:22]}{index:02d}",
    read=read,
    refusal=refusal,
    whole=whole,
    events=events,
    error=error,
    error_event=lambda status, message: ("", json.dumps(failed(status, message))),
)
