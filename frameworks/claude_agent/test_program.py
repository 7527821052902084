"""The bundled program itself: on another day, and interrupted while its shell is at work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from frameworks import planners
from frameworks.layout import HERE
from frameworks.rows import Kill
from frameworks.world import World
from surefoot import Surefoot
from surefoot.core.effect import Status
from surefoot.testing.models import Ask, Say, ToolCall

SECONDS_MAX = 100
ONCE = {"reserve": 1, "charge": 1, "confirm": 1}


def started(world: World, folder: Path, life: int, how: str, **environment: str) -> subprocess.Popen[bytes]:
    state = folder / "agent"
    state.mkdir(exist_ok=True)
    shop = f"http://127.0.0.1:{world.shop.server_port}"
    job = {"arm": "test", "models": world.models.url, "shop": shop, "folder": str(state), "life": life}
    told = json.dumps({"job": {**job, "options": {"how": how}}, "output": str(folder / f"life{life}.txt")})
    command = [sys.executable, str(HERE / "child.py"), str(HERE / "claude_agent" / "agent.py"), told]
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, start_new_session=True)
    world.victim.is_(process.pid)
    return process


def ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def test_a_run_that_is_started_again_on_another_day_goes_on(tmp_path: Path) -> None:
    """The program tells its model the day; between these two places it is never the same one."""
    with World(tmp_path, planners.claude, Kill(at="model", when="before", number=3)) as world:
        assert ended(started(world, tmp_path, 1, "keyed", TZ="Pacific/Niue")) == -signal.SIGKILL
        assert ended(started(world, tmp_path, 2, "keyed", TZ="Pacific/Kiritimati")) == 0
        days = {json.dumps(ask.body).partition("Today's date is ")[2][:10] for ask in world.models.asks}
        assert len(days) == 2, "the program did not tell its model another day"
        assert (world.effects, len(world.models.paid())) == (ONCE, 4)


def sleeper(ask: Ask) -> Say:
    return Say(calls=(ToolCall(name="Bash", arguments={"command": "touch $HOME/began; sleep 600"}),))


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_while_the_shell_is_at_work_ends_the_agent_and_leaves_it_in_doubt(
    tmp_path: Path, whole_group: bool
) -> None:
    with World(tmp_path, sleeper, None) as world:
        process = started(world, tmp_path, 1, "bash")
        began, give_up = tmp_path / "agent" / "home" / "began", time.monotonic() + SECONDS_MAX
        while not began.exists():
            assert time.monotonic() < give_up and process.poll() is None, (tmp_path / "life1.txt").read_text()
            time.sleep(0.05)
        send: Any = os.killpg if whole_group else os.kill
        send(process.pid, signal.SIGINT)
        assert ended(process) != 0
        with Surefoot(tmp_path / "agent" / "agents.db") as sf:
            assert [effect.status for effect in sf.store.find_effects()] == [Status.IN_DOUBT]
