"""How an answer is kept: one line of JSON with status and headers, then the decoded body, byte by byte.

A failed attempt is kept in the same form, with `error` naming what the client saw. What a connection adds (its
encoding, its length, cookies, the date) is left out, live as well as on replay, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..core.errors import Damaged

DROPPED = frozenset(
    {
        "alt-svc",
        "connection",
        "content-encoding",
        "content-length",
        "date",
        "keep-alive",
        "set-cookie",
        "strict-transport-security",
        "trailer",
        "transfer-encoding",
        "vary",
    }
)
"""Headers of an answer that belong to the connection, not to the answer."""


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status and headers. `error` is the client's exception, `text` its message; a cut stream has a body too."""

    status: int
    headers: list[tuple[str, str]]
    error: str = ""
    text: str = ""


_encode = msgspec.json.encode
_decode_head = msgspec.json.Decoder(Head).decode


def kept(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that belong to the answer."""
    return [(name, value) for name, value in headers if name.lower() not in DROPPED]


def encode(head: Head, body: bytes) -> bytes:
    """As it is kept."""
    return _encode(head) + b"\n" + body


def decode(answer: bytes) -> tuple[Head, bytes]:
    """(status and headers, body); Damaged if it is no answer."""
    head, _, body = answer.partition(b"\n")
    try:
        return _decode_head(head), body
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged("a recorded answer of a model", str(error)) from None


def events(body: bytes) -> list[bytes]:
    """A recorded stream in the pieces in which it is given out again: an event each."""
    from .sse import split

    whole, rest = split(body)
    return [*whole, rest] if rest else whole


def is_stream(content_type: str) -> bool:
    """True for server-sent events."""
    return content_type.startswith("text/event-stream")
