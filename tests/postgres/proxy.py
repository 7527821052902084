"""A TCP proxy before a server that cuts a connection at a chosen byte of a request or of its answer."""

from __future__ import annotations

import selectors
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards to `target`; `arm` makes the next bytes of one direction the last that are forwarded."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._servers: set[socket.socket] = set()
        self._plan: tuple[str, int] | None = None
        self._closing = False
        self.cuts = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def arm(self, direction: str, after_bytes: int) -> None:
        """`request`: forward so many bytes of the next request; `answer`: of the next answer; then cut."""
        self._plan = (direction, after_bytes)

    def disarm(self) -> None:
        self._plan = None

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(0.2):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._pairs:
                    self._forward(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs |= {client: server, server: client}
        self._servers.add(server)
        self._selector.register(client, selectors.EVENT_READ)
        self._selector.register(server, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            content = source.recv(65536)
        except OSError:
            content = b""
        direction = "answer" if source in self._servers else "request"
        plan = self._plan
        try:
            if content and plan is not None and plan[0] == direction:
                self._plan = None
                self.cuts += 1
                self._pairs[source].sendall(content[: plan[1]])
                content = b""
            if content:
                self._pairs[source].sendall(content)
                return
        except OSError:
            pass
        self._cut(source)

    def _cut(self, source: socket.socket) -> None:
        for each in (source, self._pairs[source]):
            self._selector.unregister(each)
            self._pairs.pop(each)
            self._servers.discard(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            each.close()

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        for each in (*self._pairs, self._listener):
            each.close()
