"""browser-use at its two seams, its model class and its registry of actions, in a loop as its Agent runs them.

No browser is started: what a page looks like is no part of what is proved here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from browser_use.agent.views import AgentOutput
from browser_use.filesystem.file_system import FileSystem
from browser_use.llm.messages import AssistantMessage, UserMessage
from browser_use.llm.openai.chat import ChatOpenAI
from browser_use.tools.service import Tools

from frameworks.kit import PROMPT, Job


async def ask(job: Job, shop: Callable[..., Awaitable[str]], prompt: str) -> str:
    tools: Any = Tools()
    tools.action("Do one irreversible checkout operation: reserve, charge or confirm")(shop)
    shape = AgentOutput.type_with_custom_actions(tools.registry.create_action_model())
    model = ChatOpenAI(model="gpt-scripted", base_url=job.openai_url, api_key="any", max_retries=0)
    files = FileSystem(job.folder)
    messages: list[Any] = [UserMessage(content=prompt)]
    for _ in range(8):
        output: Any = (await model.ainvoke(messages, shape)).completion
        messages.append(AssistantMessage(content=output.model_dump_json(exclude_unset=True)))
        for action in output.action:
            result = await tools.act(action, browser_session=None, file_system=files)
            if result.is_done:
                return str(result.extracted_content)
            messages.append(UserMessage(content=result.extracted_content or result.error or ""))
    return "gave up"


def published(job: Job) -> str:
    async def shop(op: str) -> str:
        return await asyncio.to_thread(job.press, op)

    return asyncio.run(ask(job, shop, PROMPT))


def run(job: Job) -> str:
    return durable(job) if "surefoot" in job.arm else published(job)


def durable(job: Job) -> str:
    from frameworks.ours import run_once_async, shop_tool_async
    from surefoot.http import scope

    shop = shop_tool_async(job)

    async def agent(prompt: str) -> str:
        async with scope("agent"):
            return await ask(job, shop, prompt)

    return run_once_async(job, agent)
