"""An agent of the OpenAI Agents SDK, over its default Responses model."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import surefoot.http
from frameworks.kit import PROMPT, Job
from surefoot import Surefoot, keyed, lookup, tool, workflow
from surefoot.integrations.openai_agents import SurefootProvider, protected
from surefoot.integrations.openai_agents import run as run_agent
from surefoot.integrations.policy import Policy
from surefoot.integrations.tool import attempt, scope

set_tracing_disabled(True)


def published(job: Job) -> str:
    @function_tool
    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    async def main() -> str:
        model = OpenAIResponsesModel("gpt-scripted", AsyncOpenAI(base_url=job.openai_url, api_key="any", max_retries=0))
        agent = Agent(name="checkout", instructions="Do the checkout.", model=model, tools=[shop])
        session = SQLiteSession(job.run, f"{job.folder}/session.db") if job.options.get("session") else None
        return (await Runner.run(agent, PROMPT, session=session)).final_output

    return asyncio.run(main())


def tools_of(job: Job) -> tuple[list[Any], Any]:
    """The tools, and what a repeat of the shop does."""

    @function_tool
    def clock() -> str:
        """Tell the time."""
        return f"the time is {datetime.now(UTC).isoformat()}"

    if job.options.get("decorated"):

        @function_tool
        @tool(keyed(timedelta(hours=24)))
        def shop(attempt: Any, op: str) -> str:
            """Do one irreversible checkout operation."""
            return job.press(op, attempt.key)

        return [shop, clock], None

    if job.options.get("lookup"):

        @function_tool(name_override="shop")
        def shop_looked_up(op: str) -> str:
            """Do one irreversible checkout operation."""
            return job.press(op)

        async def find(attempt: Any, op: str) -> str | None:
            return job.find(op)

        contract = lookup(lag=timedelta(milliseconds=100))
        return [shop_looked_up, clock], Policy(contract=contract, lookup=find, timeout=2)

    if job.options.get("async"):

        @function_tool(name_override="shop")
        async def shop_async(op: str) -> str:
            """Do one irreversible checkout operation."""
            return await asyncio.to_thread(job.press, op, attempt().key)

        return [shop_async, clock], keyed(timedelta(hours=24))

    @function_tool(name_override="shop")
    def shop_in_thread(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op, attempt().key)

    return [shop_in_thread, clock], keyed(timedelta(hours=24))


async def main(job: Job) -> str:
    tools, said = tools_of(job)
    kind: Any = OpenAIChatCompletionsModel if job.options.get("chat") else OpenAIResponsesModel
    model = kind("gpt-scripted", AsyncOpenAI(base_url=job.openai_url, api_key="any", max_retries=0))
    plain = Agent(name="checkout", instructions="Do the checkout.", model=model, tools=tools)
    agent = protected(plain, tools={"shop": said, "clock": "read"} if said else {"clock": "read"})

    @workflow(name="checkout")
    async def checkout() -> str:
        if not job.options.get("stream"):
            return (await run_agent(agent, PROMPT)).final_output
        async with scope("checkout"):
            result = Runner.run_streamed(agent, PROMPT, run_config=RunConfig(model_provider=SurefootProvider()))
            async for _ in result.stream_events():
                pass
        return result.final_output

    async with Surefoot(job.db) as sf:
        return await sf.run(checkout, id=job.run)


def run(job: Job) -> str:
    if not job.arm.startswith("surefoot"):
        return published(job)
    surefoot.http.install()
    return asyncio.run(main(job))
