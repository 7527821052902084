"""pydantic-ai: a durability capability, on the backend that pydantic-ai publishes for engines.

    agent = Agent(model, name="bank", capabilities=[SurefootDurability()])

Inside a run every model request and tool listing is recorded, and every tool call goes through the gate. Outside a run
the agent is a plain one. Messages carry timestamps, so a request is known by its content without them.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, cast

import msgspec
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
)
from pydantic_ai.tools import ToolApproved
from pydantic_core import to_jsonable_python

from ..runtime import calls
from .approving import Pause, decide_async
from .asking import Asks
from .gated import gate_async
from .policy import Policy, Reads, Says, policy_of
from .pydantic_ai_requests import fingerprint
from .toolcall import tool_call, tool_call_id

try:
    from pydantic_ai.durable_exec import record_durable_unit, replay_scope
except ImportError:  # before 2.64, replayed spans are exported again
    record_durable_unit, replay_scope = cast("Any", lambda *, executed: None), cast("Any", nullcontext)

KEY = "surefoot"
_encode = msgspec.json.Encoder(order="deterministic").encode


class SurefootDurability(BaseDurabilityCapability[Any]):
    """Makes an agent's runs crash-safe inside a Surefoot workflow; see the module.

    `tools` says by name what a repeat of a tool does, as `policy` has it. A tool may say it itself:
    `metadata={"surefoot": {"policy": keyed(...)}}`, or `{"surefoot": False}` for one that is not gated. A function made
    with `surefoot.tool` has said it. `approvals` answers tools with `requires_approval` from the inbox.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Surefoot",
        durable_unit_noun="step",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        tool_config_key=KEY,
    )

    def __init__(
        self,
        *,
        tools: Mapping[str, Says] | None = None,
        approvals: Asks | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of pydantic-ai's durability capabilities: `models`, `event_stream_handler`, `name`."""
        super().__init__(**options)
        self._said, self._asks = dict(tools or {}), approvals
        self._backend: _Backend | None = None

    def _bind_to_agent(self, agent: Any) -> None:
        self._backend = _Backend(self)
        self._register_toolsets(agent)

    @property
    def in_durable_context(self) -> bool:
        """True in a workflow, and not in a step's or effect's body."""
        place = calls.place("an agent's step")
        return place is not None and not place.plain

    def get_durable_operation_backend(self) -> Any:
        """What records and gates."""
        return self._backend

    def policy(self, name: str, config: Any) -> Policy | Reads | None:
        """What a repeat of this tool does; None: it is not gated."""
        return policy_of(self._said.get(name, (config or {}).get("policy")), name)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[Any]]) -> Any:
        """Each run of the agent is a call scope; one that a tool starts is told by that tool's call."""
        if not self.in_durable_context:
            return await super().wrap_run(ctx, handler=handler)
        call = tool_call.get()
        name = self.name if call is None else f"{self.name}:{call.id}"
        async with calls.scope(name):
            with tool_call_id(None), replay_scope():
                return await super().wrap_run(ctx, handler=handler)

    async def wrap_tool_execute(self, ctx: RunContext[Any], *, call: Any, **how: Any) -> Any:
        """Tools, gated or not, know for which call of the model they run."""
        with tool_call_id(call.tool_call_id):
            return await super().wrap_tool_execute(ctx, call=call, **how)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Tools that wait for approval wait in the inbox, where somebody was named to decide."""
        if self._asks is None or not requests.approvals or not self.in_durable_context:
            return await super().handle_deferred_tool_calls(ctx, requests=requests)
        waiting = requests.approvals
        pauses = [Pause(name=c.tool_name, arguments=c.args_as_dict(), tool_call_id=c.tool_call_id) for c in waiting]
        denied = await decide_async(self._asks, pauses)
        results = {
            call.tool_call_id: ToolApproved() if why is None else ToolDenied(str(why))
            for call, why in zip(waiting, denied, strict=True)
        }
        return DeferredToolResults(approvals=results)


class _Backend(JournalCallableOperationBackend[Any]):
    """Runs one operation of an agent, or gives what is recorded of it."""

    def __init__(self, capability: SurefootDurability) -> None:
        resolve = capability._build_resolve_tool_config({})  # pyright: ignore[reportPrivateUsage]
        config: Any = RoleBasedOperationConfig(
            model={}, event={}, capability={}, tool={}, resolve_tool=lambda id, tool, name: resolve(tool, name)
        )
        super().__init__(agent_name=capability.name, config=config)
        self._capability = capability

    async def execute(
        self, *, operation_id: Any, name: str, body: Callable[[], Awaitable[object]], cache_key: Any, config: Any
    ) -> object:
        """See the class; what only computes or shows is run again on a replay."""
        match operation_id:
            case ToolsetCallToolId():
                return await self._tool(body, cache_key, config)
            case ModelRequestId() | ModelCompactMessagesId():
                return await _record("model", name, fingerprint(cache_key), body)
            case ToolsetGetToolsId() | ToolsetGetInstructionsId():
                return await _record("tools", name, b"", body)
            case _:
                return await body()

    async def _tool(self, body: Callable[[], Awaitable[object]], cache_key: Any, config: Any) -> object:
        tool_name, arguments, context, tool = cache_key
        held = getattr(getattr(tool, "toolset", None), "tools", {}).get(tool_name)
        if hasattr(getattr(held, "function", None), "surefoot"):
            return await body()  # a surefoot.tool, which has said its contract and gates itself
        policy = self._capability.policy(tool_name, config)
        if policy is None:
            return await body()
        ran = False

        async def call() -> object:
            nonlocal ran
            ran = True
            return await body()

        plain = to_jsonable_python(arguments)
        how = policy.options(plain, lambda found: {"kind": "tool_return", "result": found})
        value = await gate_async(tool_name, policy.contract, plain, call, tool_call_id=context.tool_call_id, **how)
        record_durable_unit(executed=ran)
        return value


async def _record(kind: str, name: str, fingerprint: bytes, body: Callable[[], Awaitable[object]]) -> object:
    place = calls.place(f"the {kind} call {name!r}")
    if place is None:
        return await body()
    ran = False

    async def answer() -> bytes:
        nonlocal ran
        ran = True
        return _encode(await body())

    recorded = await calls.record_async(place, kind=kind, name=name, fingerprint=fingerprint, preview=name, body=answer)
    record_durable_unit(executed=ran)
    return msgspec.json.decode(recorded)
