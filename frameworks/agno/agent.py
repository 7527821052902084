"""An Agno agent with one tool."""

from __future__ import annotations

from collections.abc import Callable

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from frameworks.kit import PROMPT, Job


def ask(job: Job, shop: Callable[..., str], prompt: str) -> str:
    model = OpenAIChat(id="gpt-scripted", base_url=job.openai_url, api_key="any", max_retries=0)
    return str(Agent(model=model, tools=[shop], telemetry=False).run(prompt).content)


def published(job: Job) -> str:
    def shop(op: str) -> str:
        """Do one irreversible checkout operation.

        Args:
            op: reserve, charge or confirm
        """
        return job.press(op)

    return ask(job, shop, PROMPT)


def run(job: Job) -> str:
    if "surefoot" not in job.arm:
        return published(job)
    from frameworks.ours import run_once, shop_tool

    return run_once(job, lambda prompt: ask(job, shop_tool(job), prompt))
