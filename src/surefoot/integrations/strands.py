"""Strands Agents: tools under the gate, models that are not reached by HTTP in the journal, interrupts in the inbox.

    agent = Agent(model=OpenAIModel(...), tools=[charge, look_up])
    protect(agent, tools={"charge": keyed(timedelta(hours=24)), "look_up": "read"})
    result = await run(agent, "pay order 7")

It is middleware of Strands' own (`ExecuteToolStage`, `InvokeModelStage`). Calls of models that are reached by httpx or
httpx2 are recorded below, by `surefoot.http.install()`; for others, such as Bedrock's, say `models="record"`.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

try:
    from strands.middleware import ExecuteToolStage, InvokeModelStage
except ImportError:  # before 1.62 the same stages had no public name
    from strands._middleware.stages import ExecuteToolStage, InvokeModelStage
from strands.types._events import ModelStopReason, ToolInterruptEvent, ToolResultEvent

from ..core.digest import digest
from ..core.errors import Denied, Refused, StepFailed, UsageError
from ..core.values import encode_canonical
from ..runtime import calls
from .approving import Pause, decide_async
from .asking import Asks
from .gated import gate_async
from .models import watched
from .policy import Policy, Reads, Says, policy_of
from .toolcall import tool_call_id

A = TypeVar("A")
Next = Callable[[Any], AsyncIterator[Any]]


def protect(agent: A, *, tools: Mapping[str, Says] | None = None, models: Literal["http", "record"] = "http") -> A:
    """Add the middleware to an agent, once, and return it.

    `tools` says what a repeat does, by name: a contract, a `Policy`, "read", or False for a tool that gates itself or
    runs another agent. Of a tool that is not named nothing is known: opaque. `models` says where model calls are
    recorded: at HTTP, or here, whole. Raises UsageError for what says nothing.
    """
    policies = {name: policy_of(said, name) for name, said in (tools or {}).items()}
    target: Any = agent
    if getattr(target, "surefoot", False):
        raise UsageError(f"agent {target.name!r} is protected already; protect each agent once")
    target.surefoot = True
    add = getattr(target, "add_middleware", None) or target._middleware_registry.add_middleware
    add(ExecuteToolStage, _ToolStage(policies).around)
    add(InvokeModelStage, _recorded_model if models == "record" else _guarded_model)
    return agent


# --- tools ------------------------------------------------------------------------------------------------------------


class _ToolStage:
    def __init__(self, policies: Mapping[str, Policy | Reads | None]) -> None:
        self._policies = policies

    def _policy(self, context: Any) -> Policy | Reads | None:
        name = context.tool_use["name"]
        own = getattr(getattr(context.tool, "_tool_func", None), "surefoot", None)
        return None if own is not None else self._policies.get(name, policy_of(None, name))

    async def around(self, context: Any, next_fn: Next) -> AsyncIterator[Any]:
        """The tool's events; on a repeat only the result that is recorded."""
        use = context.tool_use
        policy = self._policy(context)
        with tool_call_id(use["toolUseId"]):
            if policy is None or context.tool is None:
                async for event in next_fn(context):
                    yield event
                return
            before: list[Any] = []

            async def call() -> dict[str, Any]:
                return await _result_of(next_fn(context), before, use["name"])

            asked = dict(use.get("input") or {})
            how = policy.options(asked, _as_result)
            failed: Exception | None = None
            try:
                result = await gate_async(use["name"], policy.contract, asked, call, **how)
            except (Refused, Denied, StepFailed) as error:
                failed, result = error, {"status": "error", "content": [{"text": f"Error: {error}"}]}
        for event in before:
            yield event
        yield ToolResultEvent({**_as_result(result), "toolUseId": use["toolUseId"]}, exception=failed)


def _as_result(found: Any) -> dict[str, Any]:
    """A recorded result; what a lookup found, or a person gave as the receipt, in the shape of one."""
    if isinstance(found, dict) and "content" in found:
        return found
    return {"status": "success", "content": [{"text": found if isinstance(found, str) else str(found)}]}


async def _result_of(events: AsyncIterator[Any], before: list[Any], name: str) -> dict[str, Any]:
    """The result of one attempt as it is recorded; raises what the tool raised, so that the gate can read it."""
    result: dict[str, Any] | None = None
    async for event in events:
        if isinstance(event, ToolInterruptEvent):
            raise Refused(
                f"{name} interrupted inside its body, where nobody knows what it has done; ask before it runs, with "
                "Policy(approval=Asks(...)) or in a hook of BeforeToolCallEvent"
            )
        if not isinstance(event, ToolResultEvent):
            before.append(event)
        elif event.exception is not None:
            raise event.exception
        else:
            result = {key: value for key, value in event.tool_result.items() if key != "toolUseId"}
    if result is None:
        raise RuntimeError(f"tool {name!r} ended without a result")
    return result


# --- models -----------------------------------------------------------------------------------------------------------


async def _guarded_model(context: Any, next_fn: Next) -> AsyncIterator[Any]:
    """Refused in a run that has stopped; an answer that nobody recorded is an error."""
    with watched(f"a call of {type(context.model).__name__}"):
        async for event in next_fn(context):
            yield event


async def _recorded_model(context: Any, next_fn: Next) -> AsyncIterator[Any]:
    """The model's events live; on replay the end of them alone, from the journal."""
    place = calls.place("a model call of strands")
    if place is None or place.plain:
        async for event in next_fn(context):
            yield event
        return
    # a message also carries what Strands keeps for itself, some of it random
    messages = [{"role": message["role"], "content": message["content"]} for message in context.messages]
    asked = {"messages": messages, "system": context.system_prompt, "tools": context.tool_specs}
    config: Any = getattr(context.model, "get_config", dict)()
    name = str(config.get("model_id", type(context.model).__name__))
    content = encode_canonical({**asked, "choice": context.tool_choice}, "a request to a model")
    found = await calls.begin_async(place, kind="strands.model", name=name, fingerprint=digest(content), preview=name)
    if isinstance(found, calls.Recorded):
        yield ModelStopReason(**msgspec.json.decode(found.answer)["ended"])
        return
    assert isinstance(found, calls.Slot)
    try:
        async for event in next_fn(context):
            if isinstance(event, ModelStopReason):
                # durable before the agent acts on it
                ended = dict(zip(("stop_reason", "message", "usage", "metrics"), event["stop"], strict=True))
                uses = [block["toolUse"] for block in ended["message"]["content"] if "toolUse" in block]
                answer = {"ended": ended, "calls": [{"id": use["toolUseId"]} for use in uses]}
                await found.commit_async(encode_canonical(answer, "a model's answer"))
            yield event
    finally:
        found.give_back()


# --- people -----------------------------------------------------------------------------------------------------------


async def run(
    agent: Any, prompt: Any, *, asks: Asks | None = None, answers: tuple[Any, Any] = ("approve", "deny"), **options: Any
) -> Any:
    """The agent's result, in a call scope of its own; its interrupts are decided in the inbox.

    `answers` are what an interrupt gets when a person approves or denies. Suspends the run while nobody has decided.
    Raises UsageError for an interrupt where `asks` does not say who decides.
    """
    with calls.scope(str(getattr(agent, "name", None) or "agent")):
        result = await agent.invoke_async(prompt, **options)
        while result.stop_reason == "interrupt":
            if asks is None:
                raise UsageError(
                    "the agent interrupts for a person; say who decides: run(..., asks=Asks(by=, within=))"
                )
            held = list(result.interrupts)
            pauses = [Pause(name=i.name, arguments={"reason": i.reason}, tool_call_id=None) for i in held]
            decided = await decide_async(asks, pauses)
            said = [
                {"interruptResponse": {"interruptId": i.id, "response": answers[denied is not None]}}
                for i, denied in zip(held, decided, strict=True)
            ]
            result = await agent.invoke_async(said, **options)
        return result
