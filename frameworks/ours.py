"""The part with Surefoot that agents share: model calls at HTTP, one tool under a contract, one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import surefoot.http
from surefoot import Surefoot, keyed, lookup, opaque, tool, workflow
from surefoot.integrations.policy import Policy
from surefoot.integrations.tool import attempt

from .kit import PROMPT, Job


def shop_tool(job: Job, **options: Any) -> Callable[..., str]:
    """The tool: with a key that the shop honours, or with none and a shop that can be asked (`lookup`) or not."""
    if job.options.get("lookup"):

        @tool(lookup(lag=timedelta(milliseconds=50)), lookup=lambda attempt, op: job.find(op), timeout=1.0, **options)
        def shop(op: str) -> str:
            """Do one irreversible checkout operation.

            Args:
                op: reserve, charge or confirm
            """
            return job.press(op)

    elif job.options.get("opaque"):

        @tool(opaque(), **options)
        def shop(op: str) -> str:
            """Do one irreversible checkout operation.

            Args:
                op: reserve, charge or confirm
            """
            return job.press(op)

    else:

        @tool(keyed(window=timedelta(hours=24)), **options)
        def shop(op: str) -> str:
            """Do one irreversible checkout operation.

            Args:
                op: reserve, charge or confirm
            """
            return job.press(op, attempt().key)

    return shop


def shop_tool_async(job: Job, **options: Any) -> Callable[..., Awaitable[str]]:
    """The same tool as a coroutine, keyed or opaque."""
    is_opaque = bool(job.options.get("opaque"))

    @tool(opaque() if is_opaque else keyed(window=timedelta(hours=24)), **options)
    async def shop(op: str) -> str:
        """Do one irreversible checkout operation."""
        return await asyncio.to_thread(job.press, op, "" if is_opaque else attempt().key)

    return shop


def declared(job: Job) -> tuple[Any, Callable[[str], str]]:
    """What an adapter is told of a tool that Surefoot did not make (`options.how`), and the body of that tool."""
    how = job.options["how"]

    async def find(_: object, op: str) -> str | None:
        return job.find(op)

    def press(op: str) -> str:
        return job.press(op, attempt().key if how == "keyed" else "")

    says = {
        "keyed": keyed(timedelta(hours=24)),
        "lookup": Policy(contract=lookup(lag=0.2), lookup=find, timeout=2.0),
        "opaque": opaque(),
    }[how]
    return says, press


def side_by_side(job: Job) -> dict[str, Callable[..., Awaitable[str]]]:
    """The tool for calls that run at once, and a clock, which never says the same twice."""

    @tool(keyed(timedelta(hours=24)), name="shop")
    async def shop(attempt: Any, op: str) -> str:
        return await asyncio.to_thread(job.press, op, attempt.key)

    @tool(read_only=True, name="clock")
    async def clock() -> str:
        return f"the time is {datetime.now(UTC).isoformat()}"

    return {"shop": shop, "clock": clock}


def run_once(job: Job, agent: Callable[[str], str]) -> str:
    """The whole agent, as one run."""
    surefoot.http.install()
    checkout = workflow(name="checkout")(agent)
    with Surefoot(job.db) as sf:
        return sf.run(checkout, PROMPT, id=job.run)


def run_once_async(job: Job, agent: Callable[[str], Awaitable[str]], *, install: bool = True) -> str:
    """The same for an agent that is a coroutine; without `install` its model calls are recorded elsewhere."""
    if install:
        surefoot.http.install()

    @workflow(name="checkout")
    async def checkout(prompt: str) -> str:
        return await agent(prompt)

    async def once() -> str:
        async with Surefoot(job.db) as sf:
            return await sf.run(checkout, PROMPT, id=job.run)

    return asyncio.run(once())
