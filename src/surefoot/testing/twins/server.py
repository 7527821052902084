"""An engine behind a loopback socket. A wire gives it its shape; `/-/` is the test's own door.

    POST /-/advance {"seconds": 3600}      POST /-/next {"faults": ["lost_answer"], "lookups": false}
    POST /-/release                        POST /-/finish {"value": "..."}        POST /-/issue
    GET  /-/ledger                         GET  /-/events

So an agent in another process or language, and its test, need nothing but HTTP.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from ...core.errors import UsageError
from .behaviour import Said
from .engine import Closed, Engine
from .messages import Answer, Call, Json, Leaves, Page, Request, Wire
from .plain import failure, page, shown

BODY_BYTES_MAX = 16 * 1024 * 1024


class TwinServer(ThreadingHTTPServer):
    """One engine, one wire, one port. `advance` moves the twin's clock."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, engine: Engine, wire: Wire, advance: Callable[[float], None], *, port: int = 0) -> None:
        """Bound when this returns; it serves once `serve_forever` runs."""
        self.engine, self.wire, self.advance = engine, wire, advance
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers are killed all the time; anything else is a bug and is shown."""
        if not isinstance(sys.exception(), OSError | Closed):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop serving and cut whoever still waits for an answer."""
        self.engine.close()
        self.shutdown()
        self.server_close()
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    server: TwinServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer on a kept connection waits 40 ms for an acknowledgement
    wbufsize = -1  # head and body leave in one write

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the ledger says everything that is counted."""

    def _serve(self) -> None:
        call = self._call()
        if call.path.startswith("/-/"):
            self._send(self._control(call))
            return
        engine, wire = self.server.engine, self.server.wire
        asked = wire.read(call, engine.behaviour)
        if isinstance(asked, Page):
            self._send(asked)
            return
        answer = engine.receive(asked) if isinstance(asked, Request) else engine.look(asked)
        self._leave(answer, lambda: wire.write(answer, asked, engine.behaviour))

    def _call(self) -> Call:
        length = int(self.headers.get("Content-Length") or 0)
        parts = urlsplit(self.path)
        return Call(
            method=self.command,
            path=unquote(parts.path),
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._body(min(length, BODY_BYTES_MAX)),
        )

    def _body(self, length: int) -> bytes:
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("its sender died within the request, and nobody acts on half a one")
        return body

    def _leave(self, answer: Answer, write: Callable[[], Page]) -> None:
        match answer.leaves:
            case Leaves.WHOLE:
                self._send(write())
            case Leaves.SILENT:
                self.connection.recv(1)  # until the caller gives up or dies
                self.close_connection = True
            case Leaves.RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
            case Leaves.UNREADABLE:
                self._send(Page(status=200, body=b"<html>please wait</html>", headers={"Content-Type": "text/html"}))

    def _send(self, answer: Page) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    def _control(self, call: Call) -> Page:
        engine = self.server.engine
        try:
            said: Json = json.loads(call.body or b"{}")
            match call.method, call.path.removeprefix("/-/"):
                case "POST", "advance":
                    self.server.advance(float(said["seconds"]))
                case "POST", "next":
                    engine.next(*said["faults"], lookups=bool(said.get("lookups", False)))
                case "POST", "release":
                    return page(200, {"released": engine.release()})
                case "POST", "finish":
                    engine.finish(said["value"])
                case "POST", "issue":
                    return page(200, {"secret": engine.issue()})
                case "GET", "ledger":
                    return page(200, {"lines": msgspec.to_builtins(engine.ledger.lines())})
                case "GET", "events":
                    return page(200, {"events": [shown(thing) for thing in engine.events()]})
                case _:
                    text = "the twin's door has advance, next, release, finish, issue (POST), ledger and events (GET)"
                    return failure(engine.behaviour, Said.UNKNOWN, text)
        except (UsageError, ValueError, KeyError, TypeError) as error:
            return page(400, {"error": {"code": "bad_control", "message": f"{type(error).__name__}: {error}"}})
        return page(200, {})


def serve(server: TwinServer) -> threading.Thread:
    """Serve on a thread of its own until the server is closed."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="surefoot-twin", daemon=True)
    thread.start()
    return thread
