"""The refresh as an effect: read the old token, exchange it, encrypt the new one. Its receipt is what is used later.

Whatever could fail for reasons of ours (no key, a token that does not open) fails before the request leaves: a token
that was received and cannot be kept would be lost.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import msgspec

from ..core.errors import NotSent, Refused, Signal
from ..effects.attempt import Attempt
from ..effects.effect import Effect
from ..runtime.clock import host_name
from ..runtime.engine import Engine
from ..runtime.outside import state_of
from ..runtime.scope import Scope, current
from ..runtime.session import Session
from .answers import DEAD, ExchangeLost, described, told
from .chain import REFRESH, identity_of
from .contract import TokenContract
from .errors import CredentialError, NotRefreshed
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


class Waited(Signal):
    """This call has tried for long enough; the refresh stays in doubt, and the next asker goes on with it."""


_give_up_at: ContextVar[float] = ContextVar("surefoot_credential_give_up_at", default=math.inf)
"""Until when on the lease clock the call that settles a refresh tries again."""


class Begun(msgspec.Struct, frozen=True):
    """All that an exchange needs of ours, read before it is sent."""

    old: Held
    moment: Moment
    keep: Callable[[Held], Any]
    """Encrypts the new token into the receipt; it has its key already."""


class Exchange:
    """The refresh effect of one credential; `settle` brings one number to its end, or to a person."""

    def __init__(self, refresh: Refresh, contract: TokenContract, keys: Keys, *, timeout: float, budget: float) -> None:
        """`refresh` is `def` or `async def`; the effect is what it is."""
        self._refresh, self._contract, self._keys, self._budget = refresh, contract, keys, budget
        self.is_async = inspect.iscoroutinefunction(refresh)
        self._effect: Effect[..., Any] = Effect(
            self._async_body() if self.is_async else self._body(),
            contract.contract,
            identity=_identity,
            timeout=timeout,
            budget=max(budget, contract.grace_seconds),  # the window ends it, and not one call's patience
            name=REFRESH,
        )

    @contextmanager
    def settling(self, engine: Engine, credential: str) -> Generator[Callable[..., Any]]:
        """Gives the call that settles one number; raises NotRefreshed when it has tried for the whole budget."""
        token = _give_up_at.set(engine.clock.lease_now() + self._budget)
        waited = False
        try:
            with outside_any_run(engine):
                yield self._effect.outcome
        except Waited:
            waited = True
        finally:
            _give_up_at.reset(token)
        if waited:
            raise NotRefreshed(credential, f"no answer of the token endpoint was understood for {self._budget:g} s")

    def _body(self) -> Callable[..., Any]:
        def refresh(attempt: Attempt, credential: str, family: int, generation: int, previous: int) -> Any:
            begun = self._begin(attempt, credential, family, generation, previous)
            told_as: Exception | None = None
            try:
                token = as_token(self._refresh(attempt, begun.old.refresh_token))
            except Exception as error:
                token, told_as = Token(), self._told(error, attempt, begun.old)
            if told_as is not None:
                raise told_as  # outside of the handler, so that nothing of the original is carried along
            return begun.keep(held_from(token, begun.moment, begun.old.refresh_token))

        return refresh

    def _async_body(self) -> Callable[..., Any]:
        async def refresh(attempt: Attempt, credential: str, family: int, generation: int, previous: int) -> Any:
            begun = self._begin(attempt, credential, family, generation, previous)
            told_as: Exception | None = None
            try:
                token = as_token(await cast("Awaitable[Any]", self._refresh(attempt, begun.old.refresh_token)))
            except Exception as error:
                token, told_as = Token(), self._told(error, attempt, begun.old)
            if told_as is not None:
                raise told_as
            return begun.keep(held_from(token, begun.moment, begun.old.refresh_token))

        return refresh

    def _begin(self, attempt: Attempt, credential: str, family: int, generation: int, previous: int) -> Begun:
        """Whatever fails here was not sent."""
        scope = current.get()
        assert scope is not None, "a body is run inside a session"
        engine = scope.session.engine
        if attempt.number > 1 and engine.clock.lease_now() > _give_up_at.get():
            if _is_unresolved(attempt):
                raise Waited("tried for the whole budget")
            raise Refused(f"the token endpoint could not be asked for {self._budget:g} s")
        try:
            reader = Reader(engine, self._keys, credential)
            seal, place = self._keys.sealer(), reader.place(family, generation)
            old = reader.open(family, previous)
        except CredentialError:
            raise
        except Exception as error:
            raise NotSent(described(error)) from None
        return Begun(old, moment_of(engine), lambda held: msgspec.to_builtins(seal(msgspec.json.encode(held), place)))

    def _told(self, error: Exception, attempt: Attempt, old: Held) -> Exception:
        meant = told(error, self._contract, (old.refresh_token, old.access_token))
        if _is_unresolved(attempt) and isinstance(meant, Refused) and not meant.reason.startswith(DEAD):
            # refused before it was looked at: that says nothing about the try before, and may be mended meanwhile
            return NotSent(meant.reason)
        return meant


def _is_unresolved(attempt: Attempt) -> bool:
    return attempt.record is not None and attempt.record.unresolved > 0


def _identity(credential: str, family: int, generation: int, previous: int) -> str:
    return identity_of(credential, family, generation)


def as_token(answer: Any) -> Token:
    """What a refresh function returned, as a token with an access token in it."""
    token = Token.of(cast("Mapping[str, Any]", answer)) if isinstance(answer, Mapping) else answer
    if not isinstance(token, Token) or not token.access_token:
        raise ExchangeLost("the refresh function returned no token")
    return token
