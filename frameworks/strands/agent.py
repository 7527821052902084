"""An agent of Strands, over its OpenAI model."""

from __future__ import annotations

from typing import Any

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from frameworks.kit import PROMPT, Job


def made(job: Job, press: Any) -> Agent:
    @tool
    def shop(op: str) -> str:
        """Do one irreversible checkout operation.

        Args:
            op: reserve, charge or confirm
        """
        return press(op)

    model = OpenAIModel(
        client_args={"base_url": job.openai_url, "api_key": "any", "max_retries": 0}, model_id="gpt-scripted"
    )
    return Agent(name="checkout", model=model, tools=[shop], callback_handler=None)


def published(job: Job) -> str:
    return str(made(job, job.press)("" + PROMPT)).strip()


def surefoot(job: Job) -> str:
    from frameworks.ours import declared, run_once_async
    from surefoot.integrations.strands import protect, run

    models = job.options.get("models", "http")
    says, press = declared(job)

    async def agent(prompt: str) -> str:
        return str(await run(protect(made(job, press), tools={"shop": says}, models=models), prompt)).strip()

    return run_once_async(job, agent, install=models == "http")


def run(job: Job) -> str:
    return surefoot(job) if "how" in job.options else published(job)
