"""What the model and the world have in common: record first, answer later, and kill the agent where told.

A receiver numbers requests once, as they arrive, so that concurrent requests cannot hide a kill point. Its record is
appended and fsynced before an answer leaves; a kill is written into the record before it is delivered. The agent
needs no cooperation: the receiver kills the whole process group that the harness has named. HTTP/1.0 on purpose:
one request per connection, so a killed peer leaves nothing behind.
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from surefoot.demo.scenario import Window

Json = dict[str, Any]

_AGENT_WAIT_SECONDS = 30.0


class Place:
    """One row's corner of a receiver: its record file, its arrivals, and at most one kill."""

    def __init__(self, path: Path, *, kill_number: int | None, window: Window | None, offer: str) -> None:
        self.offer = offer
        self.lines: list[Json] = []
        self.lock = threading.Lock()
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        self._kill_number = kill_number
        self._window = window
        self._arrivals = 0
        self._agent_known = threading.Event()
        self._agent = 0

    def name_agent(self, pid: int) -> None:
        """Says which process group the kill is meant for."""
        self._agent = pid
        self._agent_known.set()

    def arrive(self) -> int:
        """Numbers a request; called exactly once per request, before anything else is done for it."""
        with self.lock:
            self._arrivals += 1
            return self._arrivals

    def append(self, line: Json) -> None:
        """Puts a line on disk; it is fsynced when this returns. The caller holds the lock."""
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        os.fsync(self._descriptor)
        self.lines.append(line)

    def strike(self, number: int, window: Window) -> bool:
        """Kills the agent if this request and window are the armed ones; True means that no answer may leave."""
        with self.lock:
            if number != self._kill_number or window is not self._window:
                return False
            self._kill_number = None  # a later life meets the same numbers and must live
            if not self._agent_known.wait(_AGENT_WAIT_SECONDS):
                raise TimeoutError("the harness has not named the agent's process group")
            self.append({"event": "killed", "number": number, "window": window})
            os.killpg(self._agent, signal.SIGKILL)
            return True

    def close(self) -> None:
        """Closes the record file; what was appended stays."""
        os.close(self._descriptor)


class Handler(BaseHTTPRequestHandler):
    """Routes ``/bench/...`` to the harness's own requests and the rest to the receiver."""

    places: ClassVar[dict[str, Place]]

    def serve(self, place: Place, method: str, path: list[str], body: Json) -> tuple[int, Json] | None:
        """Answers one request of the agent; None lets the connection close without an answer."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PUT(self) -> None:
        self._route("PUT")

    def log_message(self, format: str, *args: object) -> None:
        """Stays quiet: the record file says everything that is counted."""

    def _route(self, method: str) -> None:
        length = int(self.headers.get("content-length") or 0)
        content = self.rfile.read(length)
        if len(content) < length:
            return  # its sender died within it: nobody acts on half a request
        body: Json = json.loads(content or b"{}")
        path = self.path.partition("?")[0].strip("/").split("/")
        if path[0] == "bench":
            return self._answer(*self._bench(method, path[1:], body))
        place = self.places.get(path[0])
        if place is None:
            return self._answer(404, {"error": f"no such place: {self.path}"})
        answer = self.serve(place, method, path[1:], body)
        if answer is not None:
            return self._answer(*answer)
        self._await_the_end()

    def _await_the_end(self) -> None:
        """Closing must not race the kill: an agent that heard of a closed connection could still write that down."""
        self.connection.settimeout(_AGENT_WAIT_SECONDS)
        try:
            while self.connection.recv(4096):
                pass
        except OSError:
            pass

    def _bench(self, method: str, path: list[str], body: Json) -> tuple[int, Json]:
        match method, path:
            case "PUT", [name]:
                window = Window(body["window"]) if body["window"] else None
                self.places[name] = Place(
                    Path(body["path"]), kill_number=body["kill_number"], window=window, offer=body["offer"]
                )
            case "PUT", [name, "agent"]:
                self.places[name].name_agent(int(body["pid"]))
            case "PUT", [name, "closed"]:
                self.places.pop(name).close()
            case _:
                return 404, {"error": f"no such request: {method} {self.path}"}
        return 200, {}

    def _answer(self, status: int, body: Json) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


class Server(ThreadingHTTPServer):
    """Listens on a free local port; a peer that was killed in the middle of its answer is no news."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # pyright: ignore[reportArgumentType]


def listen(handler: type[Handler]) -> Server:
    """Binds a server for a fresh set of places; the caller serves and closes it."""
    bound = type(handler.__name__, (handler,), {"places": {}})
    return Server(("127.0.0.1", 0), bound)


def serve_until_orphaned(handler: type[Handler]) -> None:
    """Runs a receiver as a process: prints its address, serves, and ends when its parent's pipe closes."""
    server = listen(handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.buffer.read()
