"""Anthropic messages: `POST …/v1/messages`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .words import (
    Ask,
    Dialect,
    Event,
    Generation,
    Json,
    ToolCall,
    ToolResult,
    Turn,
    halves,
    joined,
    listed,
    plain,
    words,
)

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def blocks_of(message: Json) -> list[Json]:
    """The content of a message as a list of blocks."""
    held: Any = message.get("content")
    return [{"type": "text", "text": held or ""}] if isinstance(held, str) else listed(held)


def read(body: Json, path: str) -> Ask:
    """The request in our words; tool results stand in a user's message and are a turn of their own."""
    tools: list[Json] = body.get("tools") or []
    messages: list[Json] = body.get("messages") or []
    turns = [Turn(role="system", text=plain(body["system"]))] if body.get("system") else []
    for message in messages:
        turns += _turns(message)
    return Ask(
        api="messages",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=joined(turns),
        tools=tuple(str(tool.get("name", "")) for tool in tools),
        body=body,
    )


def _turns(message: Json) -> list[Turn]:
    blocks = blocks_of(message)
    text = "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
    if message.get("role") == "assistant":
        calls = tuple(
            ToolCall(id=str(block["id"]), name=str(block["name"]), arguments=block.get("input") or {})
            for block in blocks
            if block.get("type") == "tool_use"
        )
        return [Turn(role="assistant", text=text, calls=calls)]
    results = tuple(
        ToolResult(id=str(block.get("tool_use_id")), text=plain(block.get("content")))
        for block in blocks
        if block.get("type") == "tool_result"
    )
    told = [Turn(role="tool", results=results)] if results else []
    return [*told, Turn(role="user", text=text)] if text or not results else told


def refusal(ask: Ask) -> str:
    """What the endpoint has against this request, or ""."""
    messages: list[Json] = ask.body.get("messages") or []
    if not ask.model:
        return "model: Field required"
    if "max_tokens" not in ask.body:
        return "max_tokens: Field required"
    if not messages:
        return "messages: at least one message is required"
    if messages[0].get("role") != "user":
        return 'messages: first message must use the "user" role'
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
        unanswered = [held for held in waiting if held not in results]
        if unanswered:
            return _unanswered(place - 1, unanswered)
        for held in results:
            if held not in waiting:
                return (
                    f"messages.{place}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {held}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        uses = [str(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
        if len(uses) != len(set(uses)) or seen & set(uses):
            return f"messages.{place}.content: `tool_use` ids must be unique"
        seen |= set(uses)
        waiting = uses
    return _unanswered(len(messages) - 1, waiting) if waiting else ""


def _unanswered(place: int, waiting: list[str]) -> str:
    return (
        f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(waiting)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def content_of(made: Generation) -> list[Json]:
    """The blocks of an answer."""
    content: list[Json] = []
    if made.thinking:
        content.append({"type": "thinking", "thinking": made.thinking, "signature": f"sealed-{made.nonce}"})
    if made.text or not made.calls:
        content.append({"type": "text", "text": made.text})
    content += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in made.calls]
    return content


def whole(made: Generation) -> Json:
    """The answer as one object."""
    return {
        "id": f"msg_{made.nonce}",
        "type": "message",
        "role": "assistant",
        "model": made.ask.model,
        "content": content_of(made),
        "stop_reason": _stop(made),
        "stop_sequence": None,
        "usage": usage(made),
    }


def usage(made: Generation) -> Json:
    """Tokens in this endpoint's words: those read from the cache are no part of `input_tokens`."""
    return {
        "input_tokens": made.usage.input - made.usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": made.usage.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": made.usage.output,
        "service_tier": "standard",
    }


def events(made: Generation) -> Iterator[Event]:
    """The answer as it streams."""
    answer = whole(made)
    begun: Json = {**answer, "content": [], "stop_reason": None, "usage": {**answer["usage"], "output_tokens": 1}}
    yield _event("message_start", message=begun)
    yield _event("ping")
    for index, block in enumerate(content_of(made)):
        yield from _block(index, block)
    ending = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": made.usage.output})
    yield _event("message_stop")


def _block(index: int, block: Json) -> Iterator[Event]:
    def delta(kind: str, **held: Any) -> Event:
        return _event("content_block_delta", index=index, delta={"type": kind, **held})

    match block["type"]:
        case "text":
            yield _event("content_block_start", index=index, content_block={**block, "text": ""})
            for word in words(str(block["text"])):
                yield delta("text_delta", text=word)
        case "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            yield _event("content_block_start", index=index, content_block=empty)
            yield delta("thinking_delta", thinking=block["thinking"])
            yield delta("signature_delta", signature=block["signature"])
        case _:
            yield _event("content_block_start", index=index, content_block={**block, "input": {}})
            for half in ("", *halves(json.dumps(block["input"]))):
                yield delta("input_json_delta", partial_json=half)
    yield _event("content_block_stop", index=index)


def _event(kind: str, **held: Any) -> Event:
    return kind, json.dumps({"type": kind, **held})


def _stop(made: Generation) -> str:
    return "max_tokens" if made.truncated else "tool_use" if made.calls else "end_turn"


def error(status: int, message: str) -> Json:
    """The body of an answer that is no success."""
    return {"type": "error", "error": {"type": TYPES.get(status, "api_error"), "message": message}}


MESSAGES = Dialect(
    api="messages",
    call_id=lambda nonce, index: f"toolu_{nonce[:22]}{index:02d}",
    read=read,
    refusal=refusal,
    whole=whole,
    events=events,
    error=error,
    error_event=lambda status, message: ("error", json.dumps(error(status, message))),
    request_id_header="request-id",
)
