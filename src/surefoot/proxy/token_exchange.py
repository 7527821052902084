"""One exchange of one token as an effect: its stored request holds no secret, its receipt is the encrypted answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
from starlette.responses import Response

from ..core.digest import BLOB_MARK
from ..core.errors import NotSent, Refused, Signal
from ..credentials.answers import DEAD, ExchangeLost, told
from ..credentials.exchange import outside_any_run
from ..credentials.sealing import Keys, Place, Sealed
from ..effects.attempt import Attempt
from ..effects.effect import Effect
from .options import TokenService
from .reply import REPLAYED, kept_of

if TYPE_CHECKING:
    import httpx

    from ..core.effect import Effect as EffectRecord
    from ..runtime.engine import Engine

NAME = "proxy.token"
TIMEOUT_SECONDS, PATIENCE_SECONDS = 30.0, 60.0


@dataclass(frozen=True)
class Asked:
    """A request to a token endpoint, in memory only."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A token endpoint's answer inside its sealed box."""

    status: int
    headers: tuple[tuple[str, str], ...]
    content: bytes
    at: float


class GaveUp(Signal):
    """Tried for long enough; the next who brings this token goes on."""


def identity_of(digest: str, number: int) -> str:
    """The identity of one exchange; it is stored, so it never changes."""
    return f"proxy.token:{digest}/{number}"


def place_of(engine: Engine, digest: str, number: int) -> Place:
    """What the box of an answer is bound to."""
    return Place(engine.namespace, f"proxy.token:{digest}", 0, number)


@dataclass
class Sending:
    """What the effect's body needs beside its stored request, and what it leaves for whoever asked."""

    asked: Asked
    until: float
    passed: Response | None = None


_sending: ContextVar[Sending] = ContextVar("surefoot_proxy_sending")


def _identity(endpoint: str, digest: str, number: int) -> str:
    return identity_of(digest, number)


class TokenExchange:
    """The exchanges of one token endpoint."""

    def __init__(self, service: TokenService, engine: Engine, keys: Keys, client: httpx.AsyncClient) -> None:
        """`client` makes no retries of its own."""
        self._service, self._engine, self._keys, self._client = service, engine, keys, client
        contract = service.contract
        self._effect: Effect[..., Any] = Effect(
            self._body(),
            contract.contract,
            identity=_identity,
            timeout=TIMEOUT_SECONDS,
            budget=max(PATIENCE_SECONDS, contract.grace_seconds),
            name=NAME,
        )

    async def settle(self, digest: str, number: int, asked: Asked) -> Response | None:
        """Bring one exchange to its end, or to a person; an answer that decides nothing is passed on as it came."""
        sending = Sending(asked, self._engine.clock.lease_now() + PATIENCE_SECONDS)
        token = _sending.set(sending)
        try:
            with outside_any_run(self._engine):
                await cast("Any", self._effect.outcome(self._service.url, digest, number))
        except GaveUp:
            return None
        finally:
            _sending.reset(token)
        return sending.passed

    def open_answer(self, digest: str, number: int, record: EffectRecord) -> Response:
        """The kept answer of an exchange, byte for byte, except for how long its token still lives."""
        receipt = record.receipt
        content = self._engine.store.read_blob(receipt[1:]) if receipt[:1] == BLOB_MARK else receipt
        sealed = msgspec.json.decode(content, type=Sealed)
        kept = msgspec.json.decode(self._keys.open(sealed, place_of(self._engine, digest, number)), type=Kept)
        age = max(0, int(self._engine.clock.now() - kept.at))
        headers = dict([*kept.headers, *([REPLAYED, ("age", str(age))] if age else [])])
        return Response(aged(kept.content, age), status_code=kept.status, headers=headers)

    def _body(self) -> Any:
        async def exchange(attempt: Attempt, endpoint: str, digest: str, number: int) -> Any:
            sending, engine = _sending.get(), self._engine
            unresolved = attempt.record is not None and attempt.record.unresolved > 0
            if attempt.number > 1 and engine.clock.lease_now() > sending.until:
                raise GaveUp("tried for long enough")
            seal, at = self._keys.sealer(), engine.clock.now()  # whatever of ours could fail does so before it is sent
            failed: Exception | None = None
            kept: Kept | None = None
            try:
                answer = await self._client.request(
                    sending.asked.method,
                    endpoint,
                    headers=list(sending.asked.headers),
                    content=sending.asked.body,
                    timeout=attempt.timeout,
                )
                kept = Kept(
                    status=answer.status_code,
                    headers=kept_of(answer.headers.multi_items()),
                    content=answer.content,
                    at=at,
                )
                check_answer(answer)
            except Exception as error:
                failed = error
            if failed is None and kept is not None:
                return msgspec.to_builtins(seal(msgspec.json.encode(kept), place_of(engine, digest, number)))
            assert failed is not None
            meant = self._meaning(failed, unresolved)
            if isinstance(meant, Refused):
                sending.passed = _passed(failed, meant)
            raise meant  # outside of the handler, so that nothing of the original is carried along

        return exchange

    def _meaning(self, error: Exception, unresolved: bool) -> Exception:
        meant = told(error, self._service.contract)
        if isinstance(meant, Refused) and meant.reason.startswith(DEAD):
            return meant
        if unresolved and isinstance(meant, Refused):
            # refused before it was looked at: that says nothing about the try before
            return NotSent(meant.reason)
        if isinstance(meant, NotSent) and not unresolved:
            # it was not looked at: whoever asked decides about a next try
            return Refused(str(meant))
        return meant


class Unsuccessful(Exception):
    """An answer that holds no token, as `credentials.answers` reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        """Kept to be read; never shown."""
        super().__init__(f"status {answer.status_code}")
        self.response = answer
        self.status_code = answer.status_code


def check_answer(answer: httpx.Response) -> None:
    """Raises unless the answer holds an access token; some providers put errors into a 200."""
    try:
        content: Any = json.loads(answer.content)
    except ValueError:
        content = None
    said: Mapping[str, Any] = cast("Mapping[str, Any]", content) if isinstance(content, dict) else {}
    if isinstance(code := said.get("error"), str) and code and answer.is_success:
        raise Refused("the token endpoint answered with an error", code=code)
    if not answer.is_success:
        raise Unsuccessful(answer)
    if not isinstance(said.get("access_token"), str):
        raise ExchangeLost("the token endpoint's answer holds no access_token")


def _passed(error: Exception, meant: Refused) -> Response:
    """What the endpoint said, for whoever asked; nothing of it is kept."""
    answer: Any = getattr(error, "response", None)
    if answer is None:
        shown = json.dumps({"error": "temporarily_unavailable", "error_description": f"surefoot proxy: {meant.reason}"})
        return Response(shown, status_code=502, headers={"content-type": "application/json"})
    return Response(answer.content, status_code=answer.status_code, headers=dict(kept_of(answer.headers.multi_items())))


def aged(content: bytes, seconds: int) -> bytes:
    """The answer some seconds later: `expires_in` counts from when the provider was asked, not from now."""
    if not seconds:
        return content
    said = json.loads(content)
    life = said.get("expires_in")
    if isinstance(life, bool) or not isinstance(life, int | float):
        return content
    return json.dumps({**said, "expires_in": max(0, life - seconds)}).encode()
