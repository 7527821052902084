"""What the adapter promises besides surviving kills: approvals, doubt that stops, a schema without the key."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

import surefoot.http
from surefoot import Diverged, Refused, RunWaiting, Surefoot, UsageError, keyed, opaque, tool, workflow
from surefoot.integrations.langchain import SurefootMiddleware, gated
from surefoot.integrations.langgraph import run, run_async
from surefoot.integrations.tool import Asks, scope
from surefoot.testing.models import ModelServer, Say, ToolCall, replies

KEYED = keyed(timedelta(hours=24))
ASKS = Asks(by="finance", within=timedelta(days=1))
PAY = Say(calls=(ToolCall(name="pay", arguments={"order": "7"}),))
TWO = Say(calls=tuple(ToolCall(name="pay", arguments={"order": order}) for order in "12"))
NEW: Any = {"messages": [("user", "pay order 7")]}


@pytest.fixture(autouse=True)
def _recording() -> Any:
    surefoot.http.install()


def agent_of(
    models: ModelServer, paid: list[str], *middleware: Any, fails: Any = None, said: Any = KEYED, **how: Any
) -> Any:
    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        if fails is not None:
            raise fails
        return f"paid {order}"

    model = ChatOpenAI(model="m", base_url=f"{models.url}/v1", api_key="k", max_retries=0)
    return create_agent(model, [pay], middleware=[SurefootMiddleware(tools={"pay": said}), *middleware], **how)


def checkout_of(agent: Any) -> Any:
    @workflow(name="checkout")
    def checkout() -> str:
        with scope("bank"):
            return agent.invoke(NEW)["messages"][-1].content

    return checkout


async def decided(sf: Surefoot, running: Any, count: int, deny: int = 0) -> tuple[Any, str]:
    """Wait for that many approvals, deny some, approve the others; (the result, what was denied)."""
    waiting: list[Any] = []
    while len(waiting) < count:
        await asyncio.sleep(0.02)
        waiting = sf.approvals()
    for number, view in enumerate(waiting):
        if number < deny:
            sf.deny(view.id, who="mary", why="too much")
        else:
            sf.approve(view.id, who="mary", digest=view.digest)
    result = await (running if running.thread is None else asyncio.to_thread(running.result))
    return result, "".join(view.text for view in waiting[:deny])


@pytest.mark.asyncio
@pytest.mark.feature("approval")
async def test_the_approval_middleware_asks_in_the_inbox_and_a_rejected_tool_does_not_run(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(TWO, "done"), strict=True) as models:
        pausing = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
        agent = agent_of(models, paid, pausing, checkpointer=InMemorySaver())

        @workflow(name="checkout")
        async def checkout() -> str:
            async with scope("bank"):
                config = {"configurable": {"thread_id": "t"}}
                return (await run_async(agent, NEW, config, approvals=ASKS))["messages"][-1].content

        async with Surefoot(str(tmp_path / "a.db")) as sf:
            result, denied = await decided(sf, sf.start(checkout, id="order-7"), 2, deny=1)
        assert result == "done"
        assert len(paid) == 1
        assert f'"order":"{paid[0]}"' not in denied
        assert len(models.paid()) == 2


@pytest.mark.asyncio
@pytest.mark.feature("approval")
async def test_an_interrupt_of_a_node_is_answered_from_the_inbox(tmp_path: Path) -> None:
    class State(TypedDict, total=False):
        answer: str

    def work(state: State) -> State:
        return {"answer": "sent" if interrupt({"letter": "Dear all"}) else "kept"}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)

    compiled = graph.compile(checkpointer=InMemorySaver())

    @workflow(name="letter")
    def letter() -> str:
        with scope("letters"):
            return run(compiled, {}, {"configurable": {"thread_id": "t"}}, approvals=ASKS)["answer"]

    async with Surefoot(str(tmp_path / "a.db")) as sf:
        result, _ = await decided(sf, sf.start(letter, id="letter-1"), 1)
        assert result == "sent"
        result, denied = await decided(sf, sf.start(letter, id="letter-2"), 1, deny=1)
        assert (result, "Dear all" in denied) == ("kept", True)


def test_a_tool_in_doubt_stops_the_run_and_is_no_message_to_the_model(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        checkout = checkout_of(agent_of(models, paid, fails=TimeoutError("no answer"), said=opaque()))
        with Surefoot(str(tmp_path / "a.db")) as sf:
            for _ in range(2):
                with pytest.raises(RunWaiting, match="in doubt"):
                    sf.run(checkout, id="order-7")
            assert sf.get("order-7").status == "waiting"
    assert (paid, len(models.paid())) == (["7"], 1)


def test_a_refusal_goes_the_way_that_errors_of_tools_go(tmp_path: Path) -> None:
    paid: list[str] = []
    with ModelServer(replies(PAY, "done"), strict=True) as models:
        checkout = checkout_of(agent_of(models, paid, fails=Refused("card declined")))
        with Surefoot(str(tmp_path / "a.db")) as sf, pytest.raises(Refused, match="card declined"):
            sf.run(checkout, id="order-7")
    assert paid == ["7"]


def test_messages_and_artifacts_come_back_from_the_record(tmp_path: Path) -> None:
    made: list[str] = []

    def find(order: str) -> tuple[str, dict[str, str]]:
        made.append(order)
        return f"found {order}", {"order": order}

    def note(order: str) -> ToolMessage:
        made.append(order)
        return ToolMessage("noted", tool_call_id="call_2")

    finder = gated(
        StructuredTool.from_function(find, description="Find.", response_format="content_and_artifact"), "read"
    )
    noter = gated(StructuredTool.from_function(note, description="Note."), KEYED)
    calls = [(finder, "find", "call_1"), (noter, "note", "call_2")]
    seen: list[list[Any]] = []

    @workflow(name="look")
    def look() -> None:
        answers = [t.invoke({"type": "tool_call", "name": n, "args": {"order": "7"}, "id": i}) for t, n, i in calls]
        seen.append([(a.content, a.artifact, a.tool_call_id) for a in answers])
        if len(seen) == 1:
            raise KeyboardInterrupt

    with Surefoot(str(tmp_path / "a.db")) as sf:
        with pytest.raises(KeyboardInterrupt):
            sf.run(look, id="look")
        sf.run(look, id="look")
    assert seen[0] == seen[1] == [("found 7", {"order": "7"}, "call_1"), ("noted", None, "call_2")]
    assert made == ["7", "7"]


def test_a_model_call_that_nobody_records_ends_the_run(tmp_path: Path) -> None:
    agent = create_agent(
        GenericFakeChatModel(messages=iter([AIMessage("hello")])), [], middleware=[SurefootMiddleware()]
    )
    with Surefoot(str(tmp_path / "a.db")) as sf, pytest.raises(UsageError, match="nothing recorded it"):
        sf.run(checkout_of(agent), id="order-7")


def test_a_graph_that_goes_on_from_its_own_checkpoint_stops_as_diverged_before_it_asks_anew(tmp_path: Path) -> None:
    """Its first life recorded two model calls. What they asked for is done, each once; nothing else is asked."""
    paid: list[str] = []
    config: Any = {"configurable": {"thread_id": "t"}}
    with ModelServer(replies(PAY, PAY, "done"), strict=True) as models, ExitStack() as stack:
        saver = stack.enter_context(SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")))
        lives: list[str] = []

        class Dies(AgentMiddleware):
            def wrap_tool_call(self, request: Any, handler: Any) -> Any:
                lives.append("tool")
                if len(lives) == 2:
                    raise KeyboardInterrupt
                return handler(request)

        agent = agent_of(models, paid, Dies(), checkpointer=saver)

        @workflow(name="checkout")
        def checkout() -> str:
            with scope("bank"):
                resumed = bool(agent.get_state(config).next)
                return agent.invoke(None if resumed else NEW, config, durability="sync")["messages"][-1].content

        with Surefoot(str(tmp_path / "a.db")) as sf:
            with pytest.raises(KeyboardInterrupt):
                sf.run(checkout, id="order-7")
            with pytest.raises(Diverged):
                sf.run(checkout, id="order-7")
            with pytest.raises(UsageError, match="has a checkpoint before"):
                run(agent, NEW, config, approvals=ASKS)
    assert (paid, len(models.paid())) == (["7", "7"], 2)


def test_the_model_sees_neither_the_attempt_nor_the_key() -> None:
    @tool(KEYED)
    def pay(attempt: Any, order: str, cents: int = 5) -> str:
        """Pay an order."""
        return attempt.key

    made = langchain_tool(pay)
    assert set(made.args) == {"order", "cents"}
    assert "attempt" not in json.dumps(made.tool_call_schema.model_json_schema())
    assert set(gated(made).args) == {"order", "cents"}


def test_a_plain_function_is_gated_as_the_tool_that_a_node_makes_of_it(tmp_path: Path) -> None:
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return f"paid {order}"

    node = gated(pay, KEYED)
    assert (node.name, set(node.args)) == ("pay", {"order"})
    for _ in range(2):
        with Surefoot(tmp_path / "agents.db") as sf:
            assert sf.run(workflow(name="agent")(lambda: str(node.invoke({"order": "7"}))), id="r") == "paid 7"
    assert paid == ["7"]


def test_outside_a_run_the_agent_needs_an_identity_for_what_acts() -> None:
    paid: list[str] = []
    with ModelServer(replies("hello"), strict=True) as models:
        assert agent_of(models, paid).invoke(NEW)["messages"][-1].content == "hello"
