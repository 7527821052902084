"""The refresh as an effect: read the old token, exchange it, encrypt the new one. Its receipt is what is used later.

Whatever could fail for reasons of ours (no key, a token that does not open) fails before the request leaves: a token
that was received and cannot be kept would be lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from ..core.errors import NotSent, Refused
from ..effects.attempt import Attempt
from ..effects.effect import Effect
from ..runtime.clock import host_name
from ..runtime.engine import Engine
from ..runtime.outside import state_of
from ..runtime.scope import Scope, current
from ..runtime.session import Session
from .answers import DEAD, ExchangeLost, told
from .chain import REFRESH, identity_of
from .contract import TokenContract
from .sealing import Keys
from .standing import Reader
from .token import Held, Moment, Token, held_from

Refresh = Callable[[Attempt, str], Token | Mapping[str, Any] | Awaitable[Token | Mapping[str, Any]]]


def moment_of(engine: Engine) -> Moment:
    """Both clocks of this process, now."""
    clock = engine.clock
    return Moment(clock.now(), f"{engine.store.lease_boot}@{host_name()}", clock.lease_now())


@contextmanager
def outside_any_run(engine: Engine) -> Generator[None]:
    """Here effects are recorded in `engine`'s store and in no run's journal, which a replay could not repeat."""
    token = current.set(Scope(Session(engine, state_of(engine)), None))
    try:
        yield
    finally:
        current.reset(token)


class Exchange:
    """The refresh effect of one credential; `effect(credential, family, generation, previous)` settles one number."""

    def __init__(self, refresh: Refresh, contract: TokenContract, keys: Keys, *, timeout: float, budget: float) -> None:
        """`refresh` is `def` or `async def`; the effect is what it is."""
        self._refresh, self._contract, self._keys = refresh, contract, keys
        self.is_async = inspect.iscoroutinefunction(refresh)
        body = self._async_body() if self.is_async else self._body()
        self.effect: Effect[..., Any] = Effect(
            body,
            contract.contract,
            identity=_identity,
            timeout=timeout,
            budget=budget,
            name=REFRESH,
        )

    def _body(self) -> Callable[..., Any]:
        def refresh(attempt: Attempt, credential: str, family: int, generation: int, previous: int) -> Any:
            reader, old, begun = self._begin(credential, family, previous)
            told_as: Exception | None = None
            try:
                token = as_token(self._refresh(attempt, old.refresh_token))
            except Exception as error:
                token, told_as = Token(), self._told(error, attempt, old)
            if told_as is not None:
                raise told_as  # outside of the handler, so that nothing of the original is carried along
            return self._receipt(reader, family, generation, held_from(token, begun, old.refresh_token))

        return refresh

    def _async_body(self) -> Callable[..., Any]:
        async def refresh(attempt: Attempt, credential: str, family: int, generation: int, previous: int) -> Any:
            reader, old, begun = self._begin(credential, family, previous)
            told_as: Exception | None = None
            try:
                token = as_token(await cast("Awaitable[Any]", self._refresh(attempt, old.refresh_token)))
            except Exception as error:
                token, told_as = Token(), self._told(error, attempt, old)
            if told_as is not None:
                raise told_as
            return self._receipt(reader, family, generation, held_from(token, begun, old.refresh_token))

        return refresh

    def _begin(self, credential: str, family: int, previous: int) -> tuple[Reader, Held, Moment]:
        scope = current.get()
        assert scope is not None, "a body is run inside a session"
        reader = Reader(scope.session.engine, self._keys, credential)
        self._keys.at_hand()
        return reader, reader.open(family, previous), moment_of(reader.engine)

    def _told(self, error: Exception, attempt: Attempt, old: Held) -> Exception:
        meant = told(error, self._contract, (old.refresh_token, old.access_token))
        unresolved = attempt.record is not None and attempt.record.unresolved > 0
        if unresolved and isinstance(meant, Refused) and not meant.reason.startswith(DEAD):
            # refused before it was looked at: that says nothing about the try before, and may be mended meanwhile
            return NotSent(meant.reason)
        return meant

    def _receipt(self, reader: Reader, family: int, generation: int, held: Held) -> Any:
        return msgspec.to_builtins(self._keys.seal(msgspec.json.encode(held), reader.place(family, generation)))


def _identity(credential: str, family: int, generation: int, previous: int) -> str:
    return identity_of(credential, family, generation)


def as_token(answer: Any) -> Token:
    """What a refresh function returned, as a token with an access token in it."""
    token = Token.of(cast("Mapping[str, Any]", answer)) if isinstance(answer, Mapping) else answer
    if not isinstance(token, Token) or not token.access_token:
        raise ExchangeLost("the refresh function returned no token")
    return token
