"""Lives of one run, for the tests in the environment of a framework."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot import Surefoot, workflow


class Crash(BaseException):
    """Ends a run as a crash would."""


def twice(db: Path, ask: Callable[[], Any]) -> list[Any]:
    """What a call gives live, and what it gives on replay."""
    seen: list[Any] = []

    @workflow(name="agent")
    def agent() -> None:
        seen.append(ask())
        if len(seen) == 1:
            raise Crash

    for _ in range(2):
        with Surefoot(db) as sf:
            try:
                sf.run(agent, id="r")
            except Crash:
                pass
    return seen


def to_where_it_waits(db: Path, agent: Any, *arguments: Any, unasked: bool = False) -> Any:
    """One life of an `async def` run: its result, or "waits" where a person is asked (`unasked`: where it waits)."""

    async def life() -> Any:
        async with Surefoot(db) as sf:

            def waits() -> bool:
                return bool((unasked or sf.approvals()) and sf.list("waiting"))

            running = asyncio.ensure_future(sf.run(agent, *arguments, id="r"))
            while not running.done():
                await asyncio.wait({running}, timeout=0.05)
                if await asyncio.to_thread(waits):
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    return "waits"
            return running.result()

    return asyncio.run(life())
