"""Two lives of one run, in the environment of a framework: the first ends as a crash would end it."""

from __future__ import annotations

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
