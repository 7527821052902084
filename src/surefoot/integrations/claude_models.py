"""The model calls of a command-line agent that this process starts, in the run's own journal.

The program is told this address instead of the provider's (`ANTHROPIC_BASE_URL`). Each request is forwarded from
here, so that it is recorded, replayed, or refused in a run that has stopped, as if the run had made it. For agents that
this process does not start, or that have to outlive it, there is `surefoot proxy`.
"""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .. import http
from ..core.errors import Signal, SurefootError
from ..runtime.clock import variable

HOP_BY_HOP = frozenset(
    ("accept-encoding", "connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding")
)
TIMEOUT_SECONDS = 600.0
ANTHROPIC = "https://api.anthropic.com"


@contextmanager
def recorded_models(upstream: str = "") -> Generator[str]:
    """Within the block, the address at which model calls of this run are answered; loopback only.

    `upstream` is asked: if it is empty, what `ANTHROPIC_BASE_URL` names here, such as a gateway, or else Anthropic.
    Enter it in the run, inside the call scope that the calls belong to. A call that is not answered when the block ends
    is cut off, and made again after a restart.
    """
    context = contextvars.copy_context()
    upstream = (upstream or variable("ANTHROPIC_BASE_URL") or ANTHROPIC).rstrip("/")
    client = http.client(timeout=TIMEOUT_SECONDS)
    handler = type("Forwarding", (_Forwarding,), {"context": context, "client": client, "upstream": upstream})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="surefoot-models", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        client.close()


class _Forwarding(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    context: contextvars.Context
    client: Any
    upstream: str

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the journal says what was called."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.context.copy().run(self._forward, body)

    def _forward(self, body: bytes) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        began = False
        try:
            with self.client.stream(self.command, self.upstream + self.path, content=body, headers=headers) as answer:
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                began = True
                for part in answer.iter_bytes():
                    self._write(part)
                self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the program has gone
        except (Signal, SurefootError) as stop:
            self._refuse(str(stop) or type(stop).__name__, began=began)
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}", began=began, status=502)

    def _write(self, part: bytes) -> None:
        if part:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.flush()

    def _refuse(self, why: str, *, began: bool, status: int = 403) -> None:
        """403 is not tried again; the connection of an answer that had begun is cut."""
        self.close_connection = True
        if began:
            return
        content = json.dumps({"type": "error", "error": {"type": "permission_error", "message": f"surefoot: {why}"}})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    do_GET = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815


__all__ = ["recorded_models"]
