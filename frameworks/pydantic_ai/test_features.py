"""What the adapter promises besides surviving kills: approvals, doubt that stops, a schema without the key."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from surefoot import RunWaiting, Surefoot, keyed, opaque, tool, workflow
from surefoot.integrations.pydantic_ai import SurefootDurability
from surefoot.integrations.tool import Asks, scope
from surefoot.testing.models import ModelServer, Say, ToolCall, replies

pytestmark = pytest.mark.asyncio
KEYED = keyed(timedelta(hours=24))
PAY = Say(calls=(ToolCall(name="pay", arguments={"order": "7"}),))
THREE = Say(calls=tuple(ToolCall(name="pay", arguments={"order": order}) for order in "123"))


def agent_of(models: ModelServer, paid: list[str], fails: bool = False, **options: Any) -> Agent:
    said = {"pay": opaque() if fails else KEYED}
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{models.url}/v1", api_key="k"))
    agent = Agent(model, name="bank", capabilities=[SurefootDurability(tools=said, **options)])

    @agent.tool_plain(requires_approval="approvals" in options)
    async def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        if fails:
            raise TimeoutError("no answer")
        return f"paid {order}"

    return agent


def checkout_of(agent: Agent) -> Any:
    @workflow(name="checkout")
    async def checkout() -> str:
        async with scope("bank"):
            return (await agent.run("pay order 7")).output

    return checkout


@pytest.mark.feature("approval")
async def test_a_tool_that_needs_approval_waits_in_the_inbox_and_runs_once(tmp_path: Path) -> None:
    paid: list[str] = []
    asks = Asks(by="finance", within=timedelta(days=1))
    with ModelServer(replies(THREE, "done"), strict=True) as models:
        agent = agent_of(models, paid, approvals=asks)
        checkout = checkout_of(agent)
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            running = sf.start(checkout, id="order-7")
            waiting: list[Any] = []
            while len(waiting) < 3:
                await asyncio.sleep(0.02)
                waiting = sf.approvals()
            assert paid == []
            assert sorted(view.text for view in waiting)[0].startswith('{"arguments":{"order":"1"}')
            for view in waiting[:2]:
                sf.approve(view.id, who="mary", digest=view.digest)
            sf.deny(waiting[2].id, who="mary", why="too much")
            assert await running == "done"
            denied = next(order for order in "123" if f'"order":"{order}"' in waiting[2].text)
            assert sorted(paid) == sorted(set("123") - {denied})
        assert len(models.paid()) == 2


async def test_a_tool_in_doubt_stops_the_run_and_no_further_model_call_is_made(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        checkout = checkout_of(agent_of(models, paid, fails=True))
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            for _ in range(2):
                with pytest.raises(RunWaiting, match="in doubt"):
                    await sf.run(checkout, id="order-7")
            assert (paid, len(models.paid())) == (["7"], 1)
            assert sf.get("order-7").status == "waiting"


async def test_parallel_tools_beside_one_in_doubt_finish_before_the_run_stops(tmp_path: Path) -> None:
    done: list[str] = []
    both = Say(calls=(ToolCall(name="lose", arguments={}), ToolCall(name="slow", arguments={})))
    with ModelServer(replies(both, "done"), strict=True) as models:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{models.url}/v1", api_key="k"))
        agent = Agent(model, name="bank", capabilities=[SurefootDurability(tools={"slow": opaque(), "lose": opaque()})])
        began = asyncio.Event()

        @agent.tool_plain
        async def lose() -> str:
            await began.wait()
            raise TimeoutError("no answer")

        @agent.tool_plain
        async def slow() -> str:
            began.set()
            await asyncio.sleep(0.2)
            done.append("slow")
            return "ok"

        async with Surefoot(str(tmp_path / "a.db")) as sf:
            with pytest.raises(RunWaiting, match="'lose' is in doubt"):
                await sf.run(checkout_of(agent), id="order-7")
            entries = sf.engine.store.read_run("order-7")[1]
            settled = [entry.slot.rpartition("/")[2] for entry in entries if entry.kind == 4]
        assert (done, settled) == (["slow"], ["slow"])


async def test_the_model_sees_neither_the_attempt_nor_the_key(tmp_path: Path) -> None:
    @tool(KEYED)
    def pay(attempt: Any, order: str, cents: int = 5) -> str:
        """Pay an order."""
        return attempt.key

    with ModelServer(replies("hello"), strict=True) as models:
        model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{models.url}/v1", api_key="k"))
        await Agent(model, name="bank", tools=[pay], capabilities=[SurefootDurability()]).run("hello")
        (ask,) = models.asks
    function = ask.body["tools"][0]["function"]
    assert function["description"] == "Pay an order."
    assert set(function["parameters"]["properties"]) == {"order", "cents"}


async def test_outside_a_run_the_agent_is_a_plain_one() -> None:
    paid: list[str] = []
    with ModelServer(replies("hello"), strict=True) as models:
        assert (await agent_of(models, paid).run("hello")).output == "hello"
