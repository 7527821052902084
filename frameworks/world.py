"""One fresh world for each row: a scripted model and a shop, which count, and which place the kill.

Nothing in the agent helps: a request is numbered when it arrives, and the process group dies before anything is
recorded of it, or when it was recorded and fsynced and before the answer leaves.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from surefoot.testing.ledger import Ledger, performed
from surefoot.testing.models import ModelServer, Planner, Victim
from surefoot.testing.receiver import Receiver, whole_body

from .kit import OPERATIONS
from .rows import Kill


class Shop(ThreadingHTTPServer):
    """Reserves, charges and confirms; knows a repeat by its key, and only by its key."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: Path, victim: Victim, kill: Kill | None) -> None:
        """Serving when this returns."""
        self.ledger = Ledger(path)
        self.receiver = Receiver(self.ledger)
        self.victim, self.kill = victim, kill
        self.seen: dict[str, int] = {}
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def arrive(self, op: str) -> int:
        with self.lock:
            self.seen[op] = self.seen.get(op, 0) + 1
            return self.seen[op]

    def dead(self, op: str, when: str, number: int, connection: socket.socket) -> bool:
        if self.kill is None or (self.kill.at, self.kill.when, self.kill.number) != (op, when, number):
            return False
        self.victim.kill(connection)
        return True

    def receipt(self, op: str) -> str | None:
        """What the ledger shows of this operation."""
        done = [line for line in self.ledger.lines() if line.what == "performed" and line.name == op]
        return f"receipt:{op}:{done[-1].number}" if done else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Shop  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        shop, op = self.server, self.path.rsplit("/", 1)[1]
        number = shop.arrive(op)
        body = json.loads(whole_body(self) or b"{}")
        if shop.dead(op, "before", number, self.connection):
            return
        key = self.headers.get("Idempotency-Key", "")
        reply = shop.receiver.send("keyed" if key else "opaque", op, body, key=key)
        if shop.dead(op, "after", number, self.connection):
            return
        self._answer(reply.status, {"receipt": f"receipt:{op}:{reply.body.get('number')}"})

    def do_GET(self) -> None:
        op = self.path.rsplit("/", 1)[1]
        self._answer(200, {"found": [f"receipt:{op}:{held['number']}" for held in self.server.receiver.find(op)]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class World:
    """A shop, a model, and the folder that an agent keeps between its lives; a context manager."""

    def __init__(self, folder: Path, planner: Planner, kill: Kill | None, *, proxied: bool = False) -> None:
        """Serving when this returns. `proxied`: who asks the model is not the agent, and lives on to hear the reply."""
        self.folder = folder
        self.kill = kill

        def boundary(when: str, number: int, connection: socket.socket) -> bool:
            if kill is None or (kill.at, kill.when, kill.number) != ("model", when, number):
                return False
            self.victim.kill(None if proxied else connection)
            return not proxied

        self.models = ModelServer(planner, record=folder / "models.jsonl", boundary=boundary).start()
        self.victim = self.models.victim
        self.shop = Shop(folder / "shop.jsonl", self.victim, kill)

    @property
    def effects(self) -> dict[str, int]:
        """How often each operation really happened."""
        done = performed(self.shop.ledger.lines())
        return {op: done[op] for op in OPERATIONS}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.models.close()
        self.shop.shutdown()
        self.shop.server_close()
        self.shop.ledger.close()
