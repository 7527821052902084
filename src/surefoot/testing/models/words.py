"""What a model is asked and what it says, without the words of any one endpoint.

Each dialect reads its requests into an `Ask` and writes a `Say` in its own shape, so a planner is written once for
all of them. A planner decides from the request alone, as a model does: a scripted one that counts its calls could not
be resumed, and would hide exactly what a crash does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, cast

Json = dict[str, Any]
Role = Literal["system", "user", "assistant", "tool"]
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool that the model asks for. `id` is empty until the server has drawn one; Gemini never has one."""

    name: str
    arguments: Json = field(default_factory=dict[str, Any])
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What a tool answered, as text; `name` is empty where the endpoint does not repeat it."""

    id: str
    text: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of the conversation; neighbouring items of one side are one turn."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request to a model. `number` counts requests from 1 on arrival; `body` is the request as it came."""

    api: str
    model: str
    stream: bool
    turns: tuple[Turn, ...]
    tools: tuple[str, ...]
    body: Json
    number: int = 0

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Every tool result in the conversation, in order."""
        return tuple(result for turn in self.turns for result in turn.results)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every tool call that earlier answers asked for, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def answers(self) -> int:
        """How many turns the model has had."""
        return sum(turn.role == "assistant" for turn in self.turns)

    @property
    def text(self) -> str:
        """All that was written, tool results included."""
        return "\n".join(part for turn in self.turns for part in (turn.text, *(r.text for r in turn.results)) if part)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens as they are billed: `cached` is part of `input`, `reasoning` is part of `output`."""

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, kw_only=True)
class Say:
    """What the model answers: text, tool calls (more than one are parallel), or both; with `usage`, at that price."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    usage: Usage | None = None
    truncated: bool = False


Planner = Callable[[Ask], Say]
"""A plain function of the request; asked the same, it may answer the same: the server draws fresh ids each time."""

Event = tuple[str, str]
"""A server-sent event: its name, or "", and its payload."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One paid answer. `nonce` is drawn for each, so that paying twice shows in every id."""

    ask: Ask
    text: str
    thinking: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    nonce: str
    created: int
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one endpoint speaks: what it reads, refuses, answers whole or in events, and how it fails."""

    api: str
    call_id: Callable[[str, int], str]
    read: Callable[[Json, str], Ask]
    refusal: Callable[[Ask], str]
    whole: Callable[[Generation], Json]
    events: Callable[[Generation], Iterator[Event]]
    error: Callable[[int, str], Json]
    error_event: Callable[[int, str], Event]
    request_id_header: str = "x-request-id"


def words(text: str) -> list[str]:
    """The pieces that a streamed text arrives in; together they are the text."""
    pieces = text.split(" ")
    return [*(piece + " " for piece in pieces[:-1]), pieces[-1]] if text else []


def halves(text: str) -> tuple[str, str]:
    """A text in two pieces, as arguments arrive in the middle of a word."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def counted(ask: Ask, say: Say) -> Usage:
    """Tokens by length: the same request costs the same, a longer conversation more."""
    if say.usage is not None:
        return say.usage
    asked = len(json.dumps([[t.text, [c.arguments for c in t.calls], [r.text for r in t.results]] for t in ask.turns]))
    said = len(say.text) + sum(len(call.name) + len(json.dumps(call.arguments)) for call in say.calls)
    reasoning = len(say.thinking) // CHARACTERS_PER_TOKEN
    return Usage(
        input=1 + asked // CHARACTERS_PER_TOKEN,
        output=1 + said // CHARACTERS_PER_TOKEN + reasoning,
        reasoning=reasoning,
    )


def joined(turns: list[Turn]) -> tuple[Turn, ...]:
    """Neighbouring pieces of the model, or of its tools, become one turn."""
    merged: list[Turn] = []
    for turn in turns:
        last = merged[-1] if merged else None
        if last is not None and last.role == turn.role and turn.role in ("assistant", "tool"):
            text = "\n".join(part for part in (last.text, turn.text) if part)
            calls, results = last.calls + turn.calls, last.results + turn.results
            merged[-1] = Turn(role=turn.role, text=text, calls=calls, results=results)
        else:
            merged.append(turn)
    return tuple(merged)


def listed(held: Any) -> list[Json]:
    """What should be a list of objects, as one; anything else is an empty list."""
    return cast("list[Json]", held) if isinstance(held, list) else []


def keyed(held: Any) -> Json:
    """What should be an object, as one; anything else is empty."""
    return cast("Json", held) if isinstance(held, dict) else {}


def plain(content: Any) -> str:
    """The text of a content that is a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    parts: list[Any] = [*listed(content)] or [content]
    texts = [part if isinstance(part, str) else _text_of(keyed(part)) for part in parts]
    return "\n".join(text for text in texts if text)


def _text_of(part: Json) -> str:
    return str(part.get("text") or part.get("output") or "")


def arguments_of(text: Any) -> Json:
    """Arguments that travelled as JSON text; what is no object is kept under one name."""
    try:
        found: Any = json.loads(text or "{}")
    except (TypeError, ValueError):
        found = text
    return keyed(found) if isinstance(found, dict) else {"value": found}
