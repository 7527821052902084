"""Google ADK: a plugin that puts tools under the gate, and confirmations into the inbox.

    plugin = SurefootPlugin(tools={"charge": keyed(timedelta(hours=24)), "look_up": "read"})
    runner = InMemoryRunner(app=App(name="bank", root_agent=agent, plugins=[plugin]))
    with scope("bank"):
        async for event in runner.run_async(...): ...

A plugin's `before_tool_callback` may answer a call: so it runs the tool itself, inside the gate. Model calls are
recorded below, by `surefoot.http.install()`, which also gives Gemini's calls the ids that tools are recognised by; for
models that are not reached by httpx, say `models="record"`.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_confirmation import ToolConfirmation

from ..core.digest import digest
from ..core.errors import Denied, Refused, StepFailed, UsageError
from ..core.values import encode_canonical
from ..runtime import calls
from .approving import Pause, decide_async
from .asking import Asks
from .gated import gate_async
from .policy import Policy, Reads, Says, policy_of
from .toolcall import tool_call_id

ACTIONS = ("state_delta", "artifact_delta", "transfer_to_agent", "escalate", "skip_summarization")
"""What a tool tells the framework beside its result; recorded with it."""
RUNS_AGENTS = frozenset({"AgentTool", "TransferToAgentTool", "LongRunningFunctionTool"})


class SurefootPlugin(BasePlugin):
    """`tools` says what a repeat of a tool does, by name: a contract, a `Policy`, "read", or False (not gated)."""

    def __init__(
        self,
        *,
        tools: Mapping[str, Says] | None = None,
        asks: Asks | None = None,
        models: Literal["http", "record"] = "http",
        name: str = "surefoot",
    ) -> None:
        """Of a tool that is not named nothing is known: opaque. `asks` says who decides what needs confirmation."""
        super().__init__(name)
        self._policies = {tool: policy_of(said, tool) for tool, said in (tools or {}).items()}
        self._asks, self._records = asks, models == "record"
        self._open: dict[tuple[str, str, str], calls.Slot] = {}

    # --- tools --------------------------------------------------------------------------------------------------------

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """The tool's answer, run once for each call of the model; None where the tool is not gated."""
        policy = self._policy(tool)
        if policy is None:
            return None
        call_id = tool_context.function_call_id
        with tool_call_id(call_id):
            try:
                if await _needs_confirmation(tool, tool_args, tool_context):
                    await self._confirm(tool, tool_args, tool_context, {"hint": "", "payload": None})
                said = await self._round(policy, "", tool, tool_args, tool_context)
                if said["asks"] is not None:
                    await self._confirm(tool, tool_args, tool_context, said["asks"])
                    said = await self._round(policy, ":confirmed", tool, tool_args, tool_context)
            except (Refused, Denied, StepFailed) as error:
                return {"error": str(error)}
        result = said["result"]
        return result if isinstance(result, dict) else {"result": result}

    def _policy(self, tool: Any) -> Policy | Reads | None:
        function = getattr(tool, "func", None)
        own = hasattr(function, "surefoot") or str(getattr(function, "__module__", "")).startswith("google.adk")
        if own or type(tool).__name__ in RUNS_AGENTS or tool.name == "<unnamed>":
            return None
        return self._policies.get(tool.name, policy_of(None, tool.name))

    async def _round(
        self, policy: Policy | Reads, more: str, tool: Any, arguments: dict[str, Any], context: Any
    ) -> dict[str, Any]:
        """One run of the tool, as it is recorded: its result, what it told the framework, and what it asks a person."""
        ran = False

        async def call() -> dict[str, Any]:
            nonlocal ran
            ran = True
            result = await tool.run_async(args=arguments, tool_context=context)
            asked = context.actions.requested_tool_confirmations.pop(context.function_call_id, None)
            if asked is not None:
                context.actions.skip_summarization = None  # meant for ADK's own pause, which there will not be
            told = {name: getattr(context.actions, name, None) for name in ACTIONS}
            asks = None if asked is None else {"hint": asked.hint, "payload": asked.payload}
            return {"result": _plain(result), "told": {k: v for k, v in told.items() if v}, "asks": asks}

        how = policy.options(arguments, _as_said)
        said = _as_said(await gate_async(tool.name + more, policy.contract, arguments, call, **how))
        if not ran:
            for name, value in said["told"].items():
                if name == "state_delta":
                    context.state.update(value)
                else:
                    setattr(context.actions, name, value)
        return said

    async def _confirm(self, tool: Any, arguments: dict[str, Any], context: Any, asked: dict[str, Any]) -> None:
        """Ask in the inbox; Denied is what the model is told."""
        if self._asks is None:
            raise UsageError(
                f"tool {tool.name!r} asks for confirmation; say who decides: SurefootPlugin(asks=Asks(by=, within=))"
            )
        shown = {**arguments, **({"hint": asked["hint"]} if asked["hint"] else {})}
        pause = Pause(name=tool.name, arguments=shown, tool_call_id=context.function_call_id)
        (denied,) = await decide_async(self._asks, [pause])
        if denied is not None:
            raise denied
        context.tool_confirmation = ToolConfirmation(confirmed=True, payload=asked["payload"])

    # --- models -------------------------------------------------------------------------------------------------------

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        """Refused in a run that has stopped; with `models="record"` the recorded answer, if there is one."""
        place = calls.place("a model call of ADK")
        if place is None or place.plain:
            return None
        calls.refuse_if_stopped(place)
        if not self._records:
            return None
        contents = [content.model_dump(mode="json", exclude_none=True) for content in llm_request.contents]
        system = str(getattr(llm_request.config, "system_instruction", "") or "")
        asked = {"contents": contents, "system": system, "tools": sorted(llm_request.tools_dict)}
        fingerprint = digest(encode_canonical(asked, "a request to a model"))
        name = llm_request.model or "model"
        found = await calls.begin_async(place, kind="adk.model", name=name, fingerprint=fingerprint, preview=name)
        if isinstance(found, calls.Recorded):
            return LlmResponse.model_validate(msgspec.json.decode(found.answer))
        assert isinstance(found, calls.Slot)
        self._open[_asker(callback_context)] = found
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Record the whole answer before anybody acts on it, with ids for its calls."""
        if llm_response.partial or (slot := self._open.pop(_asker(callback_context), None)) is None:
            return
        seed = digest(slot.slot.encode() + b"\0" + slot.place.session.state.run_id.encode()).hex()[:24]
        for number, part in enumerate((llm_response.content and llm_response.content.parts) or []):
            if part.function_call and not part.function_call.id:
                part.function_call.id = f"call_{seed}{number:02}"
        content = llm_response.model_dump(mode="json", exclude_none=True)
        await slot.commit_async(encode_canonical(content, "a model's answer"))

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Exception) -> None:
        """Nothing came of it: the next call like this one takes its place."""
        slot = self._open.pop(_asker(callback_context), None)
        if slot is not None:
            slot.give_back()


def _asker(context: Any) -> tuple[str, str, str]:
    inner = context._invocation_context
    return context.invocation_id, context.agent_name, str(inner.branch)


async def _needs_confirmation(tool: Any, arguments: dict[str, Any], context: Any) -> bool:
    """True if the tool is declared with `require_confirmation`, and nobody has confirmed it."""
    check = getattr(tool, "check_require_confirmation", None)
    return check is not None and context.tool_confirmation is None and bool(await check(arguments, context))


def _as_said(found: Any) -> dict[str, Any]:
    """A recorded run; what a lookup found, or a person gave as the receipt, in the shape of one."""
    if isinstance(found, dict) and {"result", "told", "asks"} <= set(found):
        return found
    return {"result": _plain(found), "told": {}, "asks": None}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
