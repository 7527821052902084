"""Ctrl-C while a framework's task is inside a gated tool: the process ends, and the effect is in doubt on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from surefoot import RunWaiting, Surefoot, step, workflow
from surefoot.core.effect import Status
from surefoot.core.errors import Halt
from surefoot.http import scope
from tests.integrations import interrupted_agent

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 40
"""Far more than it takes: what is tested is that it ends at all."""


def started(db: Path, *how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integrations.interrupted_agent", str(db), *how]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "in flight\n"
    return process


def ended(process: subprocess.Popen[str]) -> int:
    try:
        process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode


@pytest.mark.parametrize("how", ["raised", "signal", "from outside"])
def test_an_interrupted_agent_ends_and_its_tool_is_in_doubt(tmp_path: Path, how: str) -> None:
    db = tmp_path / "agents.db"
    process = started(db, "opaque", how)
    if how == "from outside":
        os.killpg(process.pid, signal.SIGINT)
    assert ended(process) == -signal.SIGINT
    with Surefoot(db) as sf:
        (effect,) = sf.store.find_effects()
        assert effect.status is Status.IN_DOUBT

    async def again() -> None:
        async with Surefoot(db) as sf:
            await sf.run(interrupted_agent.agent, "opaque", how, id="r")

    with pytest.raises(RunWaiting, match="in doubt"):
        asyncio.run(again())


def test_a_run_that_ends_while_a_tool_is_in_flight_waits_for_a_person(tmp_path: Path) -> None:
    process = started(tmp_path / "agents.db", "opaque", "left")
    assert ended(process) == 1
    with Surefoot(tmp_path / "agents.db") as sf:
        assert [effect.status for effect in sf.store.find_effects()] == [Status.PARKED]


def test_a_task_that_outlives_its_surefoot_is_told_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A framework's background task: its step has run, and there is nobody left to record it."""
    go, left = threading.Event(), list[asyncio.Task[str]]()

    @step
    async def late() -> str:
        await asyncio.to_thread(go.wait, SECONDS_MAX)
        return "late"

    @workflow
    async def agent() -> None:
        with scope("agent"):
            left.append(asyncio.create_task(late()))
            await asyncio.sleep(0)

    async def main() -> None:
        async with Surefoot(tmp_path / "agents.db") as sf:
            await sf.run(agent, id="r")
        go.set()
        done, _ = await asyncio.wait(left, timeout=SECONDS_MAX)
        assert done, "it waits for ever"
        with pytest.raises(Halt, match="its Surefoot is closed"):
            left[0].result()

    loop = asyncio.new_event_loop()  # asyncio.run would wait for the task as well
    loop.run_until_complete(main())
    loop.close()
