"""LangChain and LangGraph: a middleware for agents, and tools that are gated wherever they run.

    agent = create_agent(model, tools, middleware=[SurefootMiddleware(tools={"charge": keyed(...)})])

Model calls are recorded below, at HTTP (`surefoot.http.install()`). A tool is gated around its own code, and inside
LangChain's handling of errors, which would turn doubt into a message to the model. For a `ToolNode` of your own,
`gated(tool, keyed(...))` is the same tool, gated.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false, reportMissingTypeStubs=false

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools import tool as tool_of

from ..core.errors import UsageError, ValueRefused
from ..core.values import encode_canonical
from ..runtime import calls
from .gated import gate, gate_async
from .models import guarded, guarded_async
from .policy import Policy, Reads, Says, policy_of
from .toolcall import tool_call_id

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError:  # LangGraph alone, without langchain
    AgentMiddleware = cast("Any", object)

_MESSAGE, _PAIR = "surefoot:message", "surefoot:pair"
_asked: ContextVar[dict[str, Any] | None] = ContextVar("surefoot_langchain_arguments", default=None)


def gated(tool: BaseTool | Callable[..., Any], said: Says | None = None) -> BaseTool:
    """A copy of a LangChain tool whose code runs once for each call of the model; a function is made a tool first.

    `said` is what a repeat does, as `policy` has it. A tool that is made of a `surefoot.tool` function gates itself.
    What it returns is recorded: JSON, a message, or a (content, artifact) pair.
    """
    return _gated(tool if isinstance(tool, BaseTool) else cast("BaseTool", tool_of(tool)), said)


def _gated(tool: BaseTool, said: Says | None) -> BaseTool:
    if getattr(tool, "_surefoot", False):
        return tool
    policy = policy_of(said, tool.name)
    wrapped = copy.copy(tool)
    original = type(tool)

    def enter(input: Any) -> ExitStack:
        """What the tool's code needs to know of this call."""
        stack = ExitStack()
        is_call = isinstance(input, dict) and input.get("type") == "tool_call"
        call = stack.enter_context(tool_call_id(input.get("id") if is_call else None))
        arguments = input["args"] if is_call else input
        if policy is None and call is not None:
            stack.enter_context(calls.scope(f"{tool.name}:{call.id}"))
            stack.enter_context(tool_call_id(None))
        token = _asked.set(_visible(tool, arguments))
        stack.callback(_asked.reset, token)
        return stack

    def invoke(input: Any, config: Any = None, **kwargs: Any) -> Any:
        with enter(input):
            return original.invoke(wrapped, input, config, **kwargs)

    async def ainvoke(input: Any, config: Any = None, **kwargs: Any) -> Any:
        with enter(input):
            return await original.ainvoke(wrapped, input, config, **kwargs)

    own = any(hasattr(getattr(tool, name, None), "surefoot") for name in ("func", "coroutine"))
    if not own and policy is not None:
        _gate_code(wrapped, tool, policy)
    for name, value in (("invoke", invoke), ("ainvoke", ainvoke), ("_surefoot", True)):
        object.__setattr__(wrapped, name, value)
    return wrapped


def _visible(tool: BaseTool, arguments: Any) -> dict[str, Any]:
    """The arguments that the model gave; what LangChain injects beside them belongs to this process."""
    if not isinstance(arguments, dict):
        return {"input": arguments}
    schema: Any = tool.tool_call_schema
    known = schema.get("properties", {}) if isinstance(schema, dict) else getattr(schema, "model_fields", arguments)
    return {name: value for name, value in cast("dict[str, Any]", arguments).items() if name in known}


def _gate_code(wrapped: BaseTool, tool: BaseTool, policy: Policy | Reads) -> None:
    """Put the gate around the tool's own code, below everything that LangChain does with its errors."""
    run, arun = tool._run, tool._arun
    raises = (ToolException,) if policy.contract is None else ()

    @functools.wraps(run)
    def gated_run(*args: Any, **kwargs: Any) -> Any:
        asked = _asked.get() or {}
        how = policy.options(asked, lambda found: _pack(tool, found))
        value = gate(tool.name, policy.contract, asked, lambda: _pack(tool, run(*args, **kwargs)), raises=raises, **how)
        return _unpack(value)

    @functools.wraps(arun)
    async def gated_arun(*args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            return _pack(tool, await arun(*args, **kwargs))

        asked = _asked.get() or {}
        how = policy.options(asked, lambda found: _pack(tool, found))
        return _unpack(await gate_async(tool.name, policy.contract, asked, call, raises=raises, **how))

    for name, code, gate_ in (("_run", run, gated_run), ("_arun", arun, gated_arun)):
        cast("Any", gate_).__signature__ = inspect.signature(code)
        object.__setattr__(wrapped, name, gate_)


def _pack(tool: BaseTool, value: Any) -> Any:
    """What a tool returned, as it is recorded."""
    if isinstance(value, BaseMessage):
        return {_MESSAGE: message_to_dict(value)}
    if isinstance(value, tuple) and tool.response_format == "content_and_artifact":
        return {_PAIR: [_plain(part) for part in cast("tuple[Any, ...]", value)]}
    if type(value).__name__ in ("Command", "Send"):
        raise UsageError(
            f"tool {tool.name!r} returned a {type(value).__name__}, which cannot be recorded; gate what changes the "
            "world with @surefoot.tool inside it, and say False for this tool"
        )
    return _plain(value)


def _plain(value: Any) -> Any:
    try:
        encode_canonical(value, "a tool's result")
    except ValueRefused:
        return str(value)  # as LangChain shows it to the model
    return value


def _unpack(value: Any) -> Any:
    match value:
        case {"surefoot:message": message}:
            return messages_from_dict([message])[0]
        case {"surefoot:pair": [content, artifact]}:
            return content, artifact
        case _:
            return value


class SurefootMiddleware(AgentMiddleware):
    """Gates every tool of an agent, and stops its model calls when one is in doubt; put it first in the list.

    `tools` says by name what a repeat of a tool does, as `gated` has it; `default` does for the others.
    """

    def __init__(self, *, tools: Mapping[str, Says] | None = None, default: Says | None = None) -> None:
        """See the class."""
        super().__init__()
        self._said, self._default = dict(tools or {}), default

    def _request(self, request: Any) -> Any:
        tool = request.tool
        if tool is None:
            return request
        return replace(request, tool=gated(tool, self._said.get(tool.name, self._default)))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """The tool, gated."""
        return handler(self._request(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The tool, gated."""
        return await handler(self._request(request))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Not when the run has stopped, and not unrecorded."""
        return guarded("a model call of LangChain", lambda: handler(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Not when the run has stopped, and not unrecorded."""
        return await guarded_async("a model call of LangChain", lambda: handler(request))
