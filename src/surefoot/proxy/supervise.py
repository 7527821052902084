"""Starts an agent behind a proxy, and again when it dies: each start is a new attempt, said in the addresses it gets.

So the proxy need not guess which start asks: all processes of one start say the same, and a new start says another.
What a dead attempt leaves behind is killed before the next one begins, or two of them would act at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from urllib.parse import urlsplit

from ..runtime.clock import random_uuid
from .address import prefix
from .options import KNOWN, Upstream

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 5.0
CANNOT_START = 127
Environment = Callable[[str], Mapping[str, str]]
RUN_VARIABLE, ATTEMPT_VARIABLE, PROXY_VARIABLE = "SUREFOOT_RUN", "SUREFOOT_ATTEMPT", "SUREFOOT_PROXY"


@dataclass(frozen=True, kw_only=True)
class Lived:
    """How one attempt ended: its exit code, or minus the signal that killed it."""

    attempt: str
    code: int


def variables(
    url: str, upstreams: Sequence[Upstream], *, run: str = "", attempt: str = "", key: str = ""
) -> dict[str, str]:
    """The environment variables by which clients find the proxy at `url`, for this run and attempt."""
    front = url + prefix(key=key, run=run, attempt=attempt)
    found = {variable: f"{front}/{each.name}{path}" for each in upstreams for variable, path in each.variables}
    told = {RUN_VARIABLE: run, ATTEMPT_VARIABLE: attempt, PROXY_VARIABLE: url}
    return {**found, **{name: value for name, value in told.items() if value}}


def upstreams_in(environment: Mapping[str, str]) -> tuple[Upstream, ...]:
    """The services that the environment names already: the proxy stands before them, and not before the public ones."""
    found: list[Upstream] = []
    for each in KNOWN:
        variable, path = each.variables[0]
        url = environment.get(variable, "").rstrip("/")
        if url and urlsplit(url).scheme in ("http", "https"):
            found.append(Upstream(name=each.name, base=url.removesuffix(path), variables=each.variables))
    return tuple(found)


class Supervisor:
    """Runs one command until it succeeds, is told to stop, or has died too often."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Environment,
        *,
        restarts: int,
        tell: Callable[[Lived], object] = lambda life: None,
    ) -> None:
        """`environment(attempt)` is the whole environment of one attempt; `tell` hears of each that another follows."""
        self._command, self._environment, self._restarts = list(command), environment, restarts
        self._tell = tell
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.lives: list[Lived] = []

    def run(self, *, own_session: bool) -> int:
        """The last attempt's exit code, 128 + N if signal N ended it; `own_session`: away from this terminal."""
        while True:
            attempt = random_uuid().hex[:12]
            code = self._live(attempt, own_session)
            self.lives.append(Lived(attempt=attempt, code=code))
            if code in (0, CANNOT_START) or self._stopped.is_set() or len(self.lives) > self._restarts:
                return code if code >= 0 else 128 - code
            self._tell(self.lives[-1])
            self._stopped.wait(min(PAUSE_SECONDS_MIN * 2 ** (len(self.lives) - 1), PAUSE_SECONDS_MAX))
            if self._stopped.is_set():
                return code if code >= 0 else 128 - code

    def _live(self, attempt: str, own_session: bool) -> int:
        try:
            process = subprocess.Popen(
                self._command, env=dict(self._environment(attempt)), start_new_session=own_session
            )
        except OSError:
            return CANNOT_START
        self._process = process
        try:
            return process.wait()
        finally:
            self._process = None
            if own_session:
                _kill_group(process.pid)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """The agent is told to stop, and not started again."""
        self._stopped.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def catch(self) -> None:
        """SIGTERM and Ctrl-C go to the agent from now on."""
        signal.signal(signal.SIGTERM, self.on_signal)
        signal.signal(signal.SIGINT, self.on_signal)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nobody is left
