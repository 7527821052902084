"""A Strands agent with one tool, over OpenAI; it always streams."""

from __future__ import annotations

from typing import Any

from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

from frameworks.kit import PROMPT, Job


def model_of(job: Job) -> OpenAIModel:
    arguments: Any = {"api_key": "any", "base_url": job.openai_url, "max_retries": 0}
    return OpenAIModel(client_args=arguments, model_id="gpt-scripted")


def published(job: Job) -> str:
    @tool
    def shop(op: str) -> str:
        """Do one irreversible checkout operation.

        Args:
            op: reserve, charge or confirm
        """
        return job.press(op)

    session = FileSessionManager(session_id=job.run, storage_dir=job.folder) if job.options.get("session") else None
    agent = Agent(model=model_of(job), tools=[shop], session_manager=session, callback_handler=None)
    return str(agent(PROMPT))


def run(job: Job) -> str:
    return published(job)
