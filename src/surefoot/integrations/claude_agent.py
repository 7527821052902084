"""Claude Agent SDK: tools of your own and the built-in ones under the gate, by the SDK's hooks.

    with scope("agent"), recorded_models() as url:
        guard = Guard(tools={"charge": keyed(timedelta(hours=24))})
        server = create_sdk_mcp_server("bank", tools=[guard.tool(charge)])
        options = guard.options(ClaudeAgentOptions(mcp_servers={"bank": server}, env={"ANTHROPIC_BASE_URL": url}))
        async for message in query(prompt=..., options=options): ...

The agent's loop is a program of its own, so its model calls are recorded at that address (or by `surefoot proxy`). Its
built-in tools act in that program: the hook before one records the intent, the hook after it the outcome.
"""

# The SDK is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict, deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from claude_agent_sdk import HookMatcher

from ..core.contract import natural, opaque
from ..core.errors import Denied, Refused, StepFailed, UsageError
from ..core.values import encode_canonical
from ..runtime import calls
from ..runtime.scope import current
from .claude_answers import Answer, as_result, deny, error, output_of
from .claude_models import recorded_models
from .gate import UNKNOWN, ToolInDoubt
from .gated import gate_async
from .policy import Policy, Reads, Says, policy_of
from .toolcall import tool_call_id

__all__ = ["BUILT_IN", "Guard", "recorded_models"]

LONGEST = timedelta(minutes=10)
BUILT_IN: dict[str, Says] = {
    **dict.fromkeys(("Glob", "Grep", "LS", "Read", "WebFetch", "WebSearch"), "read"),
    "Write": Policy(contract=natural(), timeout=LONGEST),
    **{name: Policy(contract=opaque(), timeout=LONGEST) for name in ("Bash", "Edit", "MultiEdit", "NotebookEdit")},
}
"""What a repeat of a built-in tool does, unless `Guard(built_in=)` says otherwise. Others only steer the program."""
NO_OP = {"Bash": {"command": ":"}}
"""Input with which a built-in tool does nothing, so that its recorded output can stand for it."""


class Guard:
    """The tools of one agent in one run; make it inside the workflow, in a call scope."""

    def __init__(self, *, tools: Mapping[str, Says] | None = None, built_in: Mapping[str, Says] | None = None) -> None:
        """`tools`: your own, by name; `built_in`: over `BUILT_IN`. UsageError outside a run, or for no policy."""
        if calls.place("Guard()") is None:
            raise UsageError("Guard() belongs to a run: make it inside the workflow that runs the agent")
        self._scope = current.get()
        self._tools = {name: policy_of(said, name) for name, said in (tools or {}).items()}
        self._built_in = {name: policy_of(said, name) for name, said in {**BUILT_IN, **(built_in or {})}.items()}
        self._ids: defaultdict[tuple[str, bytes], deque[str]] = defaultdict(deque)
        self._mine: set[str] = set()
        self._flying: dict[str, tuple[asyncio.Task[Any], asyncio.Future[Any]]] = {}
        self._recorded: dict[str, Any] = {}

    def options(self, options: Any) -> Any:
        """A copy of the SDK's options with the hooks added before those that are there."""
        hooks = dict(options.hooks or {})
        ours = {"PreToolUse": self._before, "PostToolUse": self._after, "PostToolUseFailure": self._failed}
        for event, hook in ours.items():
            hooks[event] = [HookMatcher(hooks=[hook], timeout=LONGEST.total_seconds()), *hooks.get(event, [])]
        return dataclasses.replace(options, hooks=hooks)

    # --- tools of your own --------------------------------------------------------------------------------------------

    def tool(self, tool: Any, said: Says | None = None) -> Any:
        """A copy of an SDK tool (`@tool`) that runs once for each call of the model."""
        policy = (
            policy_of(said, tool.name) if said is not None else self._tools.get(tool.name, policy_of(None, tool.name))
        )
        if policy is None:
            return tool
        self._mine.add(tool.name)
        inner = tool.handler

        async def handler(arguments: Any) -> Any:
            asked = dict(arguments)
            with self._in_run(), tool_call_id(self._take_id(tool.name, asked)):
                how = policy.options(asked, as_result)
                try:
                    return as_result(
                        await gate_async(tool.name, policy.contract, asked, lambda: inner(arguments), **how)
                    )
                except ToolInDoubt as stop:  # the run's model calls are refused from now on
                    return error(f"{UNKNOWN}. {stop.reason}")
                except (Refused, Denied, StepFailed) as refused:
                    return error(str(refused))

        return dataclasses.replace(tool, handler=handler)

    def _take_id(self, name: str, arguments: Answer) -> str | None:
        """The id that the hook saw for this call: the tool itself is not told."""
        held = self._ids[name, encode_canonical(arguments, "arguments")]
        return held.popleft() if held else None

    # --- hooks --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _in_run(self) -> Generator[None]:
        token = current.set(self._scope)
        try:
            yield
        finally:
            current.reset(token)

    async def _before(self, asked: Any, tool_use_id: str | None, context: Any) -> Answer:
        name, arguments, call_id = asked["tool_name"], dict(asked["tool_input"]), str(asked["tool_use_id"])
        own = name.rpartition("__")[2]
        if name.startswith("mcp__") and own in self._mine:
            self._ids[own, encode_canonical(arguments, "arguments")].append(call_id)
            return {}
        policy = self._built_in.get(name, policy_of(None, name) if name.startswith("mcp__") else None)
        if policy is None or policy.contract is None:
            return {}
        with self._in_run(), tool_call_id(call_id):
            return await self._begin(policy, name, arguments, call_id)

    async def _begin(self, policy: Policy, name: str, arguments: Answer, call_id: str) -> Answer:
        """Let it act when its intent is on disk; what is recorded, or in doubt, is not done again."""
        loop = asyncio.get_running_loop()
        began: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[Any] = loop.create_future()

        async def act() -> Any:
            began.set_result(None)
            return await ended

        task = asyncio.create_task(gate_async(name, policy.contract, arguments, act, **policy.options(arguments)))
        await asyncio.wait({task, began}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            self._flying[call_id] = task, ended
            return {}
        try:
            recorded = task.result()
        except ToolInDoubt as stop:
            return {**deny(f"{UNKNOWN}. {stop.reason}"), "continue_": False, "stopReason": stop.reason}
        except (Refused, Denied) as refused:
            return deny(str(refused))
        output = recorded.get("output") if isinstance(recorded, dict) else None
        if name not in NO_OP or output is None:
            return deny(f"It was done before, and is not done again. Its result: {output or recorded}")
        self._recorded[call_id] = output
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {**arguments, **NO_OP[name]}}}

    async def _after(self, asked: Any, tool_use_id: str | None, context: Any) -> Answer:
        name, call_id, output = asked["tool_name"], str(asked["tool_use_id"]), asked["tool_response"]
        if call_id in self._recorded:
            return output_of(self._recorded.pop(call_id))
        flying = self._flying.pop(call_id, None)
        if flying is not None:
            flying[1].set_result({"output": output})
            await flying[0]  # on disk before the model is told
            return {}
        if not isinstance(self._built_in.get(name), Reads):
            return {}

        async def read() -> Any:
            return output

        with self._in_run(), tool_call_id(call_id):
            kept = await gate_async(name, None, dict(asked["tool_input"]), read)
        return {} if kept == output else output_of(kept)

    async def _failed(self, asked: Any, tool_use_id: str | None, context: Any) -> Answer:
        flying = self._flying.pop(str(asked["tool_use_id"]), None)
        if flying is None:
            return {}
        if asked.get("is_interrupt"):
            flying[1].set_exception(RuntimeError("it was interrupted"))
        else:
            flying[1].set_result({"failed": asked["error"]})
        try:
            await flying[0]
        except ToolInDoubt as stop:
            return {"continue_": False, "stopReason": stop.reason}
        return {}
