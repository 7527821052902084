"""Confirmations of ADK, declared and asked for in the body, are decided in the inbox; what a tool tells ADK is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

import surefoot.http
from frameworks.lives import to_where_it_waits
from surefoot import RunWaiting, Surefoot, keyed, opaque, wait_for, workflow
from surefoot.integrations.asking import Asks
from surefoot.integrations.google_adk import SurefootPlugin
from surefoot.testing.models import Ask, ModelServer, Say, ToolCall

BY = Asks(by="ann", within=3600)
RAN: list[str] = []
SEEN: list[Any] = []


def planner(ask: Ask) -> Say:
    if ask.calls:
        return Say(text="paid" if "paid" in ask.text.rpartition("PAY")[2] else "not paid")
    return Say(calls=(ToolCall(name="pay", arguments={"amount": 5}),))


def pay(amount: int, tool_context: ToolContext) -> dict[str, Any]:
    """PAY."""
    RAN.append("declared")
    tool_context.state["spent"] = amount
    return {"ok": f"paid {amount}"}


def pay_if_confirmed(amount: int, tool_context: ToolContext) -> dict[str, Any]:
    """PAY."""
    if not tool_context.tool_confirmation:
        RAN.append("asked")
        tool_context.request_confirmation(hint="really?", payload={"limit": 7})
        return {"error": "wait"}
    RAN.append("confirmed")
    return {"ok": f"paid {amount} of {tool_context.tool_confirmation.payload['limit']}"}


async def answer(url: str, tool: Any, plugin: SurefootPlugin) -> str:
    os.environ.update(GOOGLE_GEMINI_BASE_URL=url, GOOGLE_API_KEY="any", GOOGLE_GENAI_USE_VERTEXAI="0")
    agent = LlmAgent(name="bank", model="gemini-scripted", instruction="x", tools=[tool])
    runner = InMemoryRunner(app=App(name="bank", root_agent=agent, plugins=[plugin]))
    session = await runner.session_service.create_session(app_name="bank", user_id="u")
    said = ""
    message = types.Content(role="user", parts=[types.Part(text="go")])
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.content and event.content.parts:
            SEEN.extend(p.function_response.response for p in event.content.parts if p.function_response)
            said = event.content.parts[-1].text or said
    held = await runner.session_service.get_session(app_name="bank", user_id="u", session_id=session.id)
    return f"{said}; spent {held.state.get('spent')}"


def live(
    folder: Path,
    tool: Any,
    *,
    asks: Asks | None = BY,
    contract: Any = None,
    models: Any = "http",
    then_ask: bool = False,
    stop: bool = True,
) -> str:
    """One life, to its end or to where it waits for a person."""
    surefoot.http.install()

    @workflow(name="bank")
    async def bank(url: str) -> str:
        with surefoot.http.scope("bank"):
            says = contract or keyed(3600)
            said = await answer(url, tool, SurefootPlugin(tools={"pay": says}, asks=asks, models=models))
        if then_ask:
            await wait_for("go")
        return said

    return to_where_it_waits(folder / "agents.db", bank, (folder / "url").read_text(), unasked=then_ask and stop)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    RAN.clear()
    SEEN.clear()
    models = ModelServer(planner, record=tmp_path / "models.jsonl").start()
    (tmp_path / "url").write_text(models.url)
    yield tmp_path
    models.close()


def decide(folder: Path, *, approved: bool = True) -> None:
    with Surefoot(folder / "agents.db") as sf:
        (asked,) = sf.approvals()
        if approved:
            sf.approve(asked.id, who="ann", digest=asked.digest)
        else:
            sf.deny(asked.id, who="ann", why="too much")


@pytest.mark.feature("approval")
def test_a_declared_confirmation_is_decided_in_the_inbox_before_the_tool_runs(folder: Path) -> None:
    tool = FunctionTool(pay, require_confirmation=True)
    assert live(folder, tool) == "waits" and RAN == []
    decide(folder)
    assert live(folder, tool).startswith("paid") and RAN == ["declared"]


@pytest.mark.feature("approval")
def test_a_denial_is_what_the_model_is_told(folder: Path) -> None:
    tool = FunctionTool(pay, require_confirmation=True)
    assert live(folder, tool) == "waits"
    decide(folder, approved=False)
    assert live(folder, tool).startswith("not paid") and RAN == []
    assert "denied by ann" in str(SEEN)


@pytest.mark.feature("approval")
def test_a_confirmation_that_the_body_asks_for_goes_on_where_it_was(folder: Path) -> None:
    tool = FunctionTool(pay_if_confirmed)
    tool.name = "pay"
    assert live(folder, tool) == "waits" and RAN == ["asked"]
    decide(folder)
    assert live(folder, tool).startswith("paid") and RAN == ["asked", "confirmed"]
    assert "paid 5 of 7" in str(SEEN)


def test_without_somebody_who_decides_it_is_an_error(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="say who decides"):  # ADK wraps what a plugin raises
        live(folder, FunctionTool(pay, require_confirmation=True), asks=None)


@pytest.mark.parametrize("models", ["http", "record"])
def test_what_a_tool_told_adk_is_told_again_on_replay(folder: Path, models: str) -> None:
    assert live(folder, FunctionTool(pay), models=models, then_ask=True) == "waits" and RAN == ["declared"]
    SEEN.clear()
    with Surefoot(folder / "agents.db") as sf:
        sf.signal("r", "go", True)
    assert live(folder, FunctionTool(pay), models=models, then_ask=True, stop=False) == "paid; spent 5" and RAN == [
        "declared"
    ]
    assert SEEN == [{"ok": "paid 5"}]


def test_a_tool_that_fails_is_in_doubt_and_stops_the_run(folder: Path) -> None:
    def fails(amount: int) -> dict[str, Any]:
        """PAY."""
        RAN.append("failed")
        raise ConnectionResetError("the answer was lost")

    tool = FunctionTool(fails)
    tool.name = "pay"
    for _ in range(2):
        with pytest.raises(RunWaiting, match="in doubt"):
            live(folder, tool, contract=opaque())
    assert RAN == ["failed"]
