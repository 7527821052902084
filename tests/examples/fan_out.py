"""Side by side: each branch keeps its own place in the journal, so finishing order never matters."""

import asyncio

import surefoot
from surefoot import Surefoot, step, workflow


@step
async def research(topic: str) -> str:
    await asyncio.sleep(0.01 * len(topic))
    return f"notes on {topic}"


@step
async def summarise(notes: str) -> str:
    return f"summary of {notes}"


async def chapter(topic: str) -> str:
    return await summarise(await research(topic))


@workflow
async def report(topics: list[str]) -> list[str]:
    first, second = await asyncio.gather(chapter(topics[0]), chapter(topics[1]))
    return [first, second, *await surefoot.map(chapter, topics[2:], limit=2)]


async def main() -> None:
    async with Surefoot("agents.db") as sf:
        for line in await sf.run(report, ["tides", "ice", "wind", "rain"], id="report-1"):
            print(line)


asyncio.run(main())
