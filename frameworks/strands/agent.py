"""An agent of Strands, over its OpenAI model."""

from __future__ import annotations

import asyncio
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
    from datetime import timedelta

    import surefoot.http
    from surefoot import Surefoot, keyed, lookup, opaque, workflow
    from surefoot.integrations.policy import Policy
    from surefoot.integrations.strands import protect, run
    from surefoot.integrations.tool import attempt

    async def find(_: object, op: str) -> str | None:
        return job.find(op)

    how, models = job.options["how"], job.options.get("models", "http")
    if models == "http":
        surefoot.http.install()
    says: Any = {
        "keyed": keyed(timedelta(hours=24)),
        "lookup": Policy(contract=lookup(lag=0.2), lookup=find, timeout=2.0),
        "opaque": opaque(),
    }[how]

    def press(op: str) -> str:
        return job.press(op, attempt().key if how == "keyed" else "")

    @workflow
    async def checkout() -> str:
        agent = protect(made(job, press), tools={"shop": says}, models=models)
        return str(await run(agent, PROMPT)).strip()

    async def main() -> str:
        async with Surefoot(job.db) as sf:
            return await sf.run(checkout, id=job.run)

    return asyncio.run(main())


def run(job: Job) -> str:
    return surefoot(job) if "how" in job.options else published(job)
