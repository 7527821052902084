"""An answer as it is stored and replayed: status, the headers worth keeping, and the body byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..core.errors import UsageError
from ..core.values import encode_canonical

Headers = tuple[tuple[str, str], ...]
KEPT_HEADERS = frozenset(
    (
        *("content-type", "content-encoding", "content-language", "content-disposition", "content-location"),
        *("location", "etag", "last-modified", "link", "cache-control", "vary", "deprecation", "sunset"),
    )
)
"""What a replay repeats. Set-Cookie is not among them: a replay must not start a session a second time."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response. Header names are lower case; the length is not among them, since it follows from the body."""

    status: int
    headers: Headers = ()
    body: bytes = b""

    @staticmethod
    def json(status: int, content: Any, headers: Headers = ()) -> Answer:
        """An answer with a JSON body; raises ValueRefused for what JSON cannot hold."""
        return Answer(
            status=status,
            headers=(("content-type", "application/json"), *headers),
            body=encode_canonical(content, "the answer"),
        )

    def wire_headers(self, *more: tuple[str, str]) -> list[tuple[bytes, bytes]]:
        """As ASGI wants them, with the length."""
        length = () if self.status in (204, 304) else (("content-length", str(len(self.body))),)
        return [(n.encode("latin-1"), v.encode("latin-1")) for n, v in (*self.headers, *length, *more)]


_decoder = msgspec.json.Decoder(Answer)


def store_answer(answer: Answer) -> str:
    """As it stands in the row: JSON, the body in base64."""
    return msgspec.json.encode(answer).decode()


def stored_answer(content: str) -> Answer:
    """The answer from its row; a malformed one is an error, never a default."""
    return _decoder.decode(content)


def kept(headers: Iterable[tuple[bytes, bytes]], names: frozenset[str]) -> Headers:
    """Those headers whose names are in the list."""
    read = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
    return tuple((name, value) for name, value in read if name in names)


def check_answer(answer: object) -> Answer:
    """The answer that a person gives, or UsageError."""
    if not isinstance(answer, Answer):
        raise UsageError(f"happened= must be an Answer(status=, headers=, body=), found {type(answer).__name__}")
    if not 200 <= answer.status <= 599:
        raise UsageError(f"an Answer's status must be 200 to 599, found {answer.status!r}")
    for name, value in answer.headers:
        if name != name.lower() or not name.isascii() or "\n" in value or "\r" in value:
            raise UsageError(f"an Answer's header must have a lower-case name and one line, found {name!r}: {value!r}")
    return answer
