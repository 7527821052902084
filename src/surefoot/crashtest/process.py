"""The agent as processes: started in a group of its own, killed whole, and proved dead by its exit signal.

A process that left the group (a browser in a session of its own) still descends from the agent, or carries the
variable of its world; both are looked for in /proc, before the kill and after it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from .errors import CrashtestError

PROC = Path("/proc")
SWEEPS_MAX = 50


class Agent(Protocol):
    """One life of the agent: its leading process, whose group has its pid."""

    pid: int

    def wait(self, seconds: float) -> int | None:
        """The exit code, or minus the signal's number; None while it lives after so many seconds."""
        ...


class Spawned:
    """An agent that was started as a command."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path) -> None:
        """Raises CrashtestError when the command cannot be started."""
        with output.open("wb") as file:
            try:
                self._process = subprocess.Popen(
                    list(command),
                    cwd=cwd,
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise CrashtestError(
                    f"the command does not start: {error}; it is run in {cwd} without a shell, so {command[0]!r} "
                    "must be "
                    "a program on PATH or a path, and `sh -c '…'` is how to use a shell"
                ) from None
        self.pid = self._process.pid

    def wait(self, seconds: float) -> int | None:
        """See Agent. The kernel is asked for the end alone: a stop that it reports is the tracer's (see tracing.py)."""
        if not hasattr(os, "pidfd_open"):
            try:
                return self._process.wait(max(seconds, 0.0))
            except subprocess.TimeoutExpired:
                return None
        if self._process.returncode is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(max(seconds, 0.0) * 1000):
                    return None
            finally:
                os.close(descriptor)
        return self._process.wait()


def state_of(pid: int) -> str:
    """The state letter in /proc, "" when there is no such process."""
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def descendants(pid: int) -> set[int]:
    """Every process below this one, by parent."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        above = waiting.pop()
        try:
            tasks = os.listdir(PROC / str(above) / "task")
            texts = [(PROC / str(above) / "task" / task / "children").read_text() for task in tasks]
        except OSError:
            continue
        below = {int(word) for text in texts for word in text.split()} - found
        found |= below
        waiting += below
    return found


def marked(marker: str, since: int) -> set[int]:
    """Every living process that carries this variable; none of them is older than the process `since`."""
    wanted = marker.encode() + b"="
    found: set[int] = set()
    for pid in _pids(since):
        try:
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment and state_of(pid) not in ("Z", "X", ""):
            found.add(pid)
    return found


def _pids(since: int) -> list[int]:
    """Those that may have started after `since`: pids are given out in order until they wrap round."""
    try:
        pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
        newest = int((PROC / "loadavg").read_text().split()[-1])
    except (OSError, ValueError):  # no /proc here: the process group is all that can be killed
        return []
    return [pid for pid in pids if pid >= since] if newest >= since else pids


def kill_whole(pid: int, marker: str) -> int:
    """SIGKILL the group of this process and all that left it; how many had left it and were still alive.

    The group stands still while its descendants are looked up: they lose their parent when it dies.
    """
    send(pid, signal.SIGSTOP)
    below = descendants(pid)
    strays = {each for each in below if _group_of(each) not in (pid, 0)}
    send(pid, signal.SIGKILL)
    _kill_each(strays)
    return len(strays | sweep(marker, pid, group=pid))


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _kill_each(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def sweep(marker: str, since: int, *, group: int = 0) -> set[int]:
    """SIGKILL every process that carries this variable, until there is none; which there were outside of `group`.

    A member of a group that was killed may need a moment to be gone. For `since` see `marked`.
    """
    killed: set[int] = set()
    for _ in range(SWEEPS_MAX):
        found = marked(marker, since)
        if not found:
            break
        killed |= {pid for pid in found if _group_of(pid) not in (group, 0)}
        _kill_each(found)
        time.sleep(0.005)
    return killed


def send(group: int, number: int) -> bool:
    """Signal a whole group; False when it is gone, or was none: 0 would be our own."""
    if group <= 1:
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
