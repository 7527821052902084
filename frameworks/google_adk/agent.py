"""An agent of Google ADK, over Gemini."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.genai import types

from frameworks.kit import PROMPT, Job


def made(job: Job, press: Any, plugins: list[Any]) -> InMemoryRunner:
    os.environ.update(GOOGLE_GEMINI_BASE_URL=job.models, GOOGLE_API_KEY="any", GOOGLE_GENAI_USE_VERTEXAI="0")

    def shop(op: str) -> str:
        """Do one irreversible checkout operation: reserve, charge or confirm."""
        return press(op)

    agent = LlmAgent(name="checkout", model="gemini-scripted", instruction="Do the checkout.", tools=[shop])
    return InMemoryRunner(app=App(name="checkout", root_agent=agent, plugins=plugins))


async def answer(runner: InMemoryRunner) -> str:
    session = await runner.session_service.create_session(app_name="checkout", user_id="u")
    said = ""
    message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        if event.is_final_response() and event.content and event.content.parts:
            said = event.content.parts[0].text or said
    return said


def published(job: Job) -> str:
    return asyncio.run(answer(made(job, job.press, [])))


def surefoot(job: Job) -> str:
    from datetime import timedelta

    import surefoot.http
    from surefoot import Surefoot, keyed, lookup, opaque, workflow
    from surefoot.integrations.google_adk import SurefootPlugin
    from surefoot.integrations.policy import Policy
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
        with surefoot.http.scope("checkout"):
            return await answer(made(job, press, [SurefootPlugin(tools={"shop": says}, models=models)]))

    async def main() -> str:
        async with Surefoot(job.db) as sf:
            return await sf.run(checkout, id=job.run)

    return asyncio.run(main())


def run(job: Job) -> str:
    return surefoot(job) if "how" in job.options else published(job)
