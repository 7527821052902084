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
    from frameworks.ours import declared, run_once_async
    from surefoot.http import scope
    from surefoot.integrations.google_adk import SurefootPlugin

    models = job.options.get("models", "http")
    says, press = declared(job)

    async def agent(prompt: str) -> str:
        with scope("checkout"):
            return await answer(made(job, press, [SurefootPlugin(tools={"shop": says}, models=models)]))

    return run_once_async(job, agent, install=models == "http")


def run(job: Job) -> str:
    return surefoot(job) if "how" in job.options else published(job)
