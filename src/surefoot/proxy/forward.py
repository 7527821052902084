"""Makes a call at a service and brings its answer home: recorded first, then given to whoever listens.

An answer that is no success, an error inside a stream, a stream that breaks off: these are tries, kept beside the call,
and the call may be made again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .flight import Flight, Head
from .interim import Reply, Terminal, decode_reply, encode_reply
from .reply import kept_of, without_secrets
from .runs import HeldRun, RunClosed

if TYPE_CHECKING:
    import httpx

SUCCESS = range(200, 300)
UNREACHED = 502


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to a service: `url` and `headers` as they are sent, `digest` over what is compared."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    digest: bytes
    preview: str


class Forwarder:
    """Makes calls with one client, and keeps the tasks that make them: no request of an agent owns one."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """`client` makes no retries of its own: one call is one request."""
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, held: HeldRun, slot: str, call: Call) -> Flight:
        """The call under way. It ends by itself, whoever listens."""
        flight = held.book.flights[slot] = Flight(slot)
        self.keep(self._fly(held, flight, call))
        return flight

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, held: HeldRun, flight: Flight, call: Call) -> None:
        try:
            await self._make(held, flight, call)
        except BaseException as error:
            flight.fail(error if isinstance(error, RunClosed) else RunClosed(500, f"the proxy failed: {error!r}"))
            if not isinstance(error, RunClosed):
                raise
        finally:
            if held.book.flights.get(flight.slot) is flight:
                del held.book.flights[flight.slot]
            if not flight.done.done():
                flight.end(recorded=False, cut=True)
            async with held.moved:
                held.moved.notify_all()

    async def _make(self, held: HeldRun, flight: Flight, call: Call) -> None:
        import httpx

        pieces: list[bytes] = []
        reply: Reply | None = None
        terminal: Terminal | None = None
        try:
            request = self._client.build_request(call.method, call.url, headers=list(call.headers), content=call.body)
            response = await self._client.send(request, stream=True)
            try:
                headers = kept_of(response.headers.multi_items())
                reply = Reply(status=response.status_code, headers=headers, content=b"")
                terminal = Terminal.of(response.status_code, dict(headers))
                if terminal is not None:
                    flight.begin(Head(status=reply.status, headers=headers))
                async for piece in response.aiter_bytes():
                    pieces.append(piece)
                    if terminal is not None:
                        flight.give(terminal.feed(piece))
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            if reply is None:
                await self._failed(held, flight, call, unreached(error))
                return
            if terminal is None or not terminal.is_complete:
                content = b"".join(pieces)
                broken = Reply(status=reply.status, headers=reply.headers, content=content, cut=True)
                await self._failed(held, flight, call, broken, given=terminal)
                return
        assert reply is not None
        whole = Reply(status=reply.status, headers=reply.headers, content=b"".join(pieces))
        if whole.status not in SUCCESS or (terminal is not None and not terminal.is_complete):
            await self._failed(held, flight, call, whole, given=terminal)
            return
        await held.keep(flight.slot, call, encode_reply(whole))
        self._give(flight, whole, terminal)
        flight.end(recorded=True)

    async def _failed(
        self, held: HeldRun, flight: Flight, call: Call, reply: Reply, given: Terminal | None = None
    ) -> None:
        hidden = without_secrets(reply.content, dict(call.headers))
        stored = encode_reply(Reply(status=reply.status, headers=reply.headers, content=hidden, cut=reply.cut))
        await held.keep_failure(flight.slot, call, stored)
        self._give(flight, reply, given)
        flight.end(recorded=False, cut=reply.cut)

    def _give(self, flight: Flight, reply: Reply, terminal: Terminal | None) -> None:
        """The whole answer, or what was held back of a stream."""
        if terminal is not None:
            flight.give(terminal.rest())
            return
        flight.begin(Head(status=reply.status, headers=reply.headers))
        flight.give(reply.content)

    async def close(self) -> None:
        """Wait for every call under way."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))


def unreached(error: Exception) -> Reply:
    """What an agent is told when the service could not be asked, or did not begin to answer."""
    message = f"surefoot proxy: the service did not answer ({type(error).__name__})"
    return problem(UNREACHED, message, "service_unreached")


def problem(status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> Reply:
    """An error in the form that the clients of all model services can read."""
    content = json.dumps({"type": "error", "error": {"type": code, "code": code, "message": message}}).encode()
    shown = {"content-type": "application/json", "x-surefoot-problem": code, **(headers or {})}
    return Reply(status=status, headers=tuple(shown.items()), content=content)


def as_reply(content: bytes) -> Reply:
    """A recorded answer."""
    return decode_reply(content)
