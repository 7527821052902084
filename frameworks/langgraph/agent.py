"""LangChain's `create_agent`, which is a LangGraph graph, with one tool; with Surefoot also inside one node."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain_core.messages import AnyMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import surefoot.http
from frameworks.kit import PROMPT, Job
from surefoot import Surefoot, keyed, lookup, tool, workflow
from surefoot.integrations.langchain import SurefootMiddleware, gated
from surefoot.integrations.policy import Policy
from surefoot.integrations.tool import attempt, scope

NEW: Any = {"messages": [("user", PROMPT)]}


def model_of(job: Job, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-scripted", base_url=job.openai_url, api_key="any", max_retries=0, timeout=60, **options
    )


def published(job: Job) -> str:
    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    durability = job.options.get("durability")
    if durability is None:
        return create_agent(model_of(job), [shop]).invoke(NEW)["messages"][-1].content
    with ExitStack() as stack:
        saver = stack.enter_context(SqliteSaver.from_conn_string(f"{job.folder}/checkpoints.db"))
        agent = create_agent(model_of(job), [shop], checkpointer=saver)
        config: Any = {"configurable": {"thread_id": job.run}}
        resumed = bool(agent.get_state(config).next)
        answer = agent.invoke(None if resumed else NEW, config, durability=durability)
    return answer["messages"][-1].content


def tools_of(job: Job) -> tuple[list[Any], Any]:
    """The tools, and what a repeat of them does."""

    @langchain_tool
    def clock() -> str:
        """Tell the time."""
        return f"the time is {datetime.now(UTC).isoformat()}"

    if job.options.get("decorated"):

        @tool(keyed(timedelta(hours=24)))
        def shop(attempt: Any, op: str) -> str:
            """Do one irreversible checkout operation."""
            return job.press(op, attempt.key)

        return [shop], None

    if job.options.get("async"):

        @langchain_tool("shop")
        async def shop_async(op: str) -> str:
            """Do one irreversible checkout operation."""
            return await asyncio.to_thread(job.press, op, attempt().key)

        return [shop_async, clock], keyed(timedelta(hours=24))

    if job.options.get("lookup"):

        @langchain_tool("shop")
        def shop_looked_up(op: str) -> str:
            """Do one irreversible checkout operation."""
            return job.press(op)

        contract = lookup(lag=timedelta(milliseconds=100))
        return [shop_looked_up], Policy(contract=contract, lookup=lambda attempt, op: job.find(op), timeout=2)

    @langchain_tool("shop")
    def shop_keyed(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op, attempt().key)

    return [shop_keyed, clock], keyed(timedelta(hours=24))


def agent_of(job: Job) -> Any:
    tools, said = tools_of(job)
    middleware = SurefootMiddleware(tools={"shop": said, "clock": "read"} if said else {})
    return create_agent(model_of(job, streaming=bool(job.options.get("stream"))), tools, middleware=[middleware])


class Answer(TypedDict, total=False):
    answer: str


def in_one_node(job: Job) -> Any:
    """A graph in which one node runs a whole agent."""
    agent = agent_of(job)

    def work(state: Answer) -> Answer:
        with scope("work"):
            return {"answer": agent.invoke(NEW)["messages"][-1].content}

    graph = StateGraph(Answer)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph.compile()


def with_tool_node(job: Job) -> Any:
    """A graph by hand: a model's node and a `ToolNode` of gated tools."""
    tools, said = tools_of(job)
    known = [gated(t, said if t.name == "shop" else "read") for t in tools]
    model = model_of(job).bind_tools(known)

    def think(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode(known))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


def plain(job: Job) -> str:
    @workflow(name="checkout")
    def checkout() -> str:
        if job.options.get("node"):
            return in_one_node(job).invoke({})["answer"]
        graph = with_tool_node(job) if job.options.get("tool_node") else agent_of(job)
        with scope("agent"):
            return graph.invoke(NEW)["messages"][-1].content

    with Surefoot(job.db) as sf:
        return sf.run(checkout, id=job.run)


async def asynchronous(job: Job) -> str:
    agent = agent_of(job)

    @workflow(name="checkout")
    async def checkout() -> str:
        async with scope("agent"):
            if not job.options.get("stream"):
                return (await agent.ainvoke(NEW))["messages"][-1].content
            last: Any = None
            async for mode, part in agent.astream(NEW, stream_mode=["messages", "values"]):
                last = part if mode == "values" else last
            return last["messages"][-1].content

    async with Surefoot(job.db) as sf:
        return await sf.run(checkout, id=job.run)


def run(job: Job) -> str:
    if not job.arm.startswith("surefoot"):
        return published(job)
    surefoot.http.install()
    return asyncio.run(asynchronous(job)) if job.options.get("async") else plain(job)
