"""The agent that is really killed: three calls of an MCP tool, each behind a step that decides on it.

It kills itself where the file `die_at` says so: "end charge" (it has the reply) or "returned charge" (and has recorded
it). Of mcp 1.x and 2.x.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from surefoot import RunWaiting, Surefoot, step, workflow
from surefoot.core.contract import lookup, opaque
from surefoot.integrations.mcp import Rule, durable

Client: Any
try:
    from mcp.client.client import Client
except ImportError:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    Client = None

NAMES = ("reserve", "charge", "confirm")
RULES = {"lookup": Rule(contract=lookup(lag=0.2), ask="find"), "opaque": opaque()}
AT: dict[str, Any] = {}
"""Where this life is: `folder`, `url`, `tool`, the durable client `shop`."""


def die_at(where: str) -> None:
    """Once."""
    order = AT["folder"] / "die_at"
    if order.exists() and order.read_text() == where:
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def connected() -> AsyncIterator[Any]:
    """A client of mcp 2.x, or a session of 1.x."""
    if Client is None:
        streams = streamablehttp_client(AT["url"])
        async with streams as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            yield session
    else:
        async with Client(AT["url"]) as client:
            yield client


def watch_ends(client: Any) -> None:
    """Dies when the reply is here and nothing of it is recorded."""
    session = getattr(client, "session", client)
    original = session.call_tool

    @functools.wraps(original)
    async def call_tool(name: str, arguments: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = await original(name, arguments, *args, **kwargs)
        if name == AT["tool"]:
            die_at(f"end {(arguments or {}).get('name')}")
        return result

    session.call_tool = call_tool


@step
def think(about: str) -> int:
    """A model that decides differently each time it is asked."""
    return random.randrange(1_000_000)


@workflow
async def order() -> list[str]:
    said: list[str] = []
    for name in NAMES:
        amount = think(name)
        result = await AT["shop"].call_tool(AT["tool"], {"name": name, "amount": amount})
        die_at(f"returned {name}")
        said.append(result.content[0].text)
    return said


@workflow
async def together() -> list[str]:
    """Three at once."""
    calls = [AT["shop"].call_tool(AT["tool"], {"name": name, "amount": think(name)}) for name in NAMES]
    results = await asyncio.gather(*calls)
    return [result.content[0].text for result in results]


@workflow
async def close() -> str:
    """A tool that asks a person."""
    result = await AT["shop"].call_tool("close", {"name": "charge", "amount": 0})
    return result.content[0].text


def live(say: Callable[[str], object], folder: str, url: str, tool: str, run: str, trusted: bool) -> None:
    """One life of the agent."""
    AT.update(folder=Path(folder), url=url, tool=tool)
    (AT["folder"] / "agent.pid").write_text(str(os.getpid()))
    asyncio.run(_live(say, {"order": order, "together": together, "close": close}[run], trusted))


async def _live(say: Callable[[str], object], run: Any, trusted: bool) -> None:
    async with connected() as client:
        watch_ends(client)
        AT["shop"] = durable(client, server="shop", trusted=trusted, rules=RULES, timeout=1.0)
        async with Surefoot(AT["folder"] / "agents.db") as surefoot:
            try:
                say(f"result {await surefoot.run(run, id='order-1')}")
            except RunWaiting as waiting:
                say(f"waiting {' '.join(str(waiting).split())}")
