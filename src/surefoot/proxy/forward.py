"""Makes a call at a service and brings its answer home: recorded first, then given to whoever listens.

An answer that is no success, an error inside a stream, a stream that breaks off: these are tries, kept beside the call,
and the call may be made again. What counts as what is the HTTP layer's to say, here as in a process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.digest import short_digest
from ..http import recorded
from ..http.gemini import CallIds
from ..http.recorded import Head
from ..http.request import Asked
from ..http.secrets import without_secrets
from ..http.sse import Commit, Events, Pieces, Recorder
from .flight import Flight
from .reply import kept_of
from .runs import HeldRun, Question, RunClosed

if TYPE_CHECKING:
    import httpx

SUCCESS = range(200, 300)
UNREACHED = 502


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to a service: `url` and `headers` as they are sent, `asked` as it is compared."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    asked: Asked

    @property
    def question(self) -> Question:
        """What the journal keeps of it, the same as of a call in a process."""
        asked = self.asked
        digest = short_digest(b"\0".join((asked.api.encode(), asked.model.encode(), asked.fingerprint)))
        return Question(kind=asked.api, name=asked.model, digest=digest, preview=asked.preview)


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
            await Landing(held, flight, call).make(self._client)
        except BaseException as error:
            flight.fail(error if isinstance(error, RunClosed) else RunClosed(500, f"the proxy failed: {error!r}"))
            if not isinstance(error, RunClosed):
                raise
        finally:
            if held.book.flights.get(flight.slot) is flight:
                del held.book.flights[flight.slot]
            if not flight.done.done():
                flight.end(recorded=False, cut=True)
            await held.tell()

    async def close(self, seconds: float) -> None:
        """Wait for every call under way; one that takes longer is given up, and paid again by the next proxy."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class Landing:
    """One call at a service, from its request to its record."""

    def __init__(self, held: HeldRun, flight: Flight, call: Call) -> None:
        """Nothing was sent yet."""
        self._held, self._flight, self._call = held, flight, call
        self._head: Head | None = None
        self._recorder: Recorder | None = None
        self._is_recorded = False
        self._whole: list[bytes] = []

    async def make(self, client: httpx.AsyncClient) -> None:
        """Send, read, record."""
        import httpx

        call = self._call
        try:
            request = client.build_request(call.method, call.url, headers=list(call.headers), content=call.body)
            response = await client.send(request, stream=True)
            try:
                self._begin(response)
                async for piece in response.aiter_bytes():
                    await self._feed(piece)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            if not self._is_recorded:  # else nothing is missing of the answer
                await self._broken(error)
                return
        await self._end()

    def _begin(self, response: httpx.Response) -> None:
        headers = list(kept_of(response.headers.multi_items()))
        self._head = Head(response.status_code, headers)
        kind = response.headers.get("content-type", "")
        if response.status_code not in SUCCESS or ("json" in kind and "ndjson" not in kind):
            return
        self._recorder = Events(self._ids()) if recorded.is_stream(kind) else Pieces()
        self._flight.begin(self._head)

    def _ids(self) -> CallIds | None:
        asked = self._call.asked
        return CallIds(asked.fingerprint + self._flight.slot.encode()) if asked.api == "gemini.generate" else None

    async def _feed(self, piece: bytes) -> None:
        if self._recorder is None:
            self._whole.append(piece)
        else:
            await self._give(self._recorder.feed(piece))

    async def _give(self, out: list[bytes | Commit]) -> None:
        for each in out:
            if isinstance(each, bytes):
                self._flight.give(each)
            else:
                assert self._recorder is not None
                await self._record(self._recorder.answer(), self._recorder)
                self._is_recorded = True

    async def _end(self) -> None:
        assert self._head is not None
        recorder = self._recorder
        if recorder is not None:
            await self._give(recorder.finish())
            if not self._is_recorded:
                await self._failed(recorder.answer(), "")  # it ended in order, and is no answer
            self._flight.end(recorded=self._is_recorded)
            return
        body = b"".join(self._whole)
        if (ids := self._ids()) is not None:
            body = ids.named(body)
        content = _content(body)
        if self._head.status not in SUCCESS or recorded_as_error(content):
            await self._failed(body, "")
        else:
            pieces = Pieces()
            pieces.tally.see(content)
            await self._record(body, pieces)
            self._is_recorded = True
        self._flight.begin(self._head)
        self._flight.give(body)
        self._flight.end(recorded=self._is_recorded)

    async def _broken(self, error: httpx.HTTPError) -> None:
        """The service was not reached, or its answer broke off."""
        if self._head is None:
            self._head, body = unreached(error)
            await self._failed(body, "")
            self._flight.begin(self._head)
            self._flight.give(body)
            self._flight.end(recorded=False)
            return
        self._flight.begin(self._head)
        content = b"".join(self._whole) if self._recorder is None else self._recorder.answer()
        if self._recorder is None:
            self._flight.give(content)
        await self._failed(content, type(error).__name__)
        self._flight.end(recorded=False, cut=True)

    async def _record(self, body: bytes, recorder: Recorder) -> None:
        assert self._head is not None
        await self._held.keep(
            self._flight.slot,
            self._call.question,
            recorded.encode(self._head, body),
            usage=recorder.tally.usage(),
            asked=self._call.asked,
        )

    async def _failed(self, body: bytes, error: str) -> None:
        assert self._head is not None
        head = Head(self._head.status, self._head.headers, error=error)
        hidden = without_secrets(body, self._call.url, dict(self._call.headers))
        await self._held.keep_failure(self._flight.slot, self._call.question, recorded.encode(head, hidden))


def recorded_as_error(content: Any) -> bool:
    """True for an answer of status 200 that says it is an error, as gateways send them."""
    match content:
        case {"status": "failed"}:
            return True
        case {"error": error} if error:
            return not ({"choices", "output", "content", "candidates", "data"} & content.keys())
        case _:
            return False


def _content(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        return None


def unreached(error: Exception) -> tuple[Head, bytes]:
    """What an agent is told when the service could not be asked, or did not begin to answer."""
    message = f"surefoot proxy: the service did not answer ({type(error).__name__})"
    return problem(UNREACHED, message, "service_unreached")


def problem(status: int, message: str, code: str) -> tuple[Head, bytes]:
    """An error in the form that the clients of all model services can read."""
    content = json.dumps({"type": "error", "error": {"type": code, "code": code, "message": message}}).encode()
    return Head(status, [("content-type", "application/json"), ("x-surefoot-problem", code)]), content
