"""Starts lives of the agent: as commands, or forked from a process that has imported what they need already."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..testing.forkserver import Child, ForkServer
from . import forked
from .errors import CrashtestError
from .process import Agent, Spawned, send, state_of

PYTHON = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?")


class Forked:
    """An agent that was forked."""

    def __init__(self, child: Child) -> None:
        """It leads a session of its own once it has said so."""
        self._child, self.pid = child, child.pid
        self._code: int | None = None
        child.read(30.0, until="ready")

    def wait(self, seconds: float) -> int | None:
        """See Agent."""
        give_up = time.monotonic() + seconds
        while self._code is None:
            if state_of(self.pid) in ("Z", "X", ""):
                send(self.pid, 9)  # forks of it that hold its pipe
                self._code = self._child.join()
                break
            left = give_up - time.monotonic()
            if left <= 0:
                return None
            if not self._child.read(min(left, 0.02)):
                time.sleep(0.0005)
        return self._code


class Starter:
    """Starts lives; a context manager. Several threads may use one."""

    def __init__(self, *, fork: bool, preload: Sequence[str], folder: Path) -> None:
        """With `fork`, one fork server is started for each interpreter that commands name."""
        self._fork, self._preload, self._folder = fork, list(preload), folder
        self._servers: dict[str, ForkServer] = {}
        self._lock = threading.Lock()

    def start(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path) -> Agent:
        """One life. Raises CrashtestError when it cannot be started."""
        if not command:
            raise CrashtestError("there is no command: give one after --, or command = … in crashtest.toml")
        if not self._fork:
            return Spawned(command, cwd=cwd, env=env, output=output)
        python, argv = forkable(command)
        child = self._server(python).start("run", argv, str(cwd), dict(env), str(output))
        return Forked(child)

    def _server(self, python: str) -> ForkServer:
        with self._lock:
            if python not in self._servers:
                module = self._folder / "preloaded.py"
                source = Path(forked.__file__).read_text("utf-8")
                module.write_text(f"{source}\n\npreload({self._preload!r})\n", "utf-8")
                self._servers[python] = ForkServer(str(module), python=python)
            return self._servers[python]

    def close(self) -> None:
        """End the fork servers and what they still hold."""
        for server in self._servers.values():
            server.close()


def forkable(command: Sequence[str]) -> tuple[str, list[str]]:
    """(the interpreter, script and arguments) of a Python command. Raises CrashtestError for any other one."""
    python, rest = command[0], list(command[1:])
    if PYTHON.fullmatch(Path(python).name) and rest and (rest[0] == "-m" or not rest[0].startswith("-")):
        found = shutil.which(python)
        if found is not None and (rest[0] != "-m" or len(rest) > 1):
            return found, rest
    raise CrashtestError(
        "fork = true starts Python scripts only, as `python agent.py …` or `python -m agent …`; found "
        f"{' '.join(command)!r}: "
        "leave fork out"
    )
