"""Choices that time makes are recorded: who was first, and whether the time was up. A replay makes them again."""

import asyncio

import surefoot
from surefoot import Surefoot, step, workflow

delays = {"small model": 0.01, "large model": 0.2}


@step
async def ask(model: str) -> str:
    await asyncio.sleep(delays[model])
    return f"answer of the {model}"


@workflow
async def answer() -> list[str]:
    _, quick = await surefoot.first(ask("large model"), ask("small model"))
    try:
        async with surefoot.timeout(0.05):
            deep = await ask("large model")
    except TimeoutError:
        deep = "no time to think"
    return [quick, deep]


async def main() -> None:
    async with Surefoot("agents.db") as sf:
        print(await sf.run(answer, id="question-1"))


asyncio.run(main())
