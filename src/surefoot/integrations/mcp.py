"""MCP tools under the gate: a client or session whose `call_tool` is recorded and never blindly repeated.

    async with Client("https://bank.example/mcp") as client:
        bank = durable(client, server="bank", rules={"pay": keyed(timedelta(hours=24)), "balance": READS})
        result = await bank.call_tool("pay", {"amount": 5})

It wraps `Client` and `ClientSession` of mcp 2.x and `ClientSession` of 1.x, above the wire: request ids and session ids
are new in each process. `surefoot.integrations.mcp_rules` decides what may be repeated.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any

from ..core.contract import Contract, Promises
from ..core.errors import NotSent, Refused, UsageError
from ..core.ids import check_id, check_name, fill_identity
from ..effects.attempt import Attempt
from ..effects.effect import DEFAULT_TIMEOUT_SECONDS
from ..runtime.scope import current
from .gated import gate_async
from .mcp_once import call_once
from .mcp_people import Answer, People
from .mcp_rules import (
    META_EFFECT,
    META_KEY,
    META_RUN,
    READS,
    Result,
    Rule,
    as_result,
    dump,
    read_error,
    read_result,
    rule_for,
    rule_of,
    shown,
)
from .toolcall import attempt

__all__ = ["META_EFFECT", "META_KEY", "META_RUN", "READS", "DurableClient", "Rule", "durable"]

INPUT_ROUNDS_MAX = 10
ANSWERS = "(answers)"  # where a round's recorded arguments hold what people said


def durable(
    client: Any,
    *,
    server: str,
    trusted: bool = False,
    rules: Mapping[str, Rule | Contract | Promises] | None = None,
    answer: Answer | None = None,
    by: str = "an operator",
    within: timedelta | float = timedelta(days=3),
    timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS,
) -> DurableClient:
    """The client or session with its `call_tool` under the gate; everything else is passed on.

    `server` names it in the journal, and is kept over releases. `rules` are ours, by tool. `trusted` believes the
    server's annotations (readOnlyHint, idempotentHint). `answer` answers what a tool asks a person (elicitation);
    without it people do, in Surefoot's inbox: `by` says who, for people, and `within` is how long they have. `timeout`
    bounds one try of a tool whose rule names none. Raises UsageError for rules that are none.
    """
    check_name(server, "server=")
    known = {name: rule_of(wanted) for name, wanted in (rules or {}).items()}
    people = People(server, answer, by, within)
    return DurableClient(client, server, known, trusted=trusted, people=people, timeout=timeout)


class DurableClient:
    """A client whose tool calls are recorded; made by `durable`."""

    def __init__(
        self,
        client: Any,
        server: str,
        rules: Mapping[str, Rule],
        *,
        trusted: bool,
        people: People,
        timeout: timedelta | float,
    ) -> None:
        """Nothing is asked of the server yet."""
        self._client, self._server, self._rules, self._trusted = client, server, rules, trusted
        self._people, self._timeout = people, timeout
        self._listed: dict[str, Any] | None = None
        self._types = import_module("mcp.types")
        # a 2.x Client drives rounds of questions by itself, and forgets them with the process
        self._session: Any = client if hasattr(client, "send_request") else getattr(client, "session", client)
        call_once(self._session, server)
        call = inspect.signature(self._session.call_tool).parameters
        self._asks_people = "allow_input_required" in call
        self._takes_seconds = "timedelta" not in str(call["read_timeout_seconds"].annotation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def rule(self, tool: str) -> Rule:
        """What may be done about calls of this tool; the server's listing is read once, if it is needed."""
        if tool not in self._rules and self._listed is None:
            token = current.set(None)  # tasks that the session starts meanwhile are its own, not the run's
            try:
                self._listed = await self._list()
            finally:
                current.reset(token)
        return rule_for((self._listed or {}).get(tool), tool, self._rules, trusted=self._trusted)

    async def _list(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(**({} if cursor is None else self._page(cursor)))
            found.update({tool.name: tool for tool in page.tools})
            cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
            if cursor is None:
                return found

    def _page(self, cursor: str) -> dict[str, Any]:
        if "cursor" in inspect.signature(self._client.list_tools).parameters:
            return {"cursor": cursor}
        return {"params": self._types.PaginatedRequestParams(cursor=cursor)}

    # --- calling ------------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: float | timedelta | None = None,
        progress_callback: Any = None,
        *,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """The tool's result, recorded once under its rule; suspends the run while it is in doubt and parked.

        The result is durable when it returns. A crash inside leaves what the rule says: a tool that reads runs again, a
        keyed one is sent again under the same key, an unknown one is left to a person. What was refused before it ran
        comes as an error result, live and on replay. `read_timeout_seconds` is the rule's timeout instead.
        """
        rule = await self.rule(name)
        options = {"progress_callback": progress_callback, "meta": meta or {}}
        result = await self._round(rule, name, arguments or {}, {}, "", options)
        for number in range(1, INPUT_ROUNDS_MAX + 1):
            if result.get("resultType") != "input_required":
                return self._types.CallToolResult.model_validate(result)
            said = await self._people.answers(name, result)
            result = await self._round(rule, name, arguments or {}, said, f":{number}", options)
        raise UsageError(f"tool {name!r} of {self._server!r} asked for input {INPUT_ROUNDS_MAX} times and still asks")

    async def _round(
        self, rule: Rule, tool: str, arguments: Result, said: Result, number: str, options: dict[str, Any]
    ) -> Result:
        """One request and its answer, recorded. A round of input is a call of its own, with a key of its own."""

        async def call() -> Result:
            if rule.contract is None:
                return await self._send(tool, arguments, None, {**options, **said})
            now = attempt()
            marks = {META_KEY: now.key, META_RUN: now.record.run if now.record else ""}
            sent = {**options, **said, "meta": {**options["meta"], **marks}}
            # listings, notices and answers go to the same path; `call_once` counts the calls
            with now.more_requests():
                return read_result(await self._send(tool, arguments, now.timeout, sent), rule)

        async def ask(now: Attempt) -> Result | None:
            wanted = rule.ask_arguments(arguments, now.key) if rule.ask_arguments else arguments
            answer = await self._send(rule.ask, wanted, now.timeout, {"meta": {META_KEY: now.key}})
            return None if (found := (rule.found or shown)(answer)) is None else as_result(found)

        how: dict[str, Any] = {} if rule.contract is None else {"timeout": rule.timeout or self._timeout}
        if rule.identity is not None:
            how["identity"] = check_id(fill_identity(rule.identity, arguments) + number, "identity")
        if rule.ask:
            how["lookup"] = ask
        recorded = {**arguments, ANSWERS: said} if said else arguments
        try:
            name = f"mcp:{self._server}:{tool}{number}"
            return as_result(await gate_async(name, rule.contract, recorded, call, **how))
        except Refused as refused:
            return {"content": [{"type": "text", "text": refused.reason}], "isError": True}

    async def _send(self, tool: str, arguments: Result, timeout: float | None, more: dict[str, Any]) -> Result:
        """One request to the server, with nothing recorded; raises what `read_error` makes of a protocol error."""
        options = dict(more)
        if self._asks_people:
            options["allow_input_required"] = True
        if timeout is not None:
            options["read_timeout_seconds"] = timeout if self._takes_seconds else timedelta(seconds=timeout)
        try:
            return dump(await self._session.call_tool(tool, arguments, **options))
        except Exception as error:
            told = read_error(error)
            if told is error:
                raise
            if isinstance(told, NotSent):
                await self._client.list_tools()  # this session's listing is stale, which is why it was turned away
            raise told from error
