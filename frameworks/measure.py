"""One row: a fresh world, the agent, a real kill, the agent again as a supervisor would start it, and the count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from surefoot.testing.forkserver import ForkServer

from .envs import python_of
from .kit import OPERATIONS, WAITING_EXIT
from .layout import HERE, ROOT, Arm, Framework
from .person import settle
from .proxied import Proxied
from .results import Measured
from .rows import ROWS, USUAL
from .world import World

LIVES_MAX = 4
TIMED_OUT = -signal.SIGTERM
Live = Callable[[World, dict[str, Any], Path], int]
"""One life of the agent in a world: its exit status, negative for a signal."""


def environment(framework: Framework) -> dict[str, str]:
    """What an agent's process sees: the code of this checkout, wherever its environment was made."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "",
        **framework.environment,
    }


def forked(server: ForkServer, seconds: float) -> Live:
    """Lives from a fork server that has imported the agent."""

    def live(world: World, job: dict[str, Any], output: Path) -> int:
        child = server.start("live", job, str(output))
        world.victim.is_(child.pid)
        if child.read(seconds):
            os.killpg(child.pid, signal.SIGKILL)
            child.join()
            return TIMED_OUT
        return child.join()

    return live


def started(python: Path, framework: Framework) -> Live:
    """Lives that are processes of their own from the start."""

    def live(world: World, job: dict[str, Any], output: Path) -> int:
        told = json.dumps({"job": job, "output": str(output)})
        process = subprocess.Popen(
            [python, str(HERE / "child.py"), str(framework.folder / "agent.py"), told],
            env=environment(framework),
            cwd=world.folder,
            start_new_session=True,
        )
        world.victim.is_(process.pid)
        try:
            return process.wait(framework.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return TIMED_OUT

    return live


def measure_row(framework: Framework, version: str, arm: Arm, row_name: str, live: Live) -> Measured:
    """One row of one arm."""
    row = ROWS[row_name]
    began = time.monotonic()
    ends: list[int] = []
    with (
        tempfile.TemporaryDirectory(prefix="frameworks-") as folder,
        World(Path(folder), row.planner(USUAL[arm.planner]), row.kill, proxied=bool(arm.proxy)) as world,
        Proxied(Path(folder), arm.proxy, world.models.url) if arm.proxy else nullcontext() as proxy,
    ):
        state = Path(folder) / "agent"
        state.mkdir()
        while not ends or (ends[-1] in (-signal.SIGKILL, WAITING_EXIT) and len(ends) < LIVES_MAX):
            if ends and ends[-1] == WAITING_EXIT and not settle(state / "agents.db", world.shop.receipt("charge")):
                break
            world.victim.nobody()
            job = {
                "arm": arm.name,
                "models": world.models.url if proxy is None else proxy.address("order-81", len(ends) + 1),
                "shop": f"http://127.0.0.1:{world.shop.server_port}",
                "folder": str(state),
                "life": len(ends) + 1,
                "tool_end": row.tool_end,
                "options": arm.options,
            }
            output = Path(folder) / f"life{len(ends) + 1}.txt"
            ends.append(live(world, job, output))
        said = output.read_text("utf-8", "replace").replace(f"{ROOT}/", "") if output.exists() else ""
        lines = world.models.service.ledger.lines()
        return Measured(
            version=version,
            arm=arm.name,
            surefoot=arm.surefoot,
            row=row.name,
            feature=arm.feature,
            effects=world.effects,
            model_calls=len(world.models.paid()),
            refused=sum(line.what in ("refused", "refusable") for line in lines),
            kills=ends.count(-signal.SIGKILL),
            ends=ends,
            seconds=round(time.monotonic() - began, 1),
            right="order complete" in said.rpartition("final: ")[2],
            said="" if ends[-1] == 0 and "order complete" in said else said[-1500:],
        )


def faults(framework: Framework, arm: Arm, measured: Measured, clean_calls: int) -> list[str]:
    """What is wrong with a row: a kill that did not happen is wrong in any arm, the rest only with Surefoot."""
    found: list[str] = []
    if measured.kills != ROWS[measured.row].kills:
        found.append(f"{measured.kills} processes died by SIGKILL, {ROWS[measured.row].kills} expected")
    if not arm.surefoot and measured.row != "control":
        return found
    if measured.effects != dict.fromkeys(OPERATIONS, 1):
        found.append(f"effects {measured.effects}")
    if measured.ends[-1] != 0 or not measured.right:
        found.append(f"it ended with {measured.ends[-1]} and {'the' if measured.right else 'not the'} right answer")
    if (WAITING_EXIT in measured.ends) != ROWS[measured.row].person:
        found.append(
            f"it ended with {measured.ends}: {'no life' if ROWS[measured.row].person else 'a life'} waited for a person"
        )
    if measured.refused:
        found.append(f"{measured.refused} requests that the real endpoint refuses")
    if clean_calls and measured.model_calls > clean_calls + arm.spare_calls * measured.kills:
        found.append(f"{measured.model_calls} model calls, {clean_calls} without a kill")
    return found


CLEAN = {"parallel gap": "parallel control", "parallel returned": "parallel control", "re-ordered": "parallel control"}


def measure(
    framework: Framework, version: str, arms: list[Arm], rows: list[str], show: Callable[[Measured], None]
) -> tuple[list[Measured], list[str]]:
    """Every row of these arms in one environment, each shown in its turn, and what was wrong."""
    python = python_of(framework, version)
    with ExitStack() as stack:
        if framework.fork:
            env = {**environment(framework), "FRAMEWORKS_AGENT": str(framework.folder / "agent.py")}
            server = stack.enter_context(ForkServer(str(HERE / "child.py"), python=str(python), env=env))
            live = forked(server, framework.seconds)
        else:
            live = started(python, framework)
        wanted = [(arm, row) for arm in arms for row in arm.rows if not rows or row in rows]
        pool = stack.enter_context(ThreadPoolExecutor(framework.jobs))
        done: list[Measured] = []
        for measured in pool.map(lambda pair: measure_row(framework, version, pair[0], pair[1], live), wanted):
            done.append(measured)
            show(measured)
    clean = {(m.arm, m.row): m.model_calls for m in done}
    wrong: list[str] = []
    for (arm, row), measured in zip(wanted, done, strict=True):
        calls = 5 if row == "clock" else clean.get((arm.name, CLEAN.get(row, "control")), 0)
        where = f"{framework.name} ({version}), {arm.name}, {row}"
        wrong += [f"{where}: {fault}\n{measured.said}" for fault in faults(framework, arm, measured, calls)]
    return done, wrong
