"""What the proxy answers: it finds the run and the attempt of a request, and gives what is recorded, or makes the call.

Bound to loopback it answers this machine's programs; a page in a browser could reach it too, so whatever comes with an
Origin, or for another host's name, is refused.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..core.calls import ROOT, in_path
from ..core.errors import StoreError, SurefootError, UsageError
from ..http import recorded
from ..http.recorded import Head
from ..http.request import api_by_path, asked_of
from .address import Address, read_address
from .book import Attempt, Behind, Miss, Recorded
from .flight import Cut, Flight
from .forward import SUCCESS, Call, Forwarder, problem, unreached
from .options import Options, Upstream, is_loopback
from .peer import Peers
from .reply import REPLAYED, kept_of, sent_on
from .runs import HeldRun, RunClosed, Runs
from .tokens import Tokens

if TYPE_CHECKING:
    import httpx
    from starlette.types import Receive, Scope, Send

BODY_BYTES_MAX = 256 << 20


class Refusal(Exception):
    """An answer of the proxy's own."""

    def __init__(self, status: int, message: str, code: str) -> None:
        """`code` is for programs, `message` says what to do."""
        super().__init__(message)
        self.reply = problem(status, f"surefoot proxy: {message}", code)


class Proxy:
    """The proxy's answers, over the runs of one store."""

    def __init__(self, options: Options, runs: Runs, tokens: Tokens, client: httpx.AsyncClient) -> None:
        """`client` is what services are asked with; the caller closes it."""
        self.options, self.runs, self.tokens, self._client = options, runs, tokens, client
        self.forwarder = Forwarder(client)
        self._upstreams = {each.name: each for each in options.upstreams}
        self._peers = Peers()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application. It has no routes: where a request goes stands in front of its path."""
        if scope["type"] == "http":
            response = await self.answer(Request(scope, receive))
            await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """Every request comes here."""
        try:
            return await self._answer(request)
        except Refusal as refusal:
            return _whole(refusal.reply)
        except RunClosed as closed:
            return _whole(problem(closed.status, f"surefoot proxy: {closed.reason}", "run_closed"))
        except UsageError as error:
            return _whole(problem(400, f"surefoot proxy: {error}", "bad_address"))
        except (StoreError, SurefootError) as error:
            return _whole(problem(503, f"surefoot proxy: {error}", "store_failed"))
        except ClientDisconnect:
            return Response(status_code=499)

    async def _answer(self, request: Request) -> Response:
        raw = request.scope.get("raw_path") or request.url.path.encode()
        address = read_address(raw.decode("latin-1").partition("?")[0], request.headers)
        self._admit(request, address)
        if not address.service:
            return await self._control(request, address)
        if service := self.tokens.service(address.service):
            return await self.tokens.answer(service, request, await _body(request))
        upstream = self._upstreams.get(address.service)
        if upstream is None:
            known = ", ".join(sorted({*self._upstreams, *self.tokens.names}))
            raise Refusal(404, f"there is no service {address.service!r} here (known: {known})", "unknown_service")
        if request.method != "POST" or not api_by_path(address.rest):
            return await self._pass(request, address, upstream)
        return await self._recorded(request, address, upstream)

    def _admit(self, request: Request, address: Address) -> None:
        key = self.options.key
        if key and not hmac.compare_digest(address.key.encode(), key.encode()):
            raise Refusal(
                401, "this proxy wants its key: in front of the path as /key/KEY, or X-Surefoot-Key", "no_key"
            )
        host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        if not key and not is_loopback(host):
            raise Refusal(
                403, f"asked for as host {host!r}; a proxy without a key answers to loopback names only", "host"
            )
        if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(403, "a page in a browser may not use this proxy", "origin")

    # --- calls that are recorded --------------------------------------------------------------------------------------

    async def _recorded(self, request: Request, address: Address, upstream: Upstream) -> Response:
        run_id = address.run or self.options.run
        if not run_id:
            raise Refusal(
                400,
                "this request names no run: put /run/NAME in front of the path, send X-Surefoot-Run, or start the "
                "proxy with --run NAME; nothing was sent",
                "no_run",
            )
        body = await _body(request)
        call = self._call(request, address, upstream, body)
        scope = "/".join((ROOT, *(in_path(part) for part in address.scope.split("/") if part)))
        held = await self.runs.get(run_id)
        attempt = held.book.attempt(self._attempt(request, address))
        found = await self._find(held, attempt, scope, call)
        if isinstance(found, Recorded):
            return _again(*recorded.decode(held.content(found)))
        return await self._listen(held, attempt, found)

    def _call(self, request: Request, address: Address, upstream: Upstream, body: bytes) -> Call:
        path, query = address.rest, request.url.query
        url = f"{upstream.base}{path}{f'?{query}' if query else ''}"
        # the service's name stands for its host: that may change, as with a port, and is the same service
        asked = asked_of(request.method, url, upstream.name, path, query, request.headers, body, lambda _: True)
        assert asked is not None, "only POST comes here"
        headers = tuple(sent_on(request.headers.items()))
        return Call(method=request.method, url=url, headers=headers, body=body, asked=asked)

    def _attempt(self, request: Request, address: Address) -> str:
        """The attempt that was said, else the process at the other end of the connection."""
        if address.attempt:
            return address.attempt
        client, server = request.scope.get("client"), request.scope.get("server")
        process = self._peers.process_at(tuple(client), server[1]) if client and server else ""
        if not process:
            raise Refusal(
                400,
                "cannot tell which start of the agent asks, so its calls cannot be counted from the first: start it "
                "with `surefoot proxy exec`, put /attempt/NAME in front of the path, or send X-Surefoot-Attempt; "
                "nothing was sent",
                "no_attempt",
            )
        return f"process {process}"

    async def _find(self, held: HeldRun, attempt: Attempt, scope: str, call: Call) -> Recorded | Flight:
        name = call.question.slot_name
        until: float | None = None
        loop = asyncio.get_running_loop()
        while True:
            if attempt.diverged:
                raise Refusal(409, attempt.diverged, "diverged")
            found = held.book.ask(attempt, scope, name)
            match found:
                case Recorded() | Flight():
                    self._moved(held)
                    return found
                case Miss(slot):
                    if held.session is None or held.over.done():
                        held.book.give_back(attempt, slot, failed=False)
                        raise RunClosed(409, f"run {held.id!r} has ended, and this call is not in its record")
                    return self.forwarder.start(held, slot, call)
                case Behind(slot, unread):
                    until = until or loop.time() + self.options.patience_seconds
                    if not await self._siblings(held, until - loop.time()):
                        attempt.diverged = _diverged(held.id, slot, call, unread)

    async def _siblings(self, held: HeldRun, seconds: float) -> bool:
        """Wait until somebody reads or records something; False when the time is over."""
        if seconds <= 0:
            return False
        async with held.moved:
            try:
                await asyncio.wait_for(held.moved.wait(), seconds)
            except TimeoutError:
                pass
        return True

    def _moved(self, held: HeldRun) -> None:
        self.forwarder.keep(held.tell())

    async def _listen(self, held: HeldRun, attempt: Attempt, flight: Flight) -> Response:
        def over(done: asyncio.Future[bool]) -> None:
            if done.result():
                held.book.settle(attempt, flight.slot)
            else:
                held.book.give_back(attempt, flight.slot, failed=True)

        # told when the answer is over, and not when it was heard: an agent that went away has begun to listen
        flight.done.add_done_callback(over)
        head = await asyncio.shield(flight.head)
        if (whole := flight.whole()) is not None:
            return Response(whole, status_code=head.status, headers=dict(head.headers))
        return StreamingResponse(_body_of(flight), status_code=head.status, headers=dict(head.headers))

    # --- everything else ----------------------------------------------------------------------------------------------

    async def _pass(self, request: Request, address: Address, upstream: Upstream) -> Response:
        """Passed on as it is, unrecorded: listings, files, counts of tokens."""
        import httpx

        if run_id := address.run or self.options.run:
            (await self.runs.get(run_id)).unrecorded += 1
        query = request.url.query
        url = f"{upstream.base}{address.rest or '/'}{f'?{query}' if query else ''}"
        try:
            sent = self._client.build_request(
                request.method, url, headers=sent_on(request.headers.items()), content=await _body(request)
            )
            response = await self._client.send(sent, stream=True)
        except httpx.HTTPError as error:
            return _whole(unreached(error))

        async def rest() -> AsyncIterator[bytes]:
            try:
                async for piece in response.aiter_bytes():
                    yield piece
            finally:
                await response.aclose()

        return StreamingResponse(
            rest(), status_code=response.status_code, headers=dict(kept_of(response.headers.multi_items()))
        )

    async def _control(self, request: Request, address: Address) -> Response:
        if not address.run:
            return JSONResponse({"surefoot": "proxy", "runs": [each.id for each in self.runs.open_now()]})
        if request.method == "DELETE":
            held = await self.runs.end(address.run)
        elif request.method in ("GET", "HEAD"):
            held = await self.runs.get(address.run)
        else:
            raise Refusal(405, "a run is looked at with GET and ended with DELETE", "method")
        return JSONResponse(describe(held))


def describe(held: HeldRun) -> dict[str, Any]:
    """What may be said of a run."""
    book = held.book
    return {
        "run": held.id,
        "status": "ended" if held.session is None or held.over.done() else "open",
        "calls": book.results,
        "under_way": len(book.flights),
        "attempts": len(book.attempts),
        "unrecorded": held.unrecorded,
        "diverged": [each.diverged for each in book.attempts.values() if each.diverged],
    }


def _diverged(run_id: str, slot: str, call: Call, unread: tuple[Recorded, ...]) -> str:
    shown = "; ".join(each.preview for each in unread[:3])
    asked = f"{slot} ({call.asked.preview[:60]})"
    return (
        f"run {run_id!r} diverged: {asked} is not recorded, and {len(unread)} recorded calls of its scope were not "
        f"asked for: {shown}. Nothing was sent. If this is new work, use another run; if the agent resumes from a "
        "checkpoint of its own, start the proxy with --skips; if it is several processes, start it with `surefoot "
        "proxy exec`, or say X-Surefoot-Attempt, so that they count together"
    )


async def _body(request: Request) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise Refusal(413, f"a request's body may have {BODY_BYTES_MAX >> 20} MiB", "too_large")
        pieces.append(piece)
    return b"".join(pieces)


async def _body_of(flight: Flight) -> AsyncIterator[bytes]:
    async for piece in flight.body():
        yield piece


async def _broken(content: bytes) -> AsyncIterator[bytes]:
    yield content
    raise Cut("the service's answer broke off here when it was recorded")


def _whole(told: tuple[Head, bytes]) -> Response:
    head, content = told
    return Response(content, status_code=head.status, headers=dict(head.headers))


def _again(head: Head, content: bytes) -> Response:
    """A recorded answer, or a try that failed, which breaks off where it did."""
    headers = dict([*head.headers, REPLAYED])
    if head.status not in SUCCESS:
        headers = {name: value for name, value in headers.items() if not name.lower().startswith("retry-after")}
        headers["retry-after-ms"] = "1"  # the wait was waited for once
    if head.error:
        return StreamingResponse(_broken(content), status_code=head.status, headers=headers)
    if recorded.is_stream(headers.get("content-type", "")):
        return StreamingResponse(_pieces(recorded.events(content)), status_code=head.status, headers=headers)
    return Response(content, status_code=head.status, headers=headers)


async def _pieces(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
