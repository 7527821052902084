"""What the adapter promises besides surviving kills: approvals, doubt that stops, a schema without the key."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import surefoot.http
from surefoot import Diverged, Refused, RunWaiting, Surefoot, UsageError, keyed, opaque, tool, workflow
from surefoot.integrations.openai_agents import protected, run
from surefoot.integrations.tool import Asks
from surefoot.testing.models import ModelServer, Say, ToolCall, replies

pytestmark = pytest.mark.asyncio
KEYED = keyed(timedelta(hours=24))
PAY = Say(calls=(ToolCall(name="pay", arguments={"order": "7"}),))
THREE = Say(calls=tuple(ToolCall(name="pay", arguments={"order": order}) for order in "123"))
set_tracing_disabled(True)


@pytest.fixture(autouse=True)
def _recording() -> Any:
    surefoot.http.install()


def model_of(models: ModelServer) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("m", AsyncOpenAI(base_url=f"{models.url}/v1", api_key="k", max_retries=0))


def agent_of(models: ModelServer, paid: list[str], fails: Any = None, said: Any = KEYED, **options: Any) -> Any:
    @function_tool(**options)
    async def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        if fails is not None:
            raise fails
        return f"paid {order}"

    return protected(Agent(name="bank", model=model_of(models), tools=[pay]), tools={"pay": said})


def checkout_of(agent: Any, **options: Any) -> Any:
    @workflow(name="checkout")
    async def checkout() -> str:
        return (await run(agent, "pay order 7", **options)).final_output

    return checkout


@pytest.mark.feature("approval")
async def test_a_tool_that_needs_approval_waits_in_the_inbox_and_runs_once(tmp_path: Path) -> None:
    paid: list[str] = []
    asks = Asks(by="finance", within=timedelta(days=1))
    with ModelServer(replies(THREE, "done"), strict=True) as models:
        checkout = checkout_of(agent_of(models, paid, needs_approval=True), approvals=asks)
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            running = sf.start(checkout, id="order-7")
            waiting: list[Any] = []
            while len(waiting) < 3:
                await asyncio.sleep(0.02)
                waiting = sf.approvals()
            assert paid == []
            for view in waiting[:2]:
                sf.approve(view.id, who="mary", digest=view.digest)
            sf.deny(waiting[2].id, who="mary", why="too much")
            assert await running == "done"
            denied = next(order for order in "123" if f'"order":"{order}"' in waiting[2].text)
            assert sorted(paid) == sorted(set("123") - {denied})
        assert len(models.paid()) == 2


async def test_a_state_that_is_resumed_twice_in_a_run_acts_once(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        agent = agent_of(models, paid, needs_approval=True)

        @workflow(name="checkout")
        async def checkout() -> str:
            async with surefoot.http.scope("bank"):
                result = await Runner.run(agent, "pay order 7")
                saved = json.dumps(result.to_state().to_json())
                for _ in range(2):
                    state = await RunState.from_json(agent, json.loads(saved))
                    state.approve(state.get_interruptions()[0])
                    result = await Runner.run(agent, state)
                return result.final_output

        async with Surefoot(str(tmp_path / "a.db")) as sf:
            assert await sf.run(checkout, id="order-7") == "done"
    assert paid == ["7"]


async def test_a_tool_in_doubt_stops_the_run_and_no_further_model_call_is_made(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        checkout = checkout_of(agent_of(models, paid, TimeoutError("no answer"), opaque()))
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            for _ in range(2):
                with pytest.raises(RunWaiting, match="in doubt"):
                    await sf.run(checkout, id="order-7")
            assert sf.get("order-7").status == "waiting"
    assert (paid, len(models.paid())) == (["7"], 1)


async def test_a_refusal_is_told_to_the_model_as_the_tool_would_say_it(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        told = {"failure_error_function": lambda context, error: f"sorry: {error}"}
        checkout = checkout_of(agent_of(models, paid, Refused("card declined"), **told))
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            assert await sf.run(checkout, id="order-7") == "done"
        assert "sorry: card declined" in json.dumps(models.asks[-1].body)
    assert paid == ["7"]


async def test_a_model_call_that_nobody_records_ends_the_run(tmp_path: Path) -> None:
    class Fake(OpenAIResponsesModel):
        def __init__(self) -> None:
            self.model = "fake"

        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            from agents import ModelResponse, Usage

            return ModelResponse(output=[], usage=Usage(), response_id=None)

    agent = protected(Agent(name="bank", model=Fake()))
    async with Surefoot(str(tmp_path / "a.db")) as sf:
        with pytest.raises(UsageError, match="nothing recorded it"):
            await sf.run(checkout_of(agent), id="order-7")


async def test_a_session_on_disk_makes_the_second_life_ask_something_else_and_nothing_is_sent(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        agent = agent_of(models, paid)

        @workflow(name="checkout")
        async def checkout() -> str:
            session = SQLiteSession("order-7", tmp_path / "session.db")
            result = await run(agent, "pay order 7", session=session)
            if len(models.paid()) == 2 and not died:
                died.append(True)
                raise KeyboardInterrupt
            return result.final_output

        died: list[bool] = []
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            with pytest.raises(KeyboardInterrupt):
                await sf.run(checkout, id="order-7")
            with pytest.raises(Diverged):
                await sf.run(checkout, id="order-7")
    assert (paid, len(models.paid())) == (["7"], 2)


async def test_an_agent_as_a_tool_is_not_gated_and_its_tools_are(tmp_path: Path) -> None:
    paid: list[str] = []
    ask_bank = Say(calls=(ToolCall(name="ask_bank", arguments={"input": "pay order 7"}),))

    def planner(ask: Any) -> Say:
        if "ask_bank" in ask.tools:
            return ask_bank if not ask.results else Say(text="all done")
        return PAY if not ask.results else Say(text="paid it")

    with ModelServer(planner, strict=True) as models:
        bank = agent_of(models, paid)
        boss = protected(Agent(name="boss", model=model_of(models), tools=[bank.as_tool("ask_bank", "Ask the bank.")]))
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            assert await sf.run(checkout_of(boss), id="order-7") == "all done"
            slots = [entry.slot for entry in sf.engine.store.read_run("order-7")[1]]
        assert any(slot.startswith("@/boss/ask_bank:call_") and slot.endswith("]/pay") for slot in slots)
        assert (paid, len(models.paid())) == (["7"], 4)


async def test_the_model_sees_neither_the_attempt_nor_the_key() -> None:
    @function_tool
    @tool(KEYED)
    def pay(attempt: Any, order: str, cents: int) -> str:
        """Pay an order."""
        return attempt.key

    assert set(pay.params_json_schema["properties"]) == {"order", "cents"}
    assert pay.description == "Pay an order."


async def test_outside_a_run_the_agent_is_a_plain_one() -> None:
    paid: list[str] = []
    with ModelServer(replies("hello"), strict=True) as models:
        result = await run(agent_of(models, paid), "hello", run_config=RunConfig(tracing_disabled=True))
        assert result.final_output == "hello"
