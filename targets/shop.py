"""A shop on loopback that writes down what happened, and kills or errs where it is told.

Requests are numbered once, as they arrive, by channel. A strike names a channel, a number, a window and what to do:
`kill` sends SIGKILL to the agent's process group, `500`, `reset` and `timeout` are answers (after acting, in the window
`effect`), `late` acts when the caller has long given up. The line is on disk before anything is answered or anybody
is killed. `slow` takes its time; `stop` sends SIGSTOP.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from surefoot.testing.ledger import Ledger, Line, performed
from surefoot.testing.receiver import whole_body

Json = dict[str, Any]
BEFORE, EFFECT = "before", "effect"
VICTIM_SECONDS = 30.0


@dataclass(frozen=True)
class Strike:
    """What happens to the nth request of a channel: `before` it acts, or after it acted and was written down."""

    channel: str
    window: str = EFFECT
    nth: int = 1
    what: str = "kill"

    def __str__(self) -> str:
        return f"{self.what} {self.channel} {self.window} {self.nth}"


class Shop:
    """`POST /do/NAME` acts and gives a receipt; `GET /find/NAME?key=K` shows what was done under that key.

    `honours_keys`: a known key is answered with its first receipt, for `window` seconds. `lag`: seconds until `find`
    shows what was done, unless it `shows` nothing at all. A context manager; `struck` says which strikes were done.
    """

    def __init__(
        self,
        ledger: Path,
        *,
        honours_keys: bool = False,
        window: float = 86_400.0,
        lag: float = 0.0,
        late: float = 0.6,
        shows: bool = True,
        strikes: Sequence[Strike] = (),
    ) -> None:
        """Listens at once; `base` is its address."""
        self.ledger = Ledger(ledger)
        self.struck: list[Strike] = []
        self.requests: list[Json] = []
        self._honours_keys, self._window, self._lag, self._late = honours_keys, window, lag, late
        self._shows = shows
        self._strikes = list(strikes)
        self._arrivals: dict[str, int] = {}
        self._lock = threading.Lock()
        self._by_key: dict[tuple[str, str], tuple[float, Json]] = {}
        self._receipts: list[tuple[float, str, str, Json]] = []
        self._timers: list[threading.Timer] = []
        self._victim = 0
        self._victim_known = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"shop": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self._server.server_port}"

    def name_victim(self, pid: int) -> None:
        """Say which process group a kill is meant for."""
        self._victim = pid
        self._victim_known.set()

    def wait_for_late(self) -> None:
        """Return when nothing is to happen late any more, which may be after the agent's end."""
        for timer in self._timers:
            timer.join()

    def happened(self) -> dict[str, int]:
        """How often each effect really happened."""
        return dict(performed(self.ledger.lines()))

    def lines(self, what: str, name: str | None = None) -> list[Line]:
        """The ledger's lines of one sort."""
        return [line for line in self.ledger.lines() if line.what == what and name in (None, line.name)]

    def arrive(self, channel: str) -> int:
        """Number a request; once per request, before anything else is done for it."""
        with self._lock:
            self._arrivals[channel] = self._arrivals.get(channel, 0) + 1
            return self._arrivals[channel]

    def strike(self, channel: str, window: str, number: int) -> str:
        """Do what was to happen here, if anything, and say what; after `kill` nobody is there any more."""
        with self._lock:
            here = [s for s in self._strikes if (s.channel, s.window, s.nth) == (channel, window, number)]
            if not here:
                return ""
            self._strikes.remove(here[0])
        if here[0].what == "kill":
            if not self._victim_known.wait(VICTIM_SECONDS):
                raise TimeoutError("nobody has said which process is to be killed")
            self.ledger.add(Line(what="killed", name=channel, at=time.time(), number=number, body=window))
            os.killpg(self._victim, signal.SIGKILL)
        if here[0].what == "stop":
            os.killpg(self._victim, signal.SIGSTOP)
        self.struck.append(here[0])
        return here[0].what

    def act(self, name: str, body: Json, key: str) -> tuple[int, Json]:
        """Perform, or find that it was performed already; on disk when this returns."""
        text = json.dumps(body, sort_keys=True)
        with self._lock:
            known = self._by_key.get((name, key)) if self._honours_keys and key else None
            if known is not None and time.time() - known[0] > self._window:
                known = None
            if known is not None and known[1]["body"] != text:
                return 422, {"error": "this key came with another request"}
            number = len(self._receipts) + 1
            receipt: Json = known[1]["receipt"] if known else {"receipt": f"receipt:{name}:{number}", "number": number}
            if known is None:
                self._receipts.append((time.time() + self._lag, name, key, receipt))
                if key:
                    self._by_key[name, key] = (time.time(), {"body": text, "receipt": receipt})
        self._note("performed" if known is None else "repeated", name, key, text, int(receipt["number"]))
        return 200, receipt

    def find(self, name: str, key: str) -> list[Json]:
        """What was done under this name and key (any key, if it is empty), as far as it is shown yet."""
        self._note("looked_up", name, key, "", 0)
        with self._lock:
            return [
                receipt
                for shown_at, its_name, its_key, receipt in self._receipts
                if its_name == name and key in ("", its_key) and shown_at <= time.time()
            ]

    def serve(self, method: str, path: str, body: Json, headers: Any) -> tuple[int, Json | str] | None:
        """Answer a request; None when there is nothing to answer (any more). Other services extend this."""
        place = urllib.parse.urlsplit(path)
        kind, _, name = place.path.strip("/").partition("/")
        if kind == "find":
            if not self._shows:
                return 404, {"error": "this shop cannot be asked"}
            return 200, {"found": self.find(name, urllib.parse.parse_qs(place.query).get("key", [""])[0])}
        if kind != "do":
            return 404, {"error": f"no such place: {method} {path}"}
        key = headers.get("Idempotency-Key") or str(body.get("reference", ""))
        with self._lock:
            self.requests.append({"name": name, "key": key, "body": body, "at": time.time()})
        number = self.arrive(name)
        return self.answer(name, number, lambda: self.act(name, body, key))

    def answer(self, channel: str, number: int, action: Any) -> tuple[int, Json | str] | None:
        """Act between the two windows of a request; None when no answer may leave."""
        match self.strike(channel, BEFORE, number):
            case "":
                pass
            case "late":
                timer = threading.Timer(self._late, action)
                self._timers.append(timer)
                timer.start()
                return None
            case "slow" | "stop":
                time.sleep(self._late)
            case what:
                return _fault(what)
        answered = action()
        what = self.strike(channel, EFFECT, number)
        if what in ("slow", "stop"):
            time.sleep(self._late)
            return answered
        return _fault(what) if what else answered

    def _note(self, what: str, name: str, key: str, text: str, number: int) -> None:
        self.ledger.add(Line(what=what, name=name, at=time.time(), key=key, body=text, number=number))

    def close(self) -> None:
        """Stop serving; the ledger's file stays."""
        self._server.shutdown()
        self._server.server_close()
        self.ledger.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _fault(what: str) -> tuple[int, Json] | None:
    match what:
        case "kill" | "timeout":
            return None
        case "reset":
            return -1, {}
        case _:
            return int(what), {"error": "internal error"}


class _Handler(BaseHTTPRequestHandler):
    shop: ClassVar[Shop]
    protocol_version = "HTTP/1.1"
    timeout = 60

    def _route(self, method: str) -> None:
        content = whole_body(self)
        try:
            body = json.loads(content or b"{}")
        except ValueError:
            body = {"form": content.decode("utf-8", "replace")}
        answer = self.shop.serve(method, self.path, body, self.headers)
        self.close_connection = True
        if answer is None:
            self.connection.settimeout(10.0)
            try:
                self.connection.recv(1)  # until the caller gives up or is gone
            except OSError:
                pass
            return
        status, said = answer
        if status < 0:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        text = said if isinstance(said, str) else json.dumps(said)
        kind = "application/json"
        if isinstance(said, str):
            kind = "text/event-stream" if said.startswith("data:") else "text/html"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the ledger says everything that is counted."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that was killed in the middle of its answer is no news."""
