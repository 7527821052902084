"""Gemini: `POST …/models/MODEL:generateContent` and `:streamGenerateContent`. It gives its tool calls no ids."""

from __future__ import annotations

import json
from collections.abc import Iterator

from .words import Ask, Dialect, Event, Generation, Json, ToolCall, ToolResult, Turn, joined, listed, words

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def read(body: Json, path: str) -> Ask:
    """The request in our words; the model and whether it streams stand in the path."""
    model, _, verb = path.rpartition("/models/")[2].partition(":")
    tools: list[Json] = body.get("tools") or []
    contents: list[Json] = body.get("contents") or []
    system: Json = body.get("systemInstruction") or body.get("system_instruction") or {}
    turns = [Turn(role="system", text=_text(system))] if system else []
    for content in contents:
        turns += _turns(content)
    declared = [d for t in tools for d in listed(t.get("functionDeclarations") or t.get("function_declarations"))]
    return Ask(
        api="gemini",
        model=model,
        stream=verb.startswith("stream"),
        turns=joined(turns),
        tools=tuple(str(declaration["name"]) for declaration in declared),
        body=body,
    )


def _parts(content: Json) -> list[Json]:
    return content.get("parts") or []


def _text(content: Json) -> str:
    return "\n".join(str(part["text"]) for part in _parts(content) if part.get("text") and not part.get("thought"))


def _turns(content: Json) -> list[Turn]:
    if content.get("role") == "model":
        asked = [part["functionCall"] for part in _parts(content) if "functionCall" in part]
        calls = tuple(
            ToolCall(id=str(c.get("id") or ""), name=str(c["name"]), arguments=c.get("args") or {}) for c in asked
        )
        return [Turn(role="assistant", text=_text(content), calls=calls)]
    told = [part["functionResponse"] for part in _parts(content) if "functionResponse" in part]
    results = tuple(
        ToolResult(id=str(r.get("id") or ""), name=str(r["name"]), text=json.dumps(r.get("response"))) for r in told
    )
    text = _text(content)
    turns = [Turn(role="tool", results=results)] if results else []
    return [*turns, Turn(role="user", text=text)] if text or not results else turns


def refusal(ask: Ask) -> str:
    """What the endpoint has against this request, or ""."""
    contents: list[Json] = ask.body.get("contents") or []
    if not contents:
        return "* GenerateContentRequest.contents: contents is not specified"
    calls = 0
    for content in contents:
        responses = sum("functionResponse" in part for part in _parts(content))
        if responses != calls and (calls or responses):
            return _uneven()
        calls = sum("functionCall" in part for part in _parts(content))
    return _uneven() if calls else ""


def _uneven() -> str:
    return (
        "Please ensure that the number of function response parts is equal to the number of function call parts of the "
        "function call turn."
    )


def whole(made: Generation) -> Json:
    """The answer as one object."""
    parts: list[Json] = [{"text": made.thinking, "thought": True}] if made.thinking else []
    if made.text or not made.calls:
        parts.append({"text": made.text})
    return _answer(made, [*parts, *_calls(made)], last=True)


def events(made: Generation) -> Iterator[Event]:
    """The answer as it streams: whole objects, the last with the reason why it ended."""
    if made.thinking:
        yield "", json.dumps(_answer(made, [{"text": made.thinking, "thought": True}], last=False))
    for word in words(made.text):
        yield "", json.dumps(_answer(made, [{"text": word}], last=False))
    yield "", json.dumps(_answer(made, _calls(made) or [{"text": ""}], last=True))


def _calls(made: Generation) -> list[Json]:
    return [{"functionCall": {"name": call.name, "args": call.arguments}} for call in made.calls]


def _answer(made: Generation, parts: list[Json], *, last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "MAX_TOKENS" if made.truncated else "STOP"
    said = made.usage.output - made.usage.reasoning
    counts: Json = {"promptTokenCount": made.usage.input, "candidatesTokenCount": said}
    if made.usage.cached:
        counts["cachedContentTokenCount"] = made.usage.cached
    if made.usage.reasoning:
        counts["thoughtsTokenCount"] = made.usage.reasoning
    counts["totalTokenCount"] = made.usage.input + made.usage.output
    head: Json = {"modelVersion": made.ask.model, "responseId": made.nonce[:22]}
    return {"candidates": [candidate], "usageMetadata": counts, **head}


def error(status: int, message: str) -> Json:
    """The body of an answer that is no success."""
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "INTERNAL")}}


GEMINI = Dialect(
    api="gemini",
    call_id=lambda nonce, index: "",
    read=read,
    refusal=refusal,
    whole=whole,
    events=events,
    error=error,
    error_event=lambda status, message: ("", json.dumps(error(status, message))),
)
