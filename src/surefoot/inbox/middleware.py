"""ASGI middleware: the same Idempotency-Key gets the same answer, and the handler's work is done once.

It follows draft-ietf-httpapi-idempotency-key-header. A row in the store decides who runs: inserted before the handler
begins, filled with the answer before the answer leaves. So whatever dies in between is seen by the next request, which
gets the answer, runs a *transactional* handler again, or is told that only a person can know.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, cast

from ..core.errors import StoreError, UsageError
from . import problems
from .answers import KEPT_HEADERS, Answer, kept, store_answer, stored_answer
from .call import CALL, IdempotentCall
from .claims import Ask, Inbox
from .exchange import App, ClientGone, Exchange, Receive, Send, TooLarge, read_body, send_answer
from .field import Malformed, read_key
from .once import check_expires, watcher
from .problems import Problem, problem
from .request import Scope, authorization, exact, header_values, scope_of
from .rules import Busy, Claim, Doubt, Ending, Move, Replay, Reused, Run

NEVER_PROTECTED = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"))
NOT_STORED = frozenset((401, 403, 408, 425, 429))
"""Refused before anything was done: a repeat runs again."""
REPLAYED = ("idempotent-replayed", "true")
_log = logging.getLogger("surefoot.inbox")


def stores_error(status: int) -> bool:
    """The default for `store_errors`: every 4xx that says something about the request, and no 5xx."""
    return 400 <= status < 500 and status not in NOT_STORED


class IdempotencyMiddleware:
    """Protects the endpoints behind it. All times and sizes have defaults; see docs/inbox.md.

    `store`: a SQLite path, a postgresql:// URL, or an `Inbox`. `methods` are protected, and of those `required` says
    which must carry a key: True, False, or a function of the ASGI scope. `transactional`, likewise: the handler's
    change commits with `once`, so it may run again. `scope` names the client. `store_errors(status)` says which errors
    are an answer to keep. `expires` is how long an answer is kept.
    """

    def __init__(
        self,
        app: App,
        *,
        store: str | os.PathLike[str] | Inbox,
        methods: Collection[str] = ("POST", "PATCH"),
        required: bool | Callable[[Scope], bool] = True,
        transactional: bool | Callable[[Scope], bool] = False,
        scope: Callable[[Scope], str] = authorization,
        fingerprint: Callable[[Scope, bytes], str] = exact,
        store_errors: Callable[[int], bool] = stores_error,
        expires: timedelta | None = timedelta(hours=24),
        accept_bare: bool = True,
        headers: Collection[str] = KEPT_HEADERS,
        request_bytes_max: int = 1 << 20,
        answer_bytes_max: int = 1 << 20,
        retry_after: int = 1,
    ) -> None:
        """Nothing is opened yet; UsageError for options that cannot work."""
        self.app = app
        self.inbox = store if isinstance(store, Inbox) else Inbox(store)
        self._methods = _check_methods(methods)
        self._required = _check_choice("required", required)
        self._transactional = _check_choice("transactional", transactional)
        self._scope = _check_function("scope", scope)
        self._fingerprint = _check_function("fingerprint", fingerprint)
        self._stores_error = _check_function("store_errors", store_errors)
        self._expires, self._expires_seconds = expires, check_expires(expires)
        self._accept_bare = accept_bare
        self._headers = frozenset(name.lower() for name in headers)
        self._request_bytes_max = _check_size("request_bytes_max", request_bytes_max)
        self._answer_bytes_max = _check_size("answer_bytes_max", answer_bytes_max)
        self._retry_after = _check_size("retry_after", retry_after)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] not in self._methods or CALL in scope:  # or protected already
            await self.app(scope, receive, send)
            return
        try:
            key = read_key(header_values(scope, b"idempotency-key"), accept_bare=self._accept_bare)
        except Malformed as error:
            await send_answer(send, problem(Problem.KEY_MALFORMED, f"{error}. Nothing was done."))
            return
        if key is not None:
            await self._protect(scope, receive, send, key)
        elif self._required(scope):
            await send_answer(send, problems.missing(scope["method"], scope["path"]))
        else:
            await self.app(scope, receive, send)

    async def _protect(self, scope: Any, receive: Receive, send: Send, key: str) -> None:
        try:
            body = await read_body(scope, receive, self._request_bytes_max)
        except TooLarge:
            await send_answer(send, problems.too_large(self._request_bytes_max), ("connection", "close"))
            return
        except ClientGone:
            return
        ask = Ask(
            scope=scope_of(scope, _check_client(self._scope(scope))),
            key=key,
            digest=self._fingerprint(scope, body),
            transactional=self._transactional(scope),
            expires_seconds=self._expires_seconds,
        )
        try:
            verdict = await self.inbox.claim(ask)
        except StoreError:
            _log.exception("no claim for key %r; nothing was run", key)
            await send_answer(send, problems.unavailable())
            return
        match verdict:
            case Run(claim):
                await _Running(self, claim).run(scope, body, send)
            case Replay(claim):
                await send_answer(send, stored_answer(cast("str", claim.result)), REPLAYED)
            case Reused():
                await send_answer(send, problems.reused())
            case Busy():
                await send_answer(send, problems.in_progress(self._retry_after))
            case Doubt(claim):
                why = "The first attempt ended without an answer: its service died, or failed on the way."
                await send_answer(send, problems.outcome_unknown(claim, why))

    # --- for a run --------------------------------------------------------------------------------------------------

    def is_stored(self, status: int) -> bool:
        """True for an answer that every repeat gets."""
        return self._stores_error(status) if status >= 400 else True

    def answered(self, claim: Claim, answer: Answer, *, from_once: bool) -> Ending:
        """A claim that ends with an answer."""
        return Ending(claim, Move.ANSWER, store_answer(answer), self._expires_seconds, from_once=from_once)

    def unanswered(self, claim: Claim, *, nothing_happened: bool, forget: bool = False) -> Ending:
        """A claim that ends without one: run again, or in doubt."""
        move = Move.RELEASE if claim.transactional or nothing_happened else Move.LOSE
        return Ending(claim, move, None, self._expires_seconds, forget)

    def start(self, claim: Claim) -> IdempotentCall:
        """What the handler gets."""
        return IdempotentCall(claim, self._expires)

    def exchange(self, body: bytes, finish: Any) -> Exchange:
        """What the handler talks to."""
        return Exchange(body, self._answer_bytes_max, finish)

    def kept(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Answer:
        """The part of a response that is stored."""
        return Answer(status=status, headers=kept(headers, self._headers), body=body)


class _Running:
    """One run of a handler under its claim."""

    def __init__(self, middleware: IdempotencyMiddleware, claim: Claim) -> None:
        self._middleware = middleware
        self._claim = claim
        self._call = middleware.start(claim)
        self._send: Send
        self._answered = False

    async def run(self, scope: Any, body: bytes, send: Send) -> None:
        """Run it to its end; whatever it does, the claim ends too."""
        self._send = send
        exchange = self._middleware.exchange(body, self._finish)
        inner: dict[str, Any] = {**scope, "extensions": _without_shortcuts(scope), CALL: self._call}
        token = watcher.set(self._call)
        try:
            await self._middleware.app(inner, exchange.receive, exchange.send)
            if not exchange.is_finished:
                raise RuntimeError("the application returned without a complete response")
        except BaseException as error:
            if exchange.is_finished:
                if exchange.was_cut_short and isinstance(error, Exception):
                    return  # the response that was refused has ended
                raise  # after the answer: a background task
            nothing = self._call.certainly_nothing_happened
            await self._record(self._middleware.unanswered(self._claim, nothing_happened=nothing))
            raise
        finally:
            watcher.reset(token)

    async def _record(self, ending: Ending) -> str | None:
        try:
            return await self._middleware.inbox.end(ending)
        except StoreError:
            _log.exception("the end of key %r could not be recorded yet; the inbox goes on trying", self._claim.key)
            return None

    async def _finish(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, why_not: str) -> None:
        """The response is complete: record what it means, then let it leave."""
        if not self._middleware.is_stored(status):
            await self._leave_unstored(status, headers, body)
            return
        misused = self._misused(status)
        if misused and self._claim.attempts > 1:
            await self._record(self._middleware.unanswered(self._claim, nothing_happened=False))
            _log.error("%s", misused)
            await send_answer(self._send, problems.outcome_unknown(self._claim, misused))
            return
        answer = problems.not_stored(status, why_not) if why_not else self._middleware.kept(status, headers, body)
        ending = self._middleware.answered(self._claim, answer, from_once=self._call.used_once)
        try:
            stands = await self._middleware.inbox.end(ending)
        except StoreError:
            _log.exception("the answer for key %r could not be recorded yet; the inbox goes on trying", self._claim.key)
            await send_answer(self._send, problems.unrecorded())
            return
        if why_not:
            _log.warning("the answer for key %r is not stored: %s", self._claim.key, why_not)
        if misused:
            raise UsageError(misused)
        if stands is not None and stands != ending.result:
            await send_answer(self._send, stored_answer(stands), REPLAYED)  # another run was first
        elif stands is None and self._claim.transactional:
            await send_answer(self._send, problems.in_progress(1))  # another run has it; this one proves nothing
        elif why_not:
            await send_answer(self._send, answer)
        else:
            if stands is None:
                _log.error("key %r was settled by hand, or run again, while its handler ran", self._claim.key)
            await self._pass_on(status, headers, body)

    def _misused(self, status: int) -> str:
        """Why a transactional handler's answer proves nothing; "" if it does.

        A first attempt may refuse a request before it asks `once`. A later one may not: it could be refusing because
        of what the first one did.
        """
        if not self._claim.transactional or self._call.used_once:
            return ""
        if self._claim.attempts > 1:
            return (
                f"This endpoint answered a repeat with {status} before it asked once() for the first attempt's result."
            )
        if status < 400:
            return (
                f"this endpoint is declared transactional and answered {status} without once(): a crash would run it "
                "again and change twice. Make the change in `with idempotency(request).once(connection)`"
            )
        return ""

    async def _leave_unstored(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        before = status in NOT_STORED
        nothing = before or 400 <= status < 500 or self._call.certainly_nothing_happened
        await self._record(self._middleware.unanswered(self._claim, nothing_happened=nothing, forget=nothing))
        await self._pass_on(status, headers, body)

    async def _pass_on(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _without_shortcuts(scope: Scope) -> dict[str, Any]:
    """Extensions by which a response would pass by us, such as sending a file by its path, are not offered."""
    offered = cast("Mapping[str, Any]", scope.get("extensions") or {})
    return {name: value for name, value in offered.items() if not name.startswith("http.response.")}


# --- options ----------------------------------------------------------------------------------------------------------


def _check_methods(methods: Collection[str]) -> frozenset[str]:
    if isinstance(methods, str):
        raise UsageError(f"methods= must be a list of methods, found the string {methods!r}")
    wanted = frozenset(method.upper() for method in methods)
    if not wanted or wanted & NEVER_PROTECTED:
        bad = ", ".join(sorted(wanted & NEVER_PROTECTED)) or "none"
        raise UsageError(f"methods= must name methods that change something, such as POST and PATCH; found {bad}")
    return wanted


def _check_choice(name: str, choice: bool | Callable[[Scope], bool]) -> Callable[[Scope], bool]:
    if isinstance(choice, bool):
        return lambda scope: choice
    return _check_function(name, choice)


def _check_function(name: str, function: Any) -> Any:
    if not callable(function):
        raise UsageError(f"{name}= must be a function (or True or False, where it says so), found {function!r}")
    return function


def _check_client(client: object) -> str:
    if not isinstance(client, str):
        raise UsageError(f"scope= must return a string that names the client, found {client!r}")
    return client


def _check_size(name: str, size: int) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{name}= must be a whole number, 1 or more; found {size!r}")
    return size
