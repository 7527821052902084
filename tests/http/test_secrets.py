"""A service that quotes the credential which it refuses: whoever called hears it, and no record holds it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot import Surefoot, step, workflow
from surefoot import http as surefoot_http

CANARY = "sk-canary-8c1f0d"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
GEMINI = {"contents": [{"parts": [{"text": "hello"}]}]}


class Quoting(http.server.BaseHTTPRequestHandler):
    """Quotes headers and address: in an error, in a 200 that is an error, or in what is no HTTP at all."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        told = {"error": {"message": f"no such key: {dict(self.headers)} {self.path}"}}
        how = self.headers["X-How"]
        status = {"refused": b"401 -", "in a 200": b"200 -", "no protocol": CANARY.encode()}[how]
        head = b"HTTP/1.0 " + status + b"\r\nContent-Type: application/json\r\n\r\n"
        self.wfile.write(head + json.dumps(told).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def service() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quoting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@step
def goes_on() -> int:
    return 1


@pytest.mark.parametrize("how", ["refused", "in a 200", "no protocol"])
@pytest.mark.parametrize("place", ["header", "query"])
def test_a_credential_that_a_service_quotes_is_told_and_not_recorded(
    db: Path, service: str, place: str, how: str
) -> None:
    told: list[str] = []

    @workflow(name="asks")
    def asks() -> int:
        with surefoot_http.client(library=httpx) as client:
            try:
                told.append(ask(client, service, place, how).text)
            except httpx.TransportError as error:
                told.append(str(error))
        return goes_on()

    with Surefoot(db) as sf:
        sf.run(asks, id="r")
    assert CANARY in told[0]
    content = b"".join(path.read_bytes() for path in db.parent.glob(f"{db.name}*") if path.is_file())
    assert b"try:" in content, "the attempt is recorded"
    assert b"[hidden]" in content and CANARY.encode() not in content


def ask(client: httpx.Client, service: str, place: str, how: str) -> Any:
    headers = {"X-How": how}
    if place == "header":
        headers |= {"Authorization": f"Bearer {CANARY}"}
        return client.post(f"{service}/v1/chat/completions", json=BODY, headers=headers)
    return client.post(f"{service}/v1beta/models/m:generateContent?key={CANARY}", json=GEMINI, headers=headers)
