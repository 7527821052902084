"""One call at a service, whoever asks for it: read to its end and recorded, also when nobody is left to hear it.

What a stream holds from its terminal event on is given out only when the record is on disk, so an agent that saw the
end of an answer finds the same answer when it is started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ..http.recorded import Head


class Cut(Exception):
    """The answer broke off; what was given out of it is not a result."""


class Flight:
    """An answer on its way in, and everybody who listens to it. Used in one event loop."""

    def __init__(self, slot: str) -> None:
        """Nothing has arrived yet."""
        self.slot = slot
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[Head] = loop.create_future()
        self.done: asyncio.Future[bool] = loop.create_future()
        """Set when the answer is over: True if it is a result and recorded."""
        self._pieces: list[bytes] = []
        self._cut = False
        self._news: asyncio.Future[None] = loop.create_future()
        self.head.add_done_callback(lambda future: future.cancelled() or future.exception())

    def begin(self, head: Head) -> None:
        """Status and headers are known."""
        if not self.head.done():
            self.head.set_result(head)

    def give(self, piece: bytes) -> None:
        """Some of the body may be given out."""
        if piece:
            self._pieces.append(piece)
            self._ring()

    def end(self, *, recorded: bool, cut: bool = False) -> None:
        """Nothing more comes. `cut`: those who listen see the connection break."""
        self._cut = cut
        if not self.done.done():
            self.done.set_result(recorded)
        self._ring()

    def fail(self, error: BaseException) -> None:
        """The call could not be made, or its answer not kept; those who listen get this."""
        if not self.head.done():
            self.head.set_exception(error)
        self.end(recorded=False, cut=True)

    def whole(self) -> bytes | None:
        """The body, if all of it may be given out already."""
        return b"".join(self._pieces) if self.done.done() and not self._cut else None

    async def body(self) -> AsyncIterator[bytes]:
        """The body from its beginning, as far as it may be given out; Cut where it broke off."""
        number = 0
        while True:
            news = self._news
            while number < len(self._pieces):
                yield self._pieces[number]
                number += 1
            if self.done.done() and number == len(self._pieces):
                if self._cut:
                    raise Cut("the service's answer broke off")
                return
            if news is self._news:
                await asyncio.shield(news)

    def _ring(self) -> None:
        news, self._news = self._news, asyncio.get_running_loop().create_future()
        if not news.done():
            news.set_result(None)
