"""An agent of the OpenAI Agents SDK, over its default Responses model."""

from __future__ import annotations

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, SQLiteSession, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from frameworks.kit import PROMPT, Job

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


def run(job: Job) -> str:
    return published(job)
