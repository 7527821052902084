"""The provider: a token endpoint over a loopback socket, whose answers may be lost, with a ledger that is fsynced."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from surefoot.testing.ledger import Ledger
from surefoot.testing.oauth import Promise, TokenEndpoint
from surefoot.testing.receiver import whole_body

EXCHANGE_SECONDS = 0.4
"""So long an exchange takes, so that callers who come together meet it under way."""


class Handler(BaseHTTPRequestHandler):
    endpoint: TokenEndpoint

    def do_POST(self) -> None:
        form = dict(parse_qsl(whole_body(self).decode()))
        status, body = self.endpoint.exchange(form["refresh_token"])
        time.sleep(EXCHANGE_SECONDS)
        self._answer(status, body)

    def do_GET(self) -> None:
        self._answer(self.endpoint.use(self.headers.get("Authorization", "").removeprefix("Bearer ")), {})

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        head = f"HTTP/1.0 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.wfile.write(head.encode() + content)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the ledger says what is counted."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers are killed all the time."""


@contextmanager
def provider(folder: Path, promise: Promise, access_seconds: float) -> Iterator[tuple[TokenEndpoint, str]]:
    """(the endpoint, its address)."""
    endpoint = TokenEndpoint(
        promise, Ledger(folder / "ledger.jsonl"), access_seconds=access_seconds, grace_seconds=600.0
    )
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"endpoint": endpoint}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield endpoint, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
