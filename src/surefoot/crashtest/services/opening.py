"""Opens the services of one world, each with a state of its own; what all worlds share is made once."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import UsageError
from ...testing.ledger import Ledger
from ...testing.models.words import Planner
from ...testing.twins.engine import Engine
from ...testing.twins.of_receiver import behaviour_named
from ..config import Config, Service, fill, placeholders, words_of
from ..errors import CrashtestError
from ..process import send
from .base import Backend
from .recording import Exchange, Recorded, Recorder, read_recording
from .routed import Routed
from .scripted import Scripted, planner_of
from .twinned import Twinned
from .watched import Watched, forward_to


@dataclass(kw_only=True)
class Opener:
    """Makes the backends of a world. `kept` is where a recording run puts what it saw."""

    config: Config
    planners: dict[str, Planner]
    exchanges: list[Exchange] | None
    kept: list[Exchange] | None = None
    started: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def open(self, name: str, folder: Path, ledger: Ledger) -> Backend:
        """The backend of one service; `folder` is the world's, outside of what the agent sees."""
        service = self.config.services[name]
        if self.kept is not None and service.kind == "upstream":
            assert service.url is not None
            return Recorder(name, forward_to(service.url), self.kept)
        if self.exchanges is not None and service.kind == "upstream":
            return self._recorded(name, service, self.exchanges, ledger)
        match service.kind:
            case "http":
                return Routed(name, service, ledger)
            case "model":
                return Scripted(self.planners[name], record=folder / f"{name}.jsonl", strict=service.strict)
            case "twin":
                return Twinned(_engine(service, service.receiver or "", ledger))
            case "upstream":
                return Watched(name, service, ledger, forward_to(service.url or ""), lambda: None)
            case "command":
                port, close = _start(name, service, self.config, folder)
                return Watched(name, service, ledger, forward_to(f"http://127.0.0.1:{port}"), close)

    def _recorded(self, name: str, service: Service, exchanges: Sequence[Exchange], ledger: Ledger) -> Backend:
        mine = [each for each in exchanges if each.service == name]
        if not mine:
            held = sorted({each.service for each in exchanges})
            raise CrashtestError(
                f"the recording does not match: it holds nothing of services.{name}, only of "
                f"{', '.join(held) or 'nobody'}; "
                "record again with this configuration"
            )
        contract = None if service.twin is None else _engine(service, service.twin, ledger)
        return Recorded(name, service, mine, ledger, ignore=self.config.ignore, contract=contract)


def opener_of(config: Config, *, kept: list[Exchange] | None = None) -> Opener:
    """An opener for this configuration. Raises CrashtestError for what no world could open."""
    here = Path(config.here)
    planners = {n: planner_of(n, s, here) for n, s in config.services.items() if s.kind == "model"}
    exchanges = None if config.recording is None or kept is not None else read_recording(here / config.recording)
    return Opener(config=config, planners=planners, exchanges=exchanges, kept=kept)


def _engine(service: Service, receiver: str, ledger: Ledger) -> Engine:
    try:
        return Engine(behaviour_named(receiver, **service.lies), ledger, time.time)
    except (UsageError, TypeError) as error:
        raise CrashtestError(f"{error}; `surefoot receivers` lists those that there are") from None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(name: str, service: Service, config: Config, folder: Path) -> tuple[int, Callable[[], None]]:
    port = free_port()
    places = {**placeholders(config), "port": str(port), "dir": str(folder / "world")}
    command = [fill(word, places) for word in words_of(service.command)]
    output = folder / f"{name}.txt"
    with output.open("wb") as file:
        try:
            process = subprocess.Popen(
                command,
                cwd=config.here,
                env={**os.environ, "PORT": str(port), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CrashtestError(f"services.{name} does not start: {error}; check its command") from None

    def close() -> None:
        send(process.pid, 9)
        process.wait()

    give_up = time.monotonic() + service.ready_seconds
    while time.monotonic() < give_up and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return port, close
        time.sleep(0.02)
    close()
    words = output.read_text(errors="replace").strip()[-600:]
    raise CrashtestError(
        f"services.{name} does not listen on port {port} after {service.ready_seconds:g} s: "
        f"{words or 'it printed nothing'}; "
        "its command must listen on 127.0.0.1:{port}"
    )
