"""The scripted model behind a loopback socket, as far as an SDK can see like the real endpoints.

    with ModelServer(checkout, record=path) as models:
        client = openai.OpenAI(base_url=models.url + "/v1", api_key="any")

`/-/` is the test's own door, for agents and tests in other processes; see `door.py`.
"""

from __future__ import annotations

import gzip
import json
import socket
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from ..ledger import Line
from ..receiver import whole_body
from .anthropic import MESSAGES
from .door import open_door
from .planners import checkout
from .service import Meets, Service, Silence, Stream, Whole, dialect_of
from .victim import Boundary, Victim
from .words import Ask, Dialect, Event, Json, Planner

KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


class ModelServer(ThreadingHTTPServer):
    """One scripted model on one port; bound when made, serving within `with`, or after `start`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        planner: Planner = checkout,
        *,
        record: Path | None = None,
        strict: bool = True,
        compress: bool = False,
        event_seconds: float = 0.0,
        boundary: Boundary | None = None,
        port: int = 0,
    ) -> None:
        """`record`: a file where each paid answer is on disk before it leaves. `compress`: gzip for who accepts it.

        `event_seconds` passes between two events of a stream. `boundary` is asked before anything of a request is
        recorded and after it was paid; it may block, and True means that whoever asked is dead.
        """
        self.service = Service(planner, record=record, strict=strict)
        self.victim = Victim()
        self.compress, self.event_seconds, self.boundary = compress, event_seconds, boundary
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The server's root: OpenAI clients take it with `/v1`, Anthropic's and Google's as it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> ModelServer:
        """Serve on a thread until `close`."""
        threading.Thread(target=self.serve_forever, args=(0.02,), name="surefoot-models", daemon=True).start()
        return self

    def next(self, *meets: Meets) -> None:
        """The next requests meet these, one each."""
        self.service.next(*meets)

    def at(self, number: int, meets: Meets) -> None:
        """The request of that number (from 1, on arrival) meets this."""
        self.service.at(number, meets)

    @property
    def asks(self) -> list[Ask]:
        """All requests so far, in our words."""
        return list(self.service.asks)

    def paid(self) -> list[Line]:
        """The answers that were paid, as they stand in the record."""
        return self.service.paid()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers are killed all the time; anything else is a bug and is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop serving and cut whoever still waits for an answer; the record stays."""
        self.shutdown()
        self.server_close()
        for connection in list(self.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self.service.ledger.close()

    def __enter__(self) -> Self:
        """Serving."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Closed."""
        self.close()


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the record says everything that is counted."""

    def do_GET(self) -> None:
        self._whole(open_door(self.server, "GET", urlsplit(self.path).path, {}))

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        dialect = dialect_of(path)
        number = self.server.service.arrive() if dialect is not None else 0
        try:
            body: Json = json.loads(self._body() or b"{}")
            body.keys()  # an array or a number has none
        except (ValueError, AttributeError) as error:
            said = f"We could not parse the JSON body of your request: {error}"
            self._whole(Whole(status=400, body=(dialect or MESSAGES).error(400, said)))
            return
        if dialect is None:
            self._whole(open_door(self.server, "POST", path, body))
            return
        match self._served(dialect, number, body, path):
            case Whole() as whole:
                self._whole(whole)
            case Stream() as stream:
                self._stream(stream, dialect)
            case Silence():
                self.close_connection = True

    def _served(self, dialect: Dialect, number: int, body: Json, path: str) -> Whole | Stream | Silence:
        service = self.server.service
        ask = service.read(dialect, number, body, path)
        meets = service.meets(ask)
        if self._dead("before", meets, number):
            return Silence()
        failure = service.fails(dialect, ask, meets, authorised=self._authorised())
        if failure is not None:
            return failure
        answer = service.answer(dialect, ask, meets)
        return Silence() if self._dead("after", meets, number) else answer

    def _dead(self, when: str, meets: Meets, number: int) -> bool:
        if meets.kill == when:
            self.server.victim.kill(self.connection)
            return True
        return self.server.boundary is not None and self.server.boundary(when, number, self.connection)

    def _authorised(self) -> bool:
        return "key=" in self.path or any(self.headers.get(name) for name in KEY_HEADERS)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return whole_body(self)
        pieces: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    @property
    def _zipped(self) -> bool:
        return self.server.compress and "gzip" in self.headers.get("Accept-Encoding", "")

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self._zipped:
            self.send_header("Content-Encoding", "gzip")

    def _whole(self, whole: Whole) -> None:
        content = json.dumps(whole.body).encode()
        if self._zipped:
            content = gzip.compress(content, 1)
        self._head(whole.status, {"Content-Type": "application/json", **whole.headers})
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if whole.cut else content)
        self.wfile.flush()
        if whole.cut:
            self._break()

    def _stream(self, stream: Stream, dialect: Dialect) -> None:
        listed = dialect.api == "gemini" and "alt=sse" not in self.path  # then one JSON array, piece by piece
        kind = "application/json" if listed else "text/event-stream; charset=utf-8"
        self._head(200, {"Content-Type": kind, "Cache-Control": "no-cache", **stream.headers})
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        packer = zlib.compressobj(1, wbits=31) if self._zipped else None
        for place, event in enumerate(stream.events):
            if place and self.server.event_seconds:
                time.sleep(self.server.event_seconds)
            raw = (("[" if place == 0 else ",\r\n") + event[1] if listed else _written(event)).encode()
            self._chunk(raw if packer is None else packer.compress(raw) + packer.flush(zlib.Z_SYNC_FLUSH))
        if stream.cut:
            self._break()
            return
        tail = b"]" if listed else b""
        self._chunk(tail if packer is None else packer.compress(tail) + packer.flush())
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _chunk(self, raw: bytes) -> None:
        if raw:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            self.wfile.flush()

    def _break(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _written(event: Event) -> str:
    name, payload = event
    return (f"event: {name}\n" if name else "") + f"data: {payload}\n\n"
