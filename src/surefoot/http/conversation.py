"""What was asked, kept once: a conversation's messages by their content, each behind the one before.

Request 200 of a conversation holds the first 199 again. Kept whole, a journal would grow with the square of a
conversation; here a request is two names, of the last message's link and of what is beside the messages (the model,
the tools), and each link holds one message, or names it if it is long, and names the link before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from ..core.digest import blob_hash
from ..core.writes import Blobs
from .request import Asked

LISTS = ("messages", "input", "contents")
SHORT_BYTES = 512
"""A message of so many bytes stands in its link: a blob of its own would cost as much again."""
_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation, itself or by name, and the link before it ("" for the first); names in hex."""

    before: str = ""
    name: str = ""
    message: msgspec.Raw = msgspec.Raw(b"null")


class Beside(msgspec.Struct, frozen=True):
    """What a request says beside its messages: where it went, and the rest of its body."""

    where: tuple[str, ...]
    body: dict[str, Any]


def _blob(content: bytes, blobs: dict[bytes, bytes]) -> str:
    name = blob_hash(content)
    blobs[name] = content
    return name.hex()


def request_blobs(asked: Asked, known: dict[tuple[str, bytes], str] | None = None) -> tuple[str, Blobs]:
    """(the request in short, its parts by content); ("", ()) for a body that is not JSON.

    In short: the name of the list of messages, the last link, and the blob of what is beside. `known` gives the link of
    a message behind another; it is added to, and what is in it is left out of the parts.
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
            link = links[last, content] = _blob(_encode(_link(last, content, blobs)), blobs)
        last = link
    rest = {key: value for key, value in asked.body.items() if key != name}
    beside = _blob(_encode(Beside(asked.rest, rest)), blobs)
    return f"{name}:{last}:{beside}", tuple(blobs.items())


def _link(before: str, message: bytes, blobs: dict[bytes, bytes]) -> Link:
    if len(message) <= SHORT_BYTES:
        return Link(before=before, message=msgspec.Raw(message))
    return Link(before=before, name=_blob(message, blobs))


def request_body(read: Callable[[bytes], bytes], request: str) -> dict[str, Any]:
    """The body of a request, without its volatile members; `read` gives a blob, as a store's `read_blob` does."""
    name, last, beside = request.split(":")
    body = msgspec.json.decode(read(bytes.fromhex(beside)), type=Beside).body
    messages: list[Any] = []
    while last:
        link = msgspec.json.decode(read(bytes.fromhex(last)), type=Link)
        messages.append(_decode(read(bytes.fromhex(link.name)) if link.name else link.message))
        last = link.before
    if name:
        body[name] = messages[::-1]
    return body
