"""What makes two requests the same: who asks (scope), and for what (fingerprint). Both are pure and replaceable."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.errors import ValueRefused
from ..core.values import encode_canonical

Scope = Mapping[str, Any]
"""An ASGI scope."""
PATH_CHARS_SHOWN = 100


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Every value of a header, by its lower-case name."""
    return [value for given, value in scope["headers"] if given.lower() == name]


def _digest(person: bytes, *parts: bytes) -> str:
    framed = b"".join(struct.pack(">Q", len(part)) + part for part in parts)
    return hashlib.blake2b(framed, digest_size=16, person=person).hexdigest()


def authorization(scope: Scope) -> str:
    """The default scope: a digest of the Authorization header, so that keys of two credentials never meet.

    Requests without the header share one scope. A credential that changes between a request and its repeat (a refreshed
    token) makes another client: then name the account instead.
    """
    values = header_values(scope, b"authorization")
    return _digest(b"surefoot-client", *values) if values else "anonymous"


def scope_of(scope: Scope, client: str) -> str:
    """Method, path and client in at most 200 characters that a person can read; no two of them give the same."""
    method, path = str(scope["method"]), str(scope["path"])
    shown = "".join(c if c.isprintable() else "?" for c in path[:PATH_CHARS_SHOWN])
    told = _digest(
        b"surefoot-scope",
        method.encode(),
        path.encode("utf-8", "surrogatepass"),
        client.encode("utf-8", "surrogatepass"),
    )
    return f"http:{method} {shown} {told}"


def exact(scope: Scope, body: bytes) -> str:
    """The default fingerprint: method, path, query and the body's bytes as they arrived."""
    return _fingerprint(scope, body)


def same_json(scope: Scope, body: bytes) -> str:
    """The same, but two bodies that are the same JSON are the same: order of members and white space do not count.

    Numbers count as they are written: 1 and 1.0 differ. A body that is no JSON counts byte by byte.
    """
    try:
        canonical = encode_canonical(msgspec.json.decode(body), "the body") if body else body
    except (msgspec.DecodeError, ValueRefused, UnicodeDecodeError):
        canonical = body
    return _fingerprint(scope, canonical)


def _fingerprint(scope: Scope, body: bytes) -> str:
    path = str(scope["path"]).encode("utf-8", "surrogatepass")
    content = (str(scope["method"]).encode(), path, bytes(scope.get("query_string", b"")), body)
    return _digest(b"surefoot-request", *content)
