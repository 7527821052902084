"""A local server that writes down every request that arrives, and then errs as it is told.

The line is on disk before anything is answered, so the number of requests that left is never taken from the client.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot.testing.ledger import Ledger, Line

REASONS = {200: "OK", 307: "Temporary Redirect", 409: "Conflict", 500: "Internal Server Error"}


def answer(status: int, body: object = None, **headers: str) -> bytes:
    """A whole HTTP/1.1 answer with a JSON body."""
    content = b"" if body is None else json.dumps(body).encode()
    named = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", *(f"{n}: {v}" for n, v in named.items()), "", ""]
    return "\r\n".join(lines).encode() + content


def close(connection: socket.socket) -> None:
    """Take the request and hang up without an answer."""


def reset(connection: socket.socket) -> None:
    """Take the request and reset the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def silence(connection: socket.socket) -> None:
    """Take the request and never answer; ends when the caller hangs up."""
    connection.settimeout(20)
    try:
        while connection.recv(4096):
            pass
    except OSError:
        pass


def garbage(connection: socket.socket) -> None:
    """Answer with what is not HTTP."""
    connection.sendall(b"surely not HTTP\r\n\r\n")


def cut_short(connection: socket.socket) -> None:
    """Promise a body of 1000 bytes and bring three of them."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{}\n")


Behaviour = bytes | Callable[[socket.socket], None]
NAMED: dict[str, Behaviour] = {
    "500": answer(500, {"error": {"message": "went wrong"}}),
    "503": answer(503, {"error": {"message": "come back later"}}),
    "closed": close,
    "reset": reset,
}


class Arrivals:
    """The server. It does with each arrival what `script` says, and with later ones what its last entry says."""

    def __init__(self, ledger: Ledger, *script: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.ledger, self.script, self._tls = ledger, script or (NAMED["500"],), tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def arrived(self, *methods: str) -> int:
        """How many requests are in the ledger; with `methods`, how many of these."""
        return sum(line.what == "performed" and (not methods or line.name in methods) for line in self.ledger.lines())

    def stop(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                request = self._read(connection)
                if request is None:
                    return
                with self._lock:
                    method, path = request.split(b" ", 2)[:2]
                    self.ledger.add(
                        Line(
                            what="performed",
                            name=method.decode(),
                            key=path.decode(),
                            at=time.time(),
                            body=repr(request),
                        )
                    )
                    arrived = self.arrived()
                    behaviour = self.script[min(arrived, len(self.script)) - 1]
                if isinstance(behaviour, bytes):
                    connection.sendall(behaviour)
                else:
                    behaviour(connection)
        except OSError:
            pass

    def _read(self, connection: socket.socket) -> bytes | None:
        """A whole request, head and body; None if the caller hung up before it was whole."""
        request = b""
        while b"\r\n\r\n" not in request:
            if not (part := connection.recv(65536)):
                return None
            request += part
        head, _, body = request.partition(b"\r\n\r\n")
        fields = {
            n.strip().lower(): v.strip() for n, _, v in (line.partition(b":") for line in head.split(b"\r\n")[1:])
        }
        if fields.get(b"expect"):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(body) < int(fields.get(b"content-length", b"0")) or (
            b"chunked" in fields.get(b"transfer-encoding", b"") and not body.endswith(b"0\r\n\r\n")
        ):
            if not (part := connection.recv(65536)):
                return None
            body += part
        return head + b"\r\n\r\n" + body


@contextmanager
def serving(folder: Path, *script: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[Arrivals]:
    """A server with a ledger in that folder, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(folder / f"ledger-{time.monotonic_ns()}.jsonl")
    server = Arrivals(ledger, *script, tls=tls)
    try:
        yield server
    finally:
        server.stop()
        ledger.close()
