"""One protected tool of an MCP server: the inbox's middleware once more, with arguments and results for bodies."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import logging
import typing
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from importlib import import_module
from typing import Any, cast

from ..core.errors import StoreError, UsageError
from ..core.values import encode_canonical
from ..inbox.answers import Answer, store_answer, stored_answer
from ..inbox.call import IdempotentCall
from ..inbox.claims import Ask, Inbox
from ..inbox.once import watcher
from ..inbox.problems import TYPE_PREFIX, Problem
from ..inbox.rules import Busy, Claim, Doubt, Ending, Move, Replay, Reused, Run, check_key
from .mcp_rules import META_KEY

CONTEXT = "surefoot_context"
running_call: ContextVar[IdempotentCall | None] = ContextVar("surefoot_mcp_call", default=None)
_tasks: set[asyncio.Future[Any]] = set()
_log = logging.getLogger("surefoot.inbox")


class Protected:
    """One protected tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        inbox: Inbox,
        transactional: bool,
        required: bool,
        scope: Callable[[Any], str],
        expires: timedelta | None,
        seconds: float | None,
    ) -> None:
        self._function, self._inbox, self._scope = function, inbox, scope
        self._transactional, self._required, self._expires, self._seconds = transactional, required, expires, seconds
        self._hints = typing.get_type_hints(function, include_extras=True)
        adapter = import_module("pydantic").TypeAdapter
        self._codec = adapter(self._hints.get("return", Any))
        self._context_class, self._error = _server_classes()
        self._context = next((name for name, hint in self._hints.items() if _is(hint, self._context_class)), "")

    def as_tool(self) -> Callable[..., Any]:
        """The function that is registered: it takes the server's context, from which the key is read."""

        @functools.wraps(self._function)
        async def protected(**arguments: Any) -> Any:
            context = arguments[self._context] if self._context else arguments.pop(CONTEXT)
            return await self._run(context, arguments)

        signature = inspect.signature(self._function)
        given = [p.replace(annotation=self._hints.get(p.name, p.annotation)) for p in signature.parameters.values()]
        hints = dict(self._hints)
        if not self._context:
            kind = inspect.Parameter.KEYWORD_ONLY
            given.append(inspect.Parameter(CONTEXT, kind, annotation=self._context_class))
            hints[CONTEXT] = self._context_class
        returns = hints.get("return", signature.return_annotation)
        target = cast("Any", protected)
        target.__signature__ = signature.replace(parameters=given, return_annotation=returns)
        target.__annotations__ = hints
        return protected

    async def _run(self, context: Any, arguments: dict[str, Any]) -> Any:
        key = _meta_of(context).get(META_KEY)
        if key is None:
            if self._required:
                raise self._error(f"{TYPE_PREFIX}{Problem.KEY_MISSING}: send a key under _meta[{META_KEY!r}]")
            return await self._body(arguments)
        shown = {name: value for name, value in arguments.items() if name != self._context}
        said = _said_of(context)
        content = encode_canonical({"tool": self._function.__name__, "arguments": shown, **said}, "the arguments")
        digest = hashlib.blake2b(content, digest_size=32, person=b"surefoot-mcp").hexdigest()
        ask = Ask(
            scope=f"mcp:{self._function.__name__}:{self._scope(context)}",
            # the answer to a question of ours is a call of its own, also under the same key
            key=check_key(f"{key}:{digest[:16]}" if said else key),
            digest=digest,
            transactional=self._transactional,
            expires_seconds=self._seconds,
        )
        try:
            verdict = await self._inbox.claim(ask)
        except StoreError as error:
            raise self._problem(Problem.STORE_UNAVAILABLE, "nothing was done; call again later") from error
        match verdict:
            case Run(claim):
                task = asyncio.ensure_future(self._first(claim, arguments))
                _tasks.add(task)
                task.add_done_callback(_tasks.discard)
                return await asyncio.shield(task)  # also if the client has gone: the repeat gets the result
            case Replay(claim):
                return self._stored(cast("str", claim.result))
            case Reused():
                raise self._problem(Problem.KEY_REUSED, "its key was used for other arguments; nothing was done")
            case Busy():
                raise self._problem(Problem.IN_PROGRESS, "a call under this key is running; call again later")
            case Doubt():
                raise self._problem(Problem.OUTCOME_UNKNOWN, "the first call ended without a result; a person looks")

    def _problem(self, kind: Problem, why: str) -> Exception:
        return self._error(f"{TYPE_PREFIX}{kind}: {why}")

    # --- the run ------------------------------------------------------------------------------------------------------

    async def _body(self, arguments: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        return await asyncio.to_thread(self._function, **arguments)

    async def _first(self, claim: Claim, arguments: dict[str, Any]) -> Any:
        """Run the tool under its claim, in a task of its own; whatever it does, the claim ends too."""
        call = IdempotentCall(claim, self._expires)
        running_call.set(call)
        watcher.set(call)
        try:
            value = await self._body(arguments)
            answer = Answer(status=200, body=self._codec.dump_json(value, by_alias=True))
            asks = type(value).__name__ == "InputRequiredResult"
        except self._error as error:
            answer, asks = Answer(status=422, body=str(error).encode()), True
        except BaseException:
            undone = self._transactional or call.certainly_nothing_happened
            await self._end(Ending(claim, Move.RELEASE if undone else Move.LOSE, None, self._seconds))
            raise
        unproved = self._transactional and not call.used_once
        if unproved and claim.attempts > 1:
            await self._end(Ending(claim, Move.RELEASE, None, self._seconds))
            raise self._problem(Problem.OUTCOME_UNKNOWN, "the tool answered a repeat without asking once() first")
        ending = Ending(claim, Move.ANSWER, store_answer(answer), self._seconds, from_once=call.used_once)
        stands = await self._end(ending)
        if unproved and not asks:
            raise UsageError(
                f"tool {self._function.__name__!r} is declared transactional and answered without once(); make its "
                "change in `with current_call().once(connection)`, or a crash would make it twice"
            )
        return self._stored(stands if stands is not None else cast("str", ending.result))

    async def _end(self, ending: Ending) -> str | None:
        try:
            return await self._inbox.end(ending)
        except StoreError as error:
            _log.exception("the end of key %r could not be recorded yet; the inbox goes on trying", ending.claim.key)
            raise self._problem(Problem.OUTCOME_UNKNOWN, "it is not recorded yet; call again") from error

    def _stored(self, result: str) -> Any:
        """What the first call and every repeat return: the result as it was stored."""
        answer = stored_answer(result)
        if answer.status >= 400:
            raise self._error(answer.body.decode())
        return self._codec.validate_json(answer.body)


# --- what a server of either version is made of -------------------------------------------------------------------


def _server_classes() -> tuple[type[Any], type[Exception]]:
    """The class of contexts and the error that a tool raises on purpose."""
    for name in ("mcpserver", "fastmcp"):
        try:
            module = import_module(f"mcp.server.{name}")
            return module.Context, import_module(f"mcp.server.{name}.exceptions").ToolError
        except ModuleNotFoundError:
            continue
    raise UsageError("surefoot.integrations.mcp_server needs the package mcp, 1.10 or newer: pip install mcp")


def _is(hint: Any, wanted: type[Any]) -> bool:
    return any(inspect.isclass(part) and issubclass(part, wanted) for part in (hint, *typing.get_args(hint)))


def _meta_of(context: Any) -> dict[str, Any]:
    """The request's `_meta`: a dict in 2.x, a model in 1.x."""
    meta = context.request_context.meta
    return dict(meta.model_dump() if hasattr(meta, "model_dump") else meta or {})


def _said_of(context: Any) -> dict[str, Any]:
    """What a person said to an earlier question of the tool, and the tool's own state; empty in the first round."""
    said = {name: getattr(context, name, None) for name in ("input_responses", "request_state")}
    return {name: value for name, value in said.items() if value is not None}


def client_of(context: Any) -> str:
    """The authenticated client, or nobody."""
    token = import_module("mcp.server.auth.middleware.auth_context").get_access_token()
    return "" if token is None else f"{token.client_id}:{getattr(token, 'subject', None) or ''}"
