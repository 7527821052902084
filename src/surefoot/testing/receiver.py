"""A receiver that keeps one of four promises, and errs where it is told.

`Receiver` is what it does: it can stand in the test's process, on a fake clock. `main` serves the same object over a
loopback socket as a process of its own, with a ledger that is fsynced before an answer leaves.

A request names its faults, one for each time that it arrives: `"500,late"` performs the first arrival and answers
500, gives no answer to the second and acts on it afterwards, and is well from the third on.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

from .ledger import Ledger, Line

Json = dict[str, Any]


class Fault(StrEnum):
    """What goes wrong with one arrival of a request."""

    NONE = "none"
    NOT_PERFORMED = "not_performed"
    TIMEOUT = "timeout"
    RESET = "reset"
    ERROR = "500"
    LATE = "late"
    REFUSED = "400"
    BUSY = "503"


class ReceiverError(Exception):
    """A status that is not a success, as HTTP clients raise it."""

    def __init__(self, status_code: int, body: Json) -> None:
        """`status_code` is what Surefoot reads."""
        super().__init__(f"status {status_code}: {body}")
        self.status_code, self.body = status_code, body


class Reply:
    """An answer on its way; status 0 means that none comes, 1 that the connection is reset."""

    def __init__(self, status: int, body: Json | None = None) -> None:
        """`body` is JSON."""
        self.status, self.body = status, body or {}

    def take(self) -> Json:
        """What the caller gets: the body, or an exception as a client library would raise it."""
        if self.status == 0:
            raise TimeoutError("no answer came")
        if self.status == 1:
            raise ConnectionResetError("connection reset by peer")
        if self.status >= 400:
            raise ReceiverError(self.status, self.body)
        return self.body


After = Callable[[float, Callable[[], object]], object]


def after_real_time(seconds: float, action: Callable[[], object]) -> None:
    """Do it on a thread of its own, when that time has passed."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


class Receiver:
    """Keyed, natural, lookup and opaque services in one, over one ledger. Times are in seconds."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        now: Callable[[], float] = time.time,
        after: After = after_real_time,
        late_seconds: float = 0.3,
        lag_seconds: float = 0.0,
    ) -> None:
        """`late_seconds`: when a late request acts; `lag_seconds`: when a lookup begins to show what was done."""
        self.ledger = ledger
        self._now, self._after = now, after
        self._late_seconds, self._lag_seconds = late_seconds, lag_seconds
        self._lock = threading.Lock()
        self._arrivals: dict[str, int] = {}
        self._by_key: dict[str, tuple[str, Json]] = {}
        self._objects: dict[str, Json] = {}
        self._shown: dict[str, list[tuple[float, Json]]] = {}
        self._numbers = 0

    def send(self, promise: str, name: str, body: Json, *, key: str = "", fault: str = "") -> Reply:
        """One request arrives: it changes the world as `promise` and its fault say, and may be answered."""
        with self._lock:
            arrival = self._arrivals[name] = self._arrivals.get(name, 0) + 1
        faults = fault.split(",")
        what = Fault(faults[arrival - 1] or "none") if arrival <= len(faults) else Fault.NONE
        match what:
            case Fault.NOT_PERFORMED:
                return Reply(0)
            case Fault.BUSY:
                return Reply(503)
            case Fault.REFUSED:
                self._note("refused", name, key, body)
                return Reply(400, {"error": "bad request"})
            case Fault.LATE:
                self._after(self._late_seconds, lambda: self._act(promise, name, body, key))
                return Reply(0)
            case _:
                reply = self._act(promise, name, body, key)
                return reply if what is Fault.NONE else Reply({"timeout": 0, "reset": 1, "500": 500}[what])

    def _act(self, promise: str, name: str, body: Json, key: str) -> Reply:
        """Perform, or find that it was performed already; the line is durable before this returns."""
        text = json.dumps(body, sort_keys=True)
        with self._lock:
            known = self._by_key.get(key) if promise == "keyed" else None
            if known is not None and known[0] != text:
                return Reply(422, {"error": "this key came with another request"})
            held = known[1] if known is not None else self._objects.get(name) if promise == "natural" else None
            if held is None:
                self._numbers += 1
                receipt: Json = {"name": name, "number": self._numbers}
                if promise == "keyed":
                    self._by_key[key] = (text, receipt)
                self._objects[name] = receipt
                self._shown.setdefault(name, []).append((self._now() + self._lag_seconds, receipt))
            else:
                receipt = held
        self._note("performed" if held is None else "repeated", name, key, body, receipt["number"])
        return Reply(200, receipt)

    def find(self, name: str) -> list[Json]:
        """What a lookup shows now; what was done less than the lag ago is not shown yet."""
        self._note("looked_up", name, "", {})
        with self._lock:
            return [receipt for at, receipt in self._shown.get(name, []) if at <= self._now()]

    def _note(self, what: str, name: str, key: str, body: Json, number: int = 0) -> None:
        text = json.dumps(body, sort_keys=True)
        self.ledger.add(Line(what=what, name=name, at=self._now(), key=key, body=text, number=number))


def whole_body(request: BaseHTTPRequestHandler) -> bytes:
    """The body as far as it was announced; ConnectionError if its sender died within it: nobody acts on half a one."""
    length = int(request.headers.get("Content-Length") or 0)
    body = request.rfile.read(length)
    if len(body) < length:
        raise ConnectionError(f"a request ended after {len(body)} of {length} bytes")
    return body


# --- over a socket ------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver
    hold_seconds = 5.0

    def do_POST(self) -> None:
        request = self._request()
        _, promise, name = self.path.split("/", 2)
        key = self.headers.get("Idempotency-Key", "")
        self._answer(self.receiver.send(promise, name, request["body"], key=key, fault=request["fault"]))

    def do_GET(self) -> None:
        found = self.receiver.find(self.path.split("/", 2)[2])
        self._answer(Reply(200, {"found": found}))

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the ledger says everything that is counted."""

    def _request(self) -> Json:
        return json.loads(whole_body(self))

    def _answer(self, reply: Reply) -> None:
        if reply.status == 0:
            self.connection.settimeout(self.hold_seconds)
            try:
                self.connection.recv(1)  # until the caller gives up or dies
            except OSError:
                pass
            return
        if reply.status == 1:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        content = json.dumps(reply.body).encode()
        head = f"HTTP/1.0 {reply.status} -\r\nContent-Length: {len(content)}\r\n\r\n"
        self.wfile.write(head.encode() + content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError | ValueError):  # callers are killed all the time
            super().handle_error(request, client_address)


def main(path: str, late_seconds: str, lag_seconds: str) -> NoReturn:
    """Print the port, then serve until standard input closes; what is done is in the ledger at `path`."""
    receiver = Receiver(Ledger(Path(path)), late_seconds=float(late_seconds), lag_seconds=float(lag_seconds))
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"receiver": receiver}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    raise SystemExit(0)


def post(
    port: int, promise: str, name: str, body: Json, *, fault: str = "", headers: dict[str, str], timeout: float
) -> Json:
    """Send one request to a receiver's process and return its receipt, or raise as HTTP clients do."""
    content = json.dumps({"body": body, "fault": fault})
    return _call(port, "POST", f"/{promise}/{name}", content, headers, timeout)


def find(port: int, name: str, *, timeout: float) -> list[Json]:
    """Ask a receiver's process what it shows under this name."""
    return _call(port, "GET", f"/find/{name}", None, {}, timeout)["found"]


def _call(port: int, method: str, path: str, content: str | None, headers: dict[str, str], timeout: float) -> Json:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        body: Json = json.loads(response.read() or b"{}")
        if response.status >= 400:
            raise ReceiverError(response.status, body)
        return body
    finally:
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
