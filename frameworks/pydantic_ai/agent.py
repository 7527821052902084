"""A Pydantic AI agent with one tool."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from frameworks.kit import PROMPT, Job
from surefoot import Surefoot, keyed, lookup, workflow
from surefoot.integrations.policy import Policy
from surefoot.integrations.pydantic_ai import SurefootDurability
from surefoot.integrations.tool import attempt, scope, tool


def model_of(job: Job) -> OpenAIChatModel:
    return OpenAIChatModel("gpt-scripted", provider=OpenAIProvider(base_url=job.openai_url, api_key="any"))


def published(job: Job) -> str:
    agent = Agent(model_of(job), name="checkout")

    @agent.tool_plain
    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    return asyncio.run(agent.run(PROMPT)).output


def policy_of(job: Job) -> Any:
    if job.options.get("lookup"):

        async def find(attempt: Any, op: str) -> Any:
            return job.find(op)

        return Policy(contract=lookup(lag=timedelta(milliseconds=100)), lookup=find, timeout=2)
    return keyed(timedelta(hours=24))


def protected(job: Job) -> Agent:
    agent = Agent(
        model_of(job),
        name="checkout",
        capabilities=[SurefootDurability(tools={"shop": policy_of(job), "clock": "read"})],
    )

    @agent.tool_plain
    def clock() -> str:
        """Tell the time."""
        return f"the time is {datetime.now(UTC).isoformat()}"

    if job.options.get("decorated"):

        @agent.tool_plain
        @tool(keyed(timedelta(hours=24)))
        def shop(attempt: Any, op: str) -> str:
            """Do one irreversible checkout operation."""
            return job.press(op, attempt.key)

    elif job.options.get("threads"):

        @agent.tool_plain(name="shop")
        def shop_in_thread(op: str) -> str:
            """Do one irreversible checkout operation."""
            return job.press(op, attempt().key)

    else:

        @agent.tool_plain(name="shop")
        async def shop_async(op: str) -> str:
            """Do one irreversible checkout operation."""
            return await asyncio.to_thread(job.press, op, "" if job.options.get("lookup") else attempt().key)

    return agent


async def main(job: Job) -> str:
    agent = protected(job)

    @workflow(name="checkout")
    async def checkout() -> str:
        async def seen(context: Any, events: Any) -> None:
            async for _ in events:
                pass

        async with scope("checkout"):
            return (await agent.run(PROMPT, event_stream_handler=seen if job.options.get("stream") else None)).output

    async with Surefoot(job.db) as sf:
        return await sf.run(checkout, id=job.run)


def run(job: Job) -> str:
    return published(job) if job.arm == "as published" else asyncio.run(main(job))
