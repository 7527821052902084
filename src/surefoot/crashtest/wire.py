"""HTTP/1.1 off and onto a socket: just enough for a local server that is asked by any client.

The standard library's server parses headers as e-mail does, which costs more than everything else the gateway does.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from ..testing.twins.messages import Call, Page

HEAD_BYTES_MAX = 256 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
REASONS = {200: "OK", 201: "Created", 204: "No Content", 400: "Bad Request", 404: "Not Found", 500: "Server Error"}
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length")
)


class BadRequest(Exception):
    """What came is no HTTP/1.1 request."""


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """One request: the call, its target as it was written, and whether the connection stays."""

    call: Call
    target: str
    keeps: bool


class Stream:
    """One connection, read in pieces."""

    def __init__(self, connection: socket.socket) -> None:
        """The socket belongs to the caller."""
        self.connection = connection
        self._held = b""

    def _more(self) -> bool:
        part = self.connection.recv(65536)
        self._held += part
        return bool(part)

    def _until(self, mark: bytes, most: int) -> bytes | None:
        while mark not in self._held:
            if len(self._held) > most:
                raise BadRequest("a head or line is longer than any that is read")
            if not self._more():
                return None
        found, _, self._held = self._held.partition(mark)
        return found

    def _exactly(self, count: int) -> bytes:
        if count > BODY_BYTES_MAX:
            raise BadRequest(f"a body of {count} bytes is longer than any that is read")
        while len(self._held) < count:
            if not self._more():
                raise BadRequest("the connection ended within a body")
        found, self._held = self._held[:count], self._held[count:]
        return found

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            line = self._until(b"\r\n", HEAD_BYTES_MAX)
            if line is None:
                raise BadRequest("the connection ended within a body")
            size = int(line.partition(b";")[0], 16)
            if not size:
                while self._until(b"\r\n", HEAD_BYTES_MAX):  # trailers, up to the empty line
                    continue
                return b"".join(parts)
            parts.append(self._exactly(size))
            self._until(b"\r\n", 16)

    def read(self) -> Arrived | None:
        """The next request; None when the other side has closed. Raises BadRequest, OSError."""
        head = self._until(b"\r\n\r\n", HEAD_BYTES_MAX)
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        try:
            method, target, version = first.split(" ")
        except ValueError:
            raise BadRequest(f"{first[:80]!r} is no request line") from None
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in headers.get("transfer-encoding", "").lower():
            body = self._chunks()
        else:
            body = self._exactly(int(headers.get("content-length") or 0))
        parts = urlsplit(target)
        call = Call(
            method=method,
            path=unquote(parts.path) or "/",
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers=headers,
            body=body,
        )
        stays = headers.get("connection", "").lower() != "close" and version == "HTTP/1.1"
        return Arrived(call=call, target=f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", keeps=stays)


def write(connection: socket.socket, page: Page, *, method: str, keeps: bool) -> None:
    """Send a whole reply in one piece."""
    lines = [f"HTTP/1.1 {page.status} {REASONS.get(page.status, '-')}"]
    lines += [f"{name}: {value}" for name, value in page.headers.items() if name.lower() not in HOP_BY_HOP]
    if page.status not in (204, 304):
        lines.append(f"Content-Length: {len(page.body)}")
    lines.append(f"Connection: {'keep-alive' if keeps else 'close'}")
    head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
    empty = method == "HEAD" or page.status in (204, 304)
    connection.sendall(head if empty else head + page.body)
