"""AutoGen's AssistantAgent with one tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from frameworks.kit import PROMPT, Job

INFO = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)


async def ask(job: Job, shop: Callable[..., Any], prompt: str) -> str:
    client = OpenAIChatCompletionClient(
        model="gpt-scripted", base_url=job.openai_url, api_key="any", max_retries=0, model_info=INFO
    )
    agent = AssistantAgent("checkout", model_client=client, tools=[shop], max_tool_iterations=8)
    return str((await agent.run(task=prompt)).messages[-1].content)


def published(job: Job) -> str:
    async def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return await asyncio.to_thread(job.press, op)

    return asyncio.run(ask(job, shop, PROMPT))


def run(job: Job) -> str:
    return published(job) if "surefoot" not in job.arm else durable(job)


def durable(job: Job) -> str:
    from frameworks.ours import run_once_async, shop_tool_async

    # soft: AutoGen waits for ever for a tool that raises a signal; an exception, and no further model call, ends it.
    shop = shop_tool_async(job, soft=True)
    return run_once_async(job, lambda prompt: ask(job, shop, prompt))
