"""A scripted model: `surefoot.testing.models` without its socket."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any, cast

from ...testing.models.planners import PLANNERS, replies
from ...testing.models.service import Service as ModelService
from ...testing.models.service import Stream, Whole, dialect_of
from ...testing.models.words import Ask, Dialect, Event, Planner, Say, ToolCall, Usage
from ...testing.twins.messages import Call, Page
from ..config import ModelTurn, Service
from ..errors import CrashtestError
from .base import Answered

KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


def planner_of(name: str, service: Service, here: Path) -> Planner:
    """The planner that a service asks for: its turns, one that ships, or `file.py:function`."""
    if service.planner is None:
        return replies(*(_say(turn) for turn in service.turns))
    if service.planner in PLANNERS:
        return PLANNERS[service.planner]
    file, _, function = service.planner.partition(":")
    path = here / file
    if not function or not path.exists():
        raise CrashtestError(
            f"services.{name}: the planner {service.planner!r} is none of {', '.join(PLANNERS)}, and no "
            "FILE.py:FUNCTION "
            f"below {here}"
        )
    spec = importlib.util.spec_from_file_location(f"surefoot_planner_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Planner", getattr(module, function))


def _say(turn: ModelTurn) -> Say:
    asked: list[dict[str, Any]] = [*turn.tools]
    if turn.tool is not None:
        asked.insert(0, {"tool": turn.tool, "arguments": turn.arguments})
    calls = tuple(ToolCall(name=str(each["tool"]), arguments=each.get("arguments") or {}) for each in asked)
    usage = None if turn.tokens is None else Usage(input=turn.tokens, output=0)
    return Say(text=turn.text, calls=calls, usage=usage)


class Scripted:
    """One service of kind `model`."""

    def __init__(self, planner: Planner, *, record: Path, strict: bool) -> None:
        """What is paid is written to `record` before a reply can leave."""
        self._service = ModelService(planner, record=record, strict=strict)

    def answer(self, call: Call, target: str) -> Answered:
        """See Backend."""
        dialect = dialect_of(call.path)
        if dialect is None or call.method != "POST":
            text = f"a scripted model has no {call.method} {call.path}"
            return Answered(
                page=_json(404, {"error": {"message": text}}), unmatched="" if call.method == "GET" else text
            )
        try:
            body: dict[str, Any] = json.loads(call.body or b"{}")
            body.keys()
        except (ValueError, AttributeError) as error:
            return Answered(page=_json(400, dialect.error(400, f"the body is no JSON object: {error}")))
        ask = self._service.read(dialect, self._service.arrive(), body, call.path)
        meets = self._service.meets(ask)
        authorised = "key" in call.query or any(call.headers.get(name) for name in KEY_HEADERS)
        failure = self._service.fails(dialect, ask, meets, authorised=authorised)
        if failure is not None:
            page = _page(failure, dialect, call)
            return Answered(page=page, refused=page.body.decode("utf-8", "replace")[:300])
        return Answered(page=_page(self._service.answer(dialect, ask, meets), dialect, call), tokens=self._cost(ask))

    def _cost(self, ask: Ask) -> int:
        for line in reversed(self._service.paid()):
            if line.number == ask.number:
                tokens: dict[str, int] = json.loads(line.body)["tokens"]
                return tokens["input"] + tokens["output"]
        return 0

    def close(self) -> None:
        """The record stays."""
        self._service.ledger.close()


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> Page:
    typed = {"Content-Type": "application/json", **(headers or {})}
    return Page(status=status, body=json.dumps(body).encode(), headers=typed)


def _page(answer: Whole | Stream, dialect: Dialect, call: Call) -> Page:
    if isinstance(answer, Whole):
        return _json(answer.status, answer.body, answer.headers)
    events = list(answer.events)
    if dialect.api == "gemini" and call.query.get("alt") != "sse":
        body = "[" + ",\r\n".join(payload for _, payload in events) + "]"
        return Page(status=200, body=body.encode(), headers={"Content-Type": "application/json", **answer.headers})
    kind = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    return Page(status=200, body="".join(map(_event, events)).encode(), headers={**kind, **answer.headers})


def _event(event: Event) -> str:
    name, payload = event
    return (f"event: {name}\n" if name else "") + f"data: {payload}\n\n"
