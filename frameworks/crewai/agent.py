"""A crew of one agent with one tool."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("OPENAI_API_KEY", "any")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool as crew_tool

from frameworks.kit import PROMPT, Job


def ask(job: Job, shop: Callable[..., str], prompt: str) -> str:
    held = crew_tool("shop")(shop)
    held.cache_function = lambda *_: False
    llm = LLM(model="openai/gpt-scripted", base_url=job.openai_url, api_key="any", max_retries=0)
    clerk = Agent(
        role="checkout", goal="complete the checkout", backstory="clerk", tools=[held], llm=llm, verbose=False
    )
    task = Task(description=prompt, expected_output="done", agent=clerk)
    return str(Crew(agents=[clerk], tasks=[task], verbose=False).kickoff())


def published(job: Job) -> str:
    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    return ask(job, shop, PROMPT)


def run(job: Job) -> str:
    os.environ["HOME"] = job.folder
    if "surefoot" not in job.arm:
        return published(job)
    from frameworks.ours import run_once, shop_tool

    return run_once(job, lambda prompt: ask(job, shop_tool(job), prompt))
