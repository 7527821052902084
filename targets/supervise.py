"""A supervisor and nothing more: starts the same command until it exits with 0, and writes down how each life ended.

Each life is a process group of its own, so that a kill takes its children along.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WAITING_EXIT = 75
"""How an agent ends that cannot go on before a person has answered."""
TIMED_OUT = -signal.SIGTERM
"""The status of a life that ran out of time; never -9, which would look like the kill we came for."""


@dataclass(kw_only=True)
class Lives:
    """How a command's lives ended, and what each wrote."""

    ends: list[int] = field(default_factory=list[int])
    words: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def killed(self) -> int:
        return self.ends.count(-signal.SIGKILL)

    @property
    def finished(self) -> bool:
        return bool(self.ends) and self.ends[-1] == 0

    @property
    def waits(self) -> bool:
        return bool(self.ends) and self.ends[-1] == WAITING_EXIT

    def counted(self) -> dict[str, int]:
        """The exit statuses and how many lives ended so."""
        return {str(end): self.ends.count(end) for end in sorted(set(self.ends))}


def begin(
    command: Sequence[str], *, env: Mapping[str, str], output: Path, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start one life."""
    with output.open("wb") as file:
        return subprocess.Popen(
            command, env={**os.environ, **env}, cwd=cwd, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


def end(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for its exit status; kill what is left of the group when the time is over, or when its leader is gone."""
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        status = TIMED_OUT
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return status


def supervise(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
    lives: int = 4,
    seconds: float = 120.0,
    born: Callable[[int], object] = lambda pid: None,
    between: Callable[[Lives], bool] = lambda so_far: so_far.ends[-1] == -signal.SIGKILL,
) -> Lives:
    """Start `command` until it ends by itself, at most `lives` times.

    `born(pid)` is told each process group; `between(lives)` says whether a life that did not end with 0 is followed by
    another: by default only one that was killed. `LIFE` in its environment counts from 1.
    """
    so_far = Lives()
    started = time.monotonic()
    for number in range(1, lives + 1):
        output = folder / f"life-{number}.txt"
        process = begin(command, env={**(env or {}), "LIFE": str(number)}, output=output)
        born(process.pid)
        so_far.ends.append(end(process, seconds))
        so_far.words.append(output.read_text(errors="replace"))
        if so_far.ends[-1] == 0 or not between(so_far):
            break
    so_far.seconds = time.monotonic() - started
    return so_far
