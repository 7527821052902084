"""The engines' servers, each a process of its own for as long as one engine's rows take; its agents come and go."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.envs import ENVS

READY_SECONDS = 90.0
Place = dict[str, str]
"""What an agent's program is told of its engine, as environment variables."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@contextmanager
def process(command: list[str], log: Path, ready: str, env: Place | None = None) -> Iterator[None]:
    """A server, from when `ready` (a port, or a URL that answers 200) is there."""
    with log.open("wb") as file:
        server = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, start_new_session=True
        )
    try:
        wait_for(server, ready, log)
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_for(server: subprocess.Popen[bytes], ready: str, log: Path) -> None:
    """Return when the server answers; RuntimeError with the end of its log if it does not."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            if ready.startswith("http"):
                urllib.request.urlopen(ready, timeout=2).close()
            else:
                socket.create_connection(("127.0.0.1", int(ready)), 2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server did not become ready: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def temporal(folder: Path) -> Iterator[Place]:
    """A development server with its store in a file."""
    port = free_ports(1)[0]
    program = str(ENVS / "temporal" / "bin" / "temporal")
    options = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    with process(
        [program, "server", "start-dev", *options, "--db-filename", str(folder / "temporal.db")],
        folder / "server.txt",
        str(port),
    ):
        yield {"ENGINE": f"127.0.0.1:{port}"}


@contextmanager
def restate(folder: Path) -> Iterator[Place]:
    """One node, its store in a folder."""
    ingress, admin, node = free_ports(3)
    packages = ENVS / "restate" / "node_modules" / "@restatedev"
    program = next(packages.glob("restate-server-*/bin/restate-server"))
    names = {
        "RESTATE_INGRESS__BIND_ADDRESS": ingress,
        "RESTATE_ADMIN__BIND_ADDRESS": admin,
        "RESTATE_BIND_ADDRESS": node,
    }
    env = {
        **{name: f"127.0.0.1:{port}" for name, port in names.items()},
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_LISTEN_MODE": "tcp",
        "DO_NOT_TRACK": "1",
    }
    command = [str(program), "--no-logo", "--base-dir", str(folder / "restate"), "--node-name", "engines"]
    with process(command, folder / "server.txt", f"http://127.0.0.1:{admin}/health", env):
        wait_until_open(f"http://127.0.0.1:{ingress}/restate/health")
        yield {"ENGINE": f"http://127.0.0.1:{ingress}", "ADMIN": f"http://127.0.0.1:{admin}"}


def wait_until_open(url: str) -> None:
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
