"""Nobody acts on half a request: an agent that is killed between its headers and its body has asked for nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from frameworks.world import Shop
from surefoot.testing.ledger import performed
from surefoot.testing.models.victim import Victim

HEAD = b"POST /do/charge HTTP/1.0\r\nIdempotency-Key: k\r\nContent-Length: 16\r\n\r\n"


def leave(port: int, said: bytes) -> bytes:
    """Say this much and go, as a process that is killed does; what was answered."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("body", [b"", b'{"op": '], ids=["no body", "half a body"])
def test_a_shop_does_nothing_for_half_a_request(tmp_path: Path, body: bytes) -> None:
    shop = Shop(tmp_path / "shop.jsonl", Victim(), None)
    port = shop.server_address[1]
    assert leave(port, HEAD + body) == b""
    assert performed(shop.ledger.lines())["charge"] == 0
    assert b'"receipt": "receipt:charge:1"' in leave(port, HEAD + b'{"op": "charge"}')
    assert performed(shop.ledger.lines())["charge"] == 1
    shop.shutdown()
    shop.server_close()
    shop.ledger.close()
