"""LangChain's `create_agent`, which is a LangGraph graph, with one tool."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver

from frameworks.kit import PROMPT, Job


def model_of(job: Job) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-scripted", base_url=job.openai_url, api_key="any", max_retries=0, timeout=60)


def published(job: Job) -> str:
    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    durability = job.options.get("durability")
    new: Any = {"messages": [("user", PROMPT)]}
    if durability is None:
        return create_agent(model_of(job), [shop]).invoke(new)["messages"][-1].content
    with ExitStack() as stack:
        saver = stack.enter_context(SqliteSaver.from_conn_string(f"{job.folder}/checkpoints.db"))
        agent = create_agent(model_of(job), [shop], checkpointer=saver)
        config: Any = {"configurable": {"thread_id": job.run}}
        resumed = bool(agent.get_state(config).next)
        answer = agent.invoke(None if resumed else new, config, durability=durability)
    return answer["messages"][-1].content


def run(job: Job) -> str:
    return published(job)
