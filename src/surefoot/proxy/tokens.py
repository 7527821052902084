"""OAuth token endpoints: one exchange for each refresh token, whoever asks for it and how often.

A refresh token that rotates is used up by its exchange. Where the reply is lost with the process that asked, nobody can
get it again; so it is asked for here, kept encrypted before it is passed on, and given to everybody who brings the same
token. An exchange is an effect of the store, under the digest of the token: two proxies on one database make one. The
token itself is kept nowhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
from starlette.responses import Response

from ..core.errors import UsageError
from ..core.ids import derive_key
from ..credentials.chain import State, newest, state_of
from ..credentials.sealing import Keys
from .forward import unreached
from .options import TokenService
from .reply import kept_of, sent_on
from .token_exchange import Asked, TokenExchange, identity_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..core.effect import Effect
    from ..runtime.engine import Engine

ONE_USE = (("refresh_token", "refresh_token"), ("authorization_code", "code"))
"""(grant type, the field whose value is good for one exchange)."""


class Tokens:
    """Answers for the token endpoints that stand in the options."""

    def __init__(self, services: tuple[TokenService, ...], engine: Engine, keys: Keys | None, client: Any) -> None:
        """`keys` encrypt the answers; they are needed only where there is an endpoint."""
        self._services = {each.name: each for each in services}
        self._engine, self._client = engine, client
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._exchanges = {
            name: TokenExchange(each, engine, keys, client) for name, each in self._services.items() if keys is not None
        }

    @property
    def names(self) -> list[str]:
        """The token endpoints."""
        return list(self._services)

    def service(self, name: str) -> TokenService | None:
        """The token endpoint of this name."""
        return self._services.get(name)

    async def answer(self, service: TokenService, request: Request, body: bytes) -> Response:
        """The endpoint's answer: of the one exchange of this token, or passed on where nothing is used up."""
        digest = used_up(service, body) if request.method == "POST" else ""
        asked = Asked(request.method, service.url, tuple(sent_on(request.headers.items())), body)
        if not digest:
            return await self._pass(asked)
        # of a task of its own: whoever asked may die meanwhile, and the answer is kept all the same
        task = asyncio.get_running_loop().create_task(self._exchange(service, digest, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _exchange(self, service: TokenService, digest: str, asked: Asked) -> Response:
        async with self._locks.setdefault(digest, asyncio.Lock()):
            exchange = self._exchanges[service.name]
            number, state, effect = self._standing(digest)
            if state in (State.OPEN, State.VOID):
                passed = await exchange.settle(digest, number, asked)
                if passed is not None:
                    return passed
                number, state, effect = self._standing(digest, number - 1)
        match state:
            case State.TOKEN:
                assert effect is not None
                return await asyncio.to_thread(exchange.open_answer, digest, number, effect)
            case State.DEAD:
                return oauth_error(400, "invalid_grant", "the provider refused this token, or a person gave it up")
            case State.PARKED:
                assert effect is not None
                return oauth_error(503, "temporarily_unavailable", _in_doubt(effect))
            case State.OPEN | State.VOID:
                return oauth_error(503, "temporarily_unavailable", "nobody knows yet what became of this exchange")

    def _standing(self, digest: str, known: int = -1) -> tuple[int, State, Effect | None]:
        """(the number to work on, what it stands for, its effect): a new number where the last one was void."""

        def read(number: int) -> Effect | None:
            return self._engine.store.read_effect(derive_key(self._engine.namespace, identity_of(digest, number)))

        number, effect = newest(read, known)
        if effect is None:
            effect = read(number) if number >= 0 else None
        if effect is None:
            return 0, State.VOID, None
        state = state_of(effect)
        return (number + 1, state, None) if state is State.VOID else (number, state, effect)

    async def _pass(self, asked: Asked) -> Response:
        import httpx

        try:
            got = await self._client.request(asked.method, asked.url, headers=list(asked.headers), content=asked.body)
        except httpx.HTTPError as error:
            head, content = unreached(error)
            return Response(content, status_code=head.status, headers=dict(head.headers))
        return Response(got.content, status_code=got.status_code, headers=dict(kept_of(got.headers.multi_items())))

    async def close(self, seconds: float) -> None:
        """Wait for every exchange under way; the effect of one that takes longer is in doubt."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)


def used_up(service: TokenService, body: bytes) -> str:
    """The digest of what this request uses up at its endpoint; "" if nothing."""
    fields = form_of(body)
    for grant, field in ONE_USE:
        if fields.get("grant_type", grant) == grant and isinstance(fields.get(field), str) and fields[field]:
            content = json.dumps([service.url, grant, fields[field], fields.get("client_id", "")]).encode()
            return hashlib.blake2b(content, digest_size=16, person=b"surefoot-token").hexdigest()
    if b"refresh_token" in body:
        raise UsageError(
            "this request to a token endpoint seems to hold a refresh token, and is neither a form nor a JSON object, "
            "so it could not be protected; nothing was sent"
        )
    return ""


def form_of(body: bytes) -> dict[str, Any]:
    """The fields of a form, or of a JSON object, as some token endpoints take them."""
    if body.lstrip().startswith(b"{"):
        try:
            return msgspec.convert(msgspec.json.decode(body), type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("latin-1")).items()}


def oauth_error(status: int, code: str, description: str) -> Response:
    """An error as RFC 6749 has it."""
    content = json.dumps({"error": code, "error_description": f"surefoot proxy: {description}"})
    return Response(
        content,
        status_code=status,
        headers={"content-type": "application/json", "cache-control": "no-store", "x-surefoot-problem": code},
    )


def _in_doubt(effect: Effect) -> str:
    return (
        f"this token was sent and no answer came ({effect.reason}), so it may be used up; it is not sent again. If the "
        f"provider shows no use of it: surefoot resolve - {effect.key[:12]} --did-not-happen --why TEXT; else sign in "
        "again"
    )
