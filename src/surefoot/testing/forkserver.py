"""Processes that start in a few milliseconds, so that a thousand real kills take a minute.

A server process imports the agent's module once and forks for each job; it has one thread and has opened nothing, so a
fork of it is clean. A child runs one function of that module and writes lines into a pipe, which a SIGKILL cannot take
back: what the parent reads was really written. Its exit status proves how it ended.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NoReturn, Self


class Child:
    """One forked process and the pipe that it writes into."""

    def __init__(self, pid: int, pipe: int, wait: Callable[[int], int]) -> None:
        """Made by `ForkServer.start`."""
        self.pid = pid
        self._pipe = pipe
        self._wait = wait
        self._buffer = b""
        self._ended = False
        self.lines: list[str] = []

    def read(self, seconds: float, *, until: str | None = None) -> bool:
        """Collect lines for at most `seconds`, or until one begins with `until`; False once the child has ended."""
        give_up = time.monotonic() + seconds
        while not self._ended:
            if until is not None and any(line.startswith(until) for line in self.lines):
                return True
            left = give_up - time.monotonic()
            ready, _, _ = select.select([self._pipe], [], [], max(left, 0.0))
            if not ready:
                return True
            content = os.read(self._pipe, 65536)
            self._ended = not content
            *lines, self._buffer = (self._buffer + content).split(b"\n")
            self.lines += [line.decode() for line in lines]
        return False

    def said(self, start: str) -> str | None:
        """The rest of the first line that begins with `start`, or None."""
        return next((line.removeprefix(start).strip() for line in self.lines if line.startswith(start)), None)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def is_stopped(self) -> bool:
        """True while it stands still after SIGSTOP."""
        with open(f"/proc/{self.pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"

    def kill(self) -> int:
        """SIGKILL it and return its exit status; -9 proves that it was killed and had not ended before."""
        self.signal(signal.SIGKILL)
        self.read(30.0)
        return self.join()

    def join(self) -> int:
        """Wait for its end: the exit code, or minus the signal's number. What it wrote is in `lines`."""
        self.read(60.0)
        os.close(self._pipe)
        return self._wait(self.pid)


class ForkServer:
    """Starts children that run functions of `module`; a context manager. Several threads may use one."""

    def __init__(self, module: str, *, python: str | None = None, env: Mapping[str, str] | None = None) -> None:
        """`module` is imported in the server: by its dotted name, or from its path when it ends in `.py`.

        With `python` the server runs in that interpreter, which needs not have Surefoot; `env` is all of its variables.
        """
        mine, theirs = socket.socketpair()
        start = [sys.executable, "-m", "surefoot.testing.forkserver"] if python is None else [python, __file__]
        command = [*start, str(theirs.fileno()), module]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env)
        theirs.close()
        self._socket = mine
        self._lock = threading.Lock()

    def start(self, function: str, *arguments: Any) -> Child:
        """Fork a child that calls `function(say, *arguments)`; `say(line)` writes a line to the parent."""
        readable, writable = os.pipe()
        with self._lock:
            job = json.dumps(["start", function, arguments]).encode()
            socket.send_fds(self._socket, [len(job).to_bytes(4, "big") + job], [writable])
            pid = int.from_bytes(_exactly(self._socket, 4), "big")
        os.close(writable)
        return Child(pid, readable, self._status_of)

    def _status_of(self, pid: int) -> int:
        with self._lock:
            job = json.dumps(["wait", str(pid), []]).encode()
            self._socket.sendall(len(job).to_bytes(4, "big") + job)
            return int.from_bytes(_exactly(self._socket, 4), "big", signed=True)

    def close(self) -> None:
        """End the server; it kills the children that are left."""
        self._socket.close()
        self._process.wait(30)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _exactly(stream: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = stream.recv(count - len(content))
        if not part:
            raise EOFError("the other side of the fork server is gone")
        content += part
    return content


# --- in the server's process --------------------------------------------------------------------------------------


def _load(module: str) -> Any:
    if not module.endswith(".py"):
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location("surefoot_forked_agent", module)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _run(body: Callable[..., Any], arguments: list[Any], pipe: int) -> NoReturn:
    """In the child: one job, then `os._exit`, so that nothing of the server's is run twice."""
    code = 0

    def say(line: str) -> None:
        os.write(pipe, f"{line}\n".encode())

    try:
        body(say, *arguments)
    except BaseException as error:
        traceback.print_exc()
        say(f"raised {type(error).__name__}: {' '.join(str(error).split())}")
        code = 1
    finally:
        os._exit(code)


def _serve(stream: socket.socket, module: Any) -> None:
    living: set[int] = set()
    while True:
        head, pipes, _, _ = socket.recv_fds(stream, 4, 1)
        if not head:
            break
        head += _exactly(stream, 4 - len(head)) if len(head) < 4 else b""
        what, name, arguments = json.loads(_exactly(stream, int.from_bytes(head, "big")))
        if what == "wait":
            living.discard(int(name))
            _, status = os.waitpid(int(name), 0)
            stream.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
            continue
        pid = os.fork()
        if pid == 0:
            stream.close()
            _run(getattr(module, name), arguments, pipes[0])
        os.close(pipes[0])
        living.add(pid)
        stream.sendall(pid.to_bytes(4, "big"))
    for pid in living:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), _load(sys.argv[2]))
