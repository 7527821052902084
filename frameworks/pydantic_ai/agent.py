"""A Pydantic AI agent with one tool."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from frameworks.kit import PROMPT, Job


def published(job: Job) -> str:
    model = OpenAIChatModel("gpt-scripted", provider=OpenAIProvider(base_url=job.openai_url, api_key="any"))
    agent = Agent(model, name="checkout")

    @agent.tool_plain
    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    return asyncio.run(agent.run(PROMPT)).output


def run(job: Job) -> str:
    return published(job)
