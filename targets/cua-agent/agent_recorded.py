"""The same program as a run: its computer is durable, and its model calls are recorded where they leave the process."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from machine import ORDER, checkout, post

import surefoot.http
from surefoot import Surefoot, keyed, workflow
from surefoot.integrations.cua import durable
from surefoot.integrations.tool import attempt

surefoot.http.install()


async def press(operation: str) -> None:
    """Press one button; inside a click, which is an effect."""
    post(operation, attempt().headers)


@workflow
async def buy(order: str) -> str:
    """The whole agent, as one run."""
    with surefoot.http.scope("agent"):
        return await checkout(press, lambda computer: durable(computer, rules={"click": keyed(timedelta(hours=24))}))


async def main() -> None:
    """One life."""
    async with Surefoot(os.path.join(os.environ["STATE"], "agents.db")) as sf:
        print(await sf.run(buy, ORDER, id=f"order-{ORDER}"))


if __name__ == "__main__":
    asyncio.run(main())
