"""The same graph in a Surefoot run: its model calls are in the run's journal."""

from __future__ import annotations

import asyncio
import os

import agent_published
import openai

import surefoot.http
from surefoot import Surefoot, workflow


@workflow
async def fifteen() -> str:
    """The published program, as it is."""
    async with surefoot.http.scope("graph"):
        await agent_published.main()
    return "done"


async def main() -> None:
    """Resume, or run."""
    agent_published.client = openai.AsyncOpenAI(
        base_url=os.environ["MODEL_URL"],
        api_key="any",
        max_retries=0,
        http_client=surefoot.http.async_client(endpoints=[os.environ["MODEL_URL"]]),
    )
    async with Surefoot(os.path.join(os.environ["STATE"], "agents.db")) as sf:
        await sf.run(fifteen, id="one")


if __name__ == "__main__":
    asyncio.run(main())
