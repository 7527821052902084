"""What an MCP tool asks a person (elicitation), in Surefoot's inbox: it outlives the process that asked.

Only the kind that comes as a result of the call (`InputRequiredResult` of protocol 2026-07-28) can: its state is data.
A question that a server asks in the middle of a call goes to the client's own callback, and dies with the process.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

from ..core.errors import Denied, UsageError
from ..core.values import encode_canonical
from ..runtime.choices import wait_here
from .asking import Asks, ask_async
from .gate import Gate
from .gated import gate_async, place_of
from .mcp_rules import Result

Answer = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers one thing that a tool asks, as (its name, the request): an ElicitResult as JSON."""


class People:
    """Who answers the questions of one server's tools."""

    def __init__(self, server: str, answer: Answer | None, by: str, within: timedelta | float) -> None:
        """`answer` answers them in code; without it `by` do, in the inbox, `within` so long."""
        self._server, self._answer, self._asks = server, answer, Asks(by, within)

    async def answers(self, tool: str, asked: Result) -> Result:
        """What people say, recorded; the server's state goes back as it came, also from another process."""
        said: Result = {}
        for key, request in cast("dict[str, Result]", asked.get("inputRequests") or {}).items():
            name = f"mcp:{self._server}:{tool}:{key}"
            if self._answer is not None:
                recorded: Any = {"key": key, "request": request}
                said[key] = await gate_async(f"{name}:answer", None, recorded, partial(self._answer, key, request))
            elif request.get("method") == "elicitation/create":
                said[key] = await self._ask(name, tool, request.get("params") or {})
            else:
                raise UsageError(
                    f"tool {tool!r} of {self._server!r} asks for {request.get('method')}, which no person can answer; "
                    "give durable(..., answer=) a function that does"
                )
        return {"input_responses": said or None, "request_state": asked.get("requestState")}

    async def _ask(self, name: str, tool: str, asked: Result) -> Result:
        """Yes or no is an approval in the inbox; anything else is a message `mcp:server:tool:key` to the run."""
        schema: Result = asked.get("requestedSchema") or {}
        fields: dict[str, Result] = schema.get("properties") or {}
        shown = {"server": self._server, "tool": tool}
        shown |= {part: asked[part] for part in ("message", "url") if part in asked}

        async def person() -> Result:
            try:
                if any(field.get("type") != "boolean" for field in fields.values()):
                    return await to_thread(partial(wait_here, name, Result, within=self._asks.within))
                await ask_async(self._asks, shown)
            except TimeoutError:
                return {"action": "cancel"}
            except Denied as denied:
                return {"action": "decline" if denied.who else "cancel"}
            return {"action": "accept", **({"content": dict.fromkeys(fields, True)} if fields else {})}

        place = place_of(f"{name}:ask")
        if place is None:
            raise UsageError(f"{name} asks a person, who answers in a run; call it in a workflow, or give answer=")
        return await Gate(place, f"{name}:ask", encode_canonical({**shown, "schema": schema}, "a question")).run_async(
            person
        )
