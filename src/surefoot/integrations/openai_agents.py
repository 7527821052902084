"""OpenAI Agents SDK: agents whose tools are gated, a model provider that refuses, and approvals from the inbox.

    agent = protected(Agent(name="bank", tools=[charge, look_up]), tools={"charge": keyed(...), "look_up": "read"})
    result = await run(agent, "pay order 7")

Model calls are recorded below, at HTTP (`surefoot.http.install()`), streamed ones too. The SDK turns what a tool raises
into text for the model; the gate goes below that, so that doubt is never one of those texts.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false, reportMissingTypeStubs=false

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from agents import Agent, FunctionTool, Model, RunConfig, Runner
from agents.tool import default_tool_error_function

from ..core.errors import UsageError
from ..core.values import encode_canonical
from ..runtime import calls
from .appearance import gates_itself
from .approving import Pause, decide_async
from .asking import Asks
from .gated import gate_async
from .openai_agents_models import SurefootProvider, guarded_model
from .policy import Says, policy_of
from .toolcall import tool_call_id


def gated(tool: Any, said: Says | None = None) -> Any:
    """A copy of a function tool that runs once for each call of the model; other kinds of tools as they are.

    `said` is what a repeat does, as `policy` has it. A tool that is made of a `surefoot.tool` function gates itself; an
    agent as a tool is not gated.
    """
    if not isinstance(tool, FunctionTool) or hasattr(tool.on_invoke_tool, "surefoot_gate"):
        return tool
    policy = None if getattr(tool, "_is_agent_tool", False) else policy_of(said, tool.name)
    own = gates_itself(tool.on_invoke_tool)
    inner = tool if own or policy is None else _raising(tool)

    async def invoke(context: Any, arguments: str) -> Any:
        with tool_call_id(context.tool_call_id) as call:
            if own:
                return await tool.on_invoke_tool(context, arguments)
            if policy is None or call is None:
                with calls.scope(f"{tool.name}:{context.tool_call_id}"), tool_call_id(None):
                    return await tool.on_invoke_tool(context, arguments)
            asked = _parsed(arguments)
            how = policy.options(asked)
            try:
                act = functools.partial(_plain, inner, context, arguments)
                return await gate_async(tool.name, policy.contract, asked, act, **how)
            except Exception as error:
                return await _as_text(tool, context, error)

    cast("Any", invoke).surefoot_gate = True
    return replace(tool, on_invoke_tool=invoke)


def _raising(tool: FunctionTool) -> FunctionTool:
    """The tool without the SDK's turning of errors into text."""
    inner = replace(tool)
    if hasattr(inner, "_failure_error_function"):
        inner._failure_error_function = None  # pyright: ignore[reportPrivateUsage]
        inner._use_default_failure_error_function = False  # pyright: ignore[reportPrivateUsage]
        return inner
    raise UsageError(
        f"tool {tool.name!r}: this version of openai-agents turns a tool's errors into text before anything can see "
        "them; use openai-agents 0.13 or newer, or make the tool of a @surefoot.tool function"
    )


def _parsed(arguments: str) -> dict[str, Any]:
    parsed = json.loads(arguments or "{}")
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"input": parsed}


async def _plain(tool: FunctionTool, context: Any, arguments: str) -> Any:
    value = await tool.on_invoke_tool(context, arguments)
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        value = dump(mode="json")
    try:
        encode_canonical(value, "a tool's result")
    except UsageError:
        return str(value)  # as the SDK shows it to the model
    return value


async def _as_text(tool: FunctionTool, context: Any, error: Exception) -> Any:
    """What the model is told of an error that is no doubt, as this tool would say it."""
    chosen = getattr(tool, "_failure_error_function", None)
    if chosen is None and getattr(tool, "_use_default_failure_error_function", True):
        chosen = default_tool_error_function
    if chosen is None:
        raise error
    told = chosen(context, error)
    return await told if inspect.isawaitable(told) else told


def protected(agent: Agent[Any], *, tools: Mapping[str, Says] | None = None, default: Says | None = None) -> Agent[Any]:
    """The agent, and those that it hands off to, with gated tools and guarded models.

    `tools` says by name what a repeat of a tool does, as `gated` has it; `default` does for the others.
    """
    return _protected(agent, dict(tools or {}), default, {})


def _protected(agent: Any, said: dict[str, Says], default: Says | None, seen: dict[int, Any]) -> Any:
    if id(agent) in seen or not isinstance(agent, Agent):
        return seen.get(id(agent), agent)
    copied = seen[id(agent)] = agent.clone()
    copied.tools = [gated(tool, said.get(getattr(tool, "name", ""), default)) for tool in agent.tools]
    copied.handoffs = [_protected(other, said, default, seen) for other in agent.handoffs]
    if isinstance(agent.model, Model):
        copied.model = guarded_model(agent.model)
    return copied


async def run(agent: Agent[Any], input: Any, *, approvals: Asks | None = None, **options: Any) -> Any:
    """`Runner.run` in a call scope of its own; tools that need approval wait in the inbox. `options` go to it."""
    config = options.pop("run_config", None) or RunConfig()
    if not isinstance(config.model_provider, SurefootProvider):
        config = replace(config, model_provider=SurefootProvider(config.model_provider))
    async with calls.scope(agent.name):
        result = await Runner.run(agent, input, run_config=config, **options)
        while approvals is not None and result.interruptions:
            state = await answered(result, approvals)
            result = await Runner.run(agent, state, run_config=config, **options)
        return result


async def answered(result: Any, approvals: Asks) -> Any:
    """The `RunState` to go on from, with each interruption of a (streamed) result decided in the inbox."""
    waiting = result.interruptions
    pauses = [
        Pause(name=item.raw_item.name, arguments=_parsed(item.raw_item.arguments), tool_call_id=item.raw_item.call_id)
        for item in waiting
    ]
    denied = await decide_async(approvals, pauses)
    state = result.to_state()
    for item, why in zip(waiting, denied, strict=True):
        if why is None:
            state.approve(item)
        else:
            state.reject(item)
    return state
