"""What was asked, kept once: a conversation's messages by their content, each behind the one before.

Request 200 of a conversation holds the first 199 again. Kept whole, a journal would grow with the square of a
conversation; here a request is two names, of the last message's link and of what is beside the messages (the model,
the tools), and each link names one message and the link before it.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ..core.digest import blob_hash
from ..core.writes import Blobs
from .request import Asked

LISTS = ("messages", "input", "contents")
_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class Link(msgspec.Struct, frozen=True):
    """One message of a conversation, and the link before it ("" for the first); names of blobs, in hex."""

    message: str
    before: str


class Request(msgspec.Struct, frozen=True):
    """One request: where it went, the conversation's list by its name and last link, and all that is beside it."""

    where: tuple[str, ...]
    list: str
    last: str
    beside: str


def _blob(content: bytes, blobs: dict[bytes, bytes]) -> str:
    name = blob_hash(content)
    blobs[name] = content
    return name.hex()


def request_blobs(asked: Asked, known: dict[tuple[str, bytes], str] | None = None) -> tuple[str, Blobs]:
    """(the name of the request, its parts by content); ("", ()) for a body that is not JSON.

    `known` gives the link of a message behind another; it is added to, and what is in it is left out of the parts.
    """
    links = {} if known is None else known
    if asked.body is None:
        return "", ()
    blobs: dict[bytes, bytes] = {}
    name = next((name for name in LISTS if isinstance(asked.body.get(name), list)), "")
    last = ""
    for message in cast("list[Any]", asked.body[name]) if name else ():
        content = _encode(message)
        link = links.get((last, content))
        if link is None:
            link = links[last, content] = _blob(_encode(Link(_blob(content, blobs), last)), blobs)
        last = link
    beside = _blob(_encode({key: value for key, value in asked.body.items() if key != name}), blobs)
    return _blob(_encode(Request(asked.rest, name, last, beside)), blobs), tuple(blobs.items())


class Blobbed:
    """Reads requests back. `read` gives a blob by its name."""

    def __init__(self, read: Any) -> None:
        """Usually a store's `read_blob`."""
        self._read = read

    def body(self, name: str) -> dict[str, Any]:
        """The body of a request, without its volatile members."""
        request = msgspec.json.decode(self._get(name), type=Request)
        body: dict[str, Any] = _decode(self._get(request.beside))
        if request.list:
            messages: list[Any] = []
            last = request.last
            while last:
                link = msgspec.json.decode(self._get(last), type=Link)
                messages.append(_decode(self._get(link.message)))
                last = link.before
            body[request.list] = messages[::-1]
        return body

    def _get(self, name: str) -> bytes:
        return self._read(bytes.fromhex(name))
