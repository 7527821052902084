"""OpenAI responses: `POST …/responses`, conversations by `previous_response_id` included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .openai import CODES, error
from .words import (
    Ask,
    Dialect,
    Event,
    Generation,
    Json,
    ToolCall,
    ToolResult,
    Turn,
    arguments_of,
    joined,
    listed,
    plain,
    words,
)

COMPUTER_TOOLS = ("computer_use_preview", "computer", "computer-preview")


def items_of(body: Json) -> list[Json]:
    """The input as a list of items."""
    held: Any = body.get("input")
    return [{"role": "user", "content": held}] if isinstance(held, str) else listed(held)


def read(body: Json, path: str) -> Ask:
    """The request in our words; what `previous_response_id` stands for was put in front of the input already."""
    tools: list[Json] = body.get("tools") or []
    instructions = body.get("instructions")
    turns = [Turn(role="system", text=str(instructions))] if instructions else []
    return Ask(
        api="responses",
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        turns=joined([*turns, *(turn for item in items_of(body) if (turn := _turn(item)) is not None)]),
        tools=tuple(
            "computer" if t.get("type") in COMPUTER_TOOLS else str(t.get("name", t.get("type"))) for t in tools
        ),
        body=body,
    )


def _turn(item: Json) -> Turn | None:
    kind = str(item.get("type") or "message")
    call_id = str(item.get("call_id", ""))
    match kind:
        case "message":
            role = str(item.get("role"))
            text = plain(item.get("content"))
            if role == "assistant":
                return Turn(role="assistant", text=text)
            return Turn(role="system" if role in ("system", "developer") else "user", text=text)
        case "function_call" | "custom_tool_call":
            arguments = arguments_of(item.get("arguments", item.get("input")))
            return Turn(role="assistant", calls=(ToolCall(id=call_id, name=str(item["name"]), arguments=arguments),))
        case "computer_call":
            action: Json = item.get("action") or {}
            return Turn(role="assistant", calls=(ToolCall(id=call_id, name="computer", arguments=action),))
        case "reasoning":
            return Turn(role="assistant")
        case _ if kind.endswith("_output"):
            return Turn(role="tool", results=(ToolResult(id=call_id, text=plain(item.get("output"))),))
        case _:
            return None


def refusal(ask: Ask) -> str:
    """What the endpoint has against this request, or ""."""
    if not ask.model:
        return "Missing required parameter: 'model'."
    items = items_of(ask.body)
    if not items:
        return "Missing required parameter: 'input'."
    seen = [str(item["id"]) for item in items if item.get("id") and item.get("type") != "item_reference"]
    for held in seen:
        if seen.count(held) > 1:
            return f"Duplicate item found with id {held}. Remove duplicate items from your input and try again."
    calls = {str(i.get("call_id")): str(i["type"]) for i in items if str(i.get("type")).endswith("_call")}
    outputs = {str(i.get("call_id")): str(i["type"]) for i in items if str(i.get("type")).endswith("_output")}
    for call_id, kind in calls.items():
        if call_id != "None" and call_id not in outputs:
            return f"No tool output found for {kind.replace('_', ' ')} {call_id}."
    for call_id, kind in outputs.items():
        if call_id not in calls:
            return f"No tool call found for {kind.replace('_', ' ')} with call_id {call_id}."
    if items[-1].get("type") == "reasoning":
        return f"Item '{items[-1].get('id')}' of type 'reasoning' was provided without its required following item."
    return ""


def output_of(made: Generation) -> list[Json]:
    """The items of an answer, as they may be sent back."""
    output: list[Json] = []
    if made.thinking:
        summary = [{"type": "summary_text", "text": made.thinking}]
        output.append({"type": "reasoning", "id": f"rs_{made.nonce}", "summary": summary})
        if "reasoning.encrypted_content" in (made.ask.body.get("include") or []):
            output[-1]["encrypted_content"] = f"sealed-{made.nonce}"
    if made.text or not made.calls:
        part: Json = {"type": "output_text", "text": made.text, "annotations": [], "logprobs": []}
        output.append(
            {
                "type": "message",
                "id": f"msg_{made.nonce}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for index, call in enumerate(made.calls):
        head: Json = {"id": f"fc_{made.nonce}{index:02d}", "call_id": call.id, "status": "completed"}
        if call.name == "computer":
            output.append({"type": "computer_call", **head, "action": call.arguments, "pending_safety_checks": []})
        else:
            output.append({"type": "function_call", **head, "name": call.name, "arguments": json.dumps(call.arguments)})
    return output


def whole(made: Generation) -> Json:
    """The answer as one object."""
    body = made.ask.body
    return {
        "id": f"resp_{made.nonce}",
        "object": "response",
        "created_at": made.created,
        "status": "incomplete" if made.truncated else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if made.truncated else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": made.ask.model,
        "output": output_of(made),
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": {
            "input_tokens": made.usage.input,
            "input_tokens_details": {"cached_tokens": made.usage.cached, "cache_write_tokens": 0},
            "output_tokens": made.usage.output,
            "output_tokens_details": {"reasoning_tokens": made.usage.reasoning},
            "total_tokens": made.usage.input + made.usage.output,
        },
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def events(made: Generation) -> Iterator[Event]:
    """The answer as it streams, every event numbered."""
    answer = whole(made)
    begun: Json = {**answer, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    for number, (kind, held) in enumerate(_unnumbered(made, answer, begun)):
        yield kind, json.dumps({"type": kind, "sequence_number": number, **held})


def _unnumbered(made: Generation, answer: Json, begun: Json) -> Iterator[tuple[str, Json]]:
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    output: list[Json] = answer["output"]
    for index, item in enumerate(output):
        yield from _item(made, index, item)
    ending = "response.incomplete" if made.truncated else "response.completed"
    yield ending, {"response": answer}


def _item(made: Generation, index: int, item: Json) -> Iterator[tuple[str, Json]]:
    at: Json = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "message":
            part: Json = {**at, "content_index": 0}
            yield "response.output_item.added", {"output_index": index, "item": _open(item, content=[])}
            yield "response.content_part.added", {**part, "part": {**item["content"][0], "text": ""}}
            for word in words(made.text):
                yield "response.output_text.delta", {**part, "delta": word, "logprobs": []}
            yield "response.output_text.done", {**part, "text": made.text, "logprobs": []}
            yield "response.content_part.done", {**part, "part": item["content"][0]}
        case "function_call":
            yield "response.output_item.added", {"output_index": index, "item": _open(item, arguments="")}
            yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
            done = {**at, "name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", done
        case "reasoning":
            part = {**at, "summary_index": 0}
            yield "response.output_item.added", {"output_index": index, "item": {**item, "summary": []}}
            empty = {"type": "summary_text", "text": ""}
            yield "response.reasoning_summary_part.added", {**part, "part": empty}
            yield "response.reasoning_summary_text.delta", {**part, "delta": made.thinking}
            yield "response.reasoning_summary_text.done", {**part, "text": made.thinking}
            yield "response.reasoning_summary_part.done", {**part, "part": item["summary"][0]}
        case _:
            yield "response.output_item.added", {"output_index": index, "item": _open(item)}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _open(item: Json, **empty: Any) -> Json:
    return {**item, "status": "in_progress", **empty}


def _error_event(status: int, message: str) -> Event:
    code = CODES.get(status, "server_error")
    return "error", json.dumps({"type": "error", "sequence_number": 2, "code": code, "message": message, "param": None})


RESPONSES = Dialect(
    api="responses",
    call_id=lambda nonce, index: f"call_{nonce[:22]}{index:02d}",
    read=read,
    refusal=refusal,
    whole=whole,
    events=events,
    error=error,
    error_event=_error_event,
)
