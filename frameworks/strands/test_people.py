"""Interrupts of Strands are decided in the inbox, and what a tool raises is read by its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models.openai import OpenAIModel
from strands.types.tools import ToolContext

import surefoot.http
from frameworks.lives import to_where_it_waits
from surefoot import RunWaiting, Surefoot, UsageError, keyed, opaque, workflow
from surefoot.integrations.asking import Asks
from surefoot.integrations.strands import protect, run
from surefoot.testing.models import Ask, ModelServer, Say, ToolCall

BY = Asks(by="ann", within=3600)
RAN: list[str] = []


def planner(ask: Ask) -> Say:
    if ask.calls:
        return Say(text="paid" if "done 5" in ask.text else f"not paid: {ask.text[-200:]}")
    return Say(calls=(ToolCall(name="pay", arguments={"amount": 5}),))


@tool
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: how much
    """
    RAN.append("paid")
    return f"done {amount}"


class Asking(HookProvider):
    """Interrupts before each tool, as Strands' documentation does it."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.ask)

    def ask(self, event: BeforeToolCallEvent) -> None:
        if event.interrupt("pay", reason={"amount": event.tool_use["input"]["amount"]}) != "approve":
            event.cancel_tool = "a person said no"


def live(
    folder: Path, *tools: Any, hooks: Any = (), asks: Asks | None = BY, contract: Any = None, install: bool = True
) -> str:
    """One life, to its end or to where it waits for a person."""
    if install:
        surefoot.http.install()

    @workflow(name="bank")
    async def bank(url: str) -> str:
        model = OpenAIModel(client_args={"base_url": f"{url}/v1", "api_key": "any", "max_retries": 0}, model_id="m")
        agent = Agent(name="bank", model=model, tools=list(tools), hooks=list(hooks), callback_handler=None)
        return str(await run(protect(agent, tools={"pay": contract or keyed(3600)}), "go", asks=asks)).strip()

    return to_where_it_waits(folder / "agents.db", bank, (folder / "url").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    RAN.clear()
    models = ModelServer(planner, record=tmp_path / "models.jsonl").start()
    (tmp_path / "url").write_text(models.url)
    yield tmp_path
    models.close()


@pytest.mark.feature("approval")
@pytest.mark.parametrize("approved", [True, False])
def test_an_interrupt_in_a_hook_is_decided_in_the_inbox(folder: Path, approved: bool) -> None:
    assert live(folder, pay, hooks=[Asking()]) == "waits" and RAN == []
    with Surefoot(folder / "agents.db") as sf:
        (asked,) = sf.approvals()
        if approved:
            sf.approve(asked.id, who="ann", digest=asked.digest)
        else:
            sf.deny(asked.id, who="ann", why="no")
    said = live(folder, pay, hooks=[Asking()])
    assert (said == "paid", RAN) == ((True, ["paid"]) if approved else (False, []))
    assert approved or "a person said no" in said


def test_without_somebody_who_decides_an_interrupt_is_an_error(folder: Path) -> None:
    with pytest.raises(UsageError, match="say who decides"):
        live(folder, pay, hooks=[Asking()], asks=None)


def test_a_tool_that_interrupts_in_its_body_is_told_to_ask_before(folder: Path) -> None:
    @tool(name="pay", context=True)
    def asks_late(amount: int, tool_context: ToolContext) -> str:
        """Pay.

        Args:
            amount: how much
        """
        RAN.append("began")
        return str(tool_context.interrupt("late", reason="?"))

    assert "interrupted inside its body" in live(folder, asks_late) and RAN == ["began"]


def test_a_tool_that_fails_is_in_doubt_and_stops_the_run(folder: Path) -> None:
    @tool(name="pay")
    def fails(amount: int) -> str:
        """Pay.

        Args:
            amount: how much
        """
        RAN.append("failed")
        raise ConnectionResetError("the answer was lost")

    for _ in range(2):
        with pytest.raises(RunWaiting, match="in doubt"):
            live(folder, fails, contract=opaque())
    assert RAN == ["failed"]


def test_an_agent_is_protected_once() -> None:
    agent = protect(Agent(model=OpenAIModel(client_args={"api_key": "any"}, model_id="m"), callback_handler=None))
    with pytest.raises(UsageError, match="protected already"):
        protect(agent)
