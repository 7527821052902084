"""An ADK agent with one tool, over Gemini."""

from __future__ import annotations

import asyncio
import os

from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService, InMemorySessionService
from google.genai import types

from frameworks.kit import PROMPT, Job


def published(job: Job) -> str:
    os.environ.update(GOOGLE_GEMINI_BASE_URL=job.models, GOOGLE_API_KEY="any")

    def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return job.press(op)

    async def main() -> str:
        kept = f"sqlite+aiosqlite:///{job.folder}/adk.db"
        sessions = DatabaseSessionService(kept) if job.options.get("session") else InMemorySessionService()
        agent = LlmAgent(name="checkout", model="gemini-scripted", instruction="Do the checkout.", tools=[shop])
        runner = Runner(agent=agent, app_name="shop", session_service=sessions)
        at = {"app_name": "shop", "user_id": "ann", "session_id": job.run}
        if await sessions.get_session(**at) is None:
            await sessions.create_session(**at)
        message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
        answer = ""
        async for event in runner.run_async(user_id="ann", session_id=job.run, new_message=message):
            for part in (event.content.parts or []) if event.content else []:
                answer = part.text or answer
        return answer

    return asyncio.run(main())


def run(job: Job) -> str:
    return published(job)
