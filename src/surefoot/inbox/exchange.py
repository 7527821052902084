"""The request read whole before the handler runs, and the response kept whole before it leaves (plain ASGI).

The handler is never told that its client has gone: it runs to its end, so that its answer is stored, and the client's
repeat gets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..core.errors import SurefootError
from .answers import Answer
from .request import Scope, header_values

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]
SEEN_BY_EVENT_STREAM = b"text/event-stream"


class TooLarge(Exception):
    """The request's body is over the limit."""


class ClientGone(Exception):
    """The client left before its request had arrived."""


class AnswerRefused(SurefootError):
    """Ends a response that goes on for longer than can be stored."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, at most `limit` bytes; raises TooLarge or ClientGone."""
    for value in header_values(scope, b"content-length"):
        if value.isdigit() and int(value) > limit:
            raise TooLarge
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def send_answer(send: Send, answer: Answer, *more: tuple[str, str]) -> None:
    """Send an answer whole."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.wire_headers(*more)})
    await send({"type": "http.response.body", "body": answer.body})


class Exchange:
    """The handler's side of one request: `receive` gives the body, `send` collects the response.

    When the response is complete, `finish(status, headers, body, why_not)` is awaited once, before anything leaves;
    `why_not` says why this response cannot be stored, and is "" if it can.
    """

    def __init__(
        self, body: bytes, limit: int, finish: Callable[[int, list[tuple[bytes, bytes]], bytes, str], Awaitable[None]]
    ) -> None:
        """`limit`: bytes of a response that are kept."""
        self._body: bytes | None = body
        self._limit = limit
        self._finish = finish
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._over = asyncio.Event()
        self.is_finished = False
        self.was_cut_short = False

    async def receive(self) -> Message:
        """The body once; then nothing until the response is complete."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Collect; at the end of the response, finish."""
        if self.is_finished:
            return  # the rest of a response that was refused
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            if any(n.lower() == b"content-type" and SEEN_BY_EVENT_STREAM in v.lower() for n, v in self._headers):
                await self._refuse("a stream of events has no end that could be stored")
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self._size += len(part)
            more = message.get("more_body", False)
            self._parts.append(part)
            if self._size > self._limit:
                await self._refuse(f"it has more than {self._limit} bytes, the most that is stored")
            elif not more:
                await self._end("")

    async def _refuse(self, why: str) -> None:
        declared = any(name.lower() == b"content-length" for name, _ in self._headers)
        await self._end(why)
        if not declared:
            self.was_cut_short = True
            raise AnswerRefused(
                f"the answer of this endpoint cannot be stored: {why}; do not protect it, or raise the limit"
            )

    async def _end(self, why: str) -> None:
        assert not self.is_finished, "a response ends once"
        self.is_finished = True
        try:
            await self._finish(self._status, self._headers, b"".join(self._parts), why)
        finally:
            self._over.set()
