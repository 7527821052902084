"""`Credential`: one refresher per token family, in the whole store, whatever dies.

A refresh is an effect whose identity is the family and the generation: the store claims it once, so a second thread,
task or process waits and gets the same token. Its request holds no secret: the body reads the old token from the store.
Its receipt is the new token, encrypted, and a token is only ever given out from such a receipt: on disk before use.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import TYPE_CHECKING

from ..core.contract import Contract, Promises
from ..core.effect import Effect as EffectRecord
from ..core.effect import Status
from ..core.errors import SurefootError, UsageError
from ..core.ids import check_id
from ..effects.effect import DEFAULT_TIMEOUT_SECONDS
from ..runtime.engine import Engine
from ..runtime.outside import outside_session
from ..runtime.scope import current
from ..runtime.spans import optional_span
from ..runtime.step import check_function
from .chain import State, state_of
from .contract import Mode, TokenContract, token_contract
from .errors import CredentialError, NeedsReconnect, NotRefreshed
from .exchange import Exchange, Refresh, moment_of, outside_any_run
from .families import Revoke, close_older, connect_first, forget, reconnect
from .retire import advise, retire
from .sealing import Keys, KeySource, keys_from_environment
from .standing import CredentialView, Reader, Standing
from .token import Held, Token

if TYPE_CHECKING:
    import asyncio

NAME_CHARACTERS_MAX = 150
DEFAULT_BUDGET_SECONDS = 60.0
DEFAULT_MIN_SECONDS = 60.0


class Credential:
    """An access token that is always good, from a refresh token that is used up or changes when it is used.

    `refresh(attempt, refresh_token)` (`def` or `async def`) makes one request to the token endpoint and returns a
    `Token`, or the endpoint's JSON. `receiver` says what the provider does with a refresh token that comes twice.
    `first` begins the first family where the store has none; `revoke(attempt, refresh_token)` is called by `forget`.
    `key` gives the secret key of 32 bytes, or several with the newest first; by default they are read from
    SUREFOOT_SECRET_KEY. `timeout` bounds one exchange, `budget` one call's tries at an endpoint that cannot be reached.

    Make it once, and use it while a `Surefoot` is open: it lives in the one that was opened last, or in that of the run
    or body that asks. Raises UsageError before anything is written or sent.
    """

    def __init__(
        self,
        name: str,
        *,
        refresh: Refresh,
        receiver: TokenContract | Contract | Promises | str,
        first: Token | None = None,
        revoke: Revoke | None = None,
        key: KeySource = keys_from_environment,
        timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS,
        budget: timedelta | float = DEFAULT_BUDGET_SECONDS,
    ) -> None:
        """See the class."""
        self.name = check_id(name, "the name of a credential")
        if len(name) > NAME_CHARACTERS_MAX:
            raise UsageError(f"the name of a credential has {len(name)} characters, {NAME_CHARACTERS_MAX} at most")
        check_function(refresh, "refresh function of a credential")
        if revoke is not None and inspect.iscoroutinefunction(revoke):
            raise UsageError(f"credential {name!r}: revoke= must be def, not async def")
        self.contract = token_contract(receiver)
        self._first = None if first is None else self._checked(first)
        self._revoke, self._keys = revoke, Keys(key)
        what = f"credential {name!r}"
        self._exchange = Exchange(
            refresh,
            self.contract,
            self._keys,
            timeout=optional_span(timeout, f"{what}: timeout") or DEFAULT_TIMEOUT_SECONDS,
            budget=optional_span(budget, f"{what}: budget") or DEFAULT_BUDGET_SECONDS,
        )
        self._seen: Standing | None = None
        self._turn = threading.Lock()
        self._refreshing_thread = 0
        self._flights: dict[int, asyncio.Task[None]] = {}

    # --- tokens -----------------------------------------------------------------------------------------------------

    def access_token(self, *, min_seconds: float = DEFAULT_MIN_SECONDS, refused: str | None = None) -> str:
        """An access token that lives for `min_seconds` more (at most half of its life), refreshed if it must be.

        `refused` is an access token that a resource has turned down: another one is given. Raises NeedsReconnect,
        NotRefreshed, WrongKey; each is a NotSent. The token is on disk, encrypted, when this returns. A crash inside
        leaves a refresh that the next asker settles by the provider's contract.
        """
        if self._exchange.is_async:
            raise UsageError(
                f"credential {self.name!r} is refreshed by an async def function: await access_token_async()"
            )
        asking = self._asking(min_seconds, refused)
        try:
            standing = next(asking)
            while True:
                self._settle_in_turn(standing)
                standing = asking.send(None)
        except StopIteration as found:
            return found.value.access_token

    async def access_token_async(self, *, min_seconds: float = DEFAULT_MIN_SECONDS, refused: str | None = None) -> str:
        """The same for tasks. A task that is cancelled while it waits leaves the exchange running for the others."""
        import asyncio

        asking = self._asking(min_seconds, refused)
        try:
            standing = next(asking)
            while True:
                await asyncio.shield(self._flight(standing))
                standing = asking.send(None)
        except StopIteration as found:
            return found.value.access_token

    def headers(self, *, min_seconds: float = DEFAULT_MIN_SECONDS) -> dict[str, str]:
        """`{"Authorization": "Bearer ..."}`; call it where the request is made, since it holds a secret."""
        return {"Authorization": f"Bearer {self.access_token(min_seconds=min_seconds)}"}

    async def headers_async(self, *, min_seconds: float = DEFAULT_MIN_SECONDS) -> dict[str, str]:
        """The same for tasks."""
        return {"Authorization": f"Bearer {await self.access_token_async(min_seconds=min_seconds)}"}

    # --- authorizations ---------------------------------------------------------------------------------------------

    def connect(self, token: Token) -> None:
        """Begin the first family with `token`; does nothing if there ever was one. Durable when it returns."""
        connect_first(self._reader(), self._checked(token))

    def reconnect(self, token: Token) -> None:
        """Begin a new family with the tokens of a new authorization, and close the doubts of the old one.

        Once for each token: a repeat after a crash changes nothing. Raises UsageError for a refresh token that is known
        and used up. Durable when it returns; a crash inside leaves the old family in use, or the new one.
        """
        reconnect(self._reader(), self.contract, self._checked(token))

    def forget(self) -> None:
        """Give out no token any more, in any process, and revoke the refresh token if there is a `revoke=`.

        Raises CredentialError if the provider has not confirmed it. A crash inside leaves it forgotten; call again to
        revoke. What is encrypted in the store stays there: without its key it is nothing.
        """
        forget(self._reader(), self.contract, self._revoke)

    def view(self) -> CredentialView:
        """Where the credential stands, without any secret."""
        reader = self._reader()
        standing = reader.look(opens=False)
        if not standing.family or standing.is_forgotten:
            state = "forgotten" if standing.is_forgotten else "not_connected"
            return CredentialView(name=self.name, state=state, family=standing.family)
        state, effect = standing.state, standing.effect
        ended = state in (State.DEAD, State.PARKED)
        held = None if ended else reader.open(standing.family, standing.token_generation)
        life = held.lifetime_seconds if held is not None else None
        return CredentialView(
            name=self.name,
            state="needs_reconnect" if ended else "refreshing" if state is State.OPEN else "ready",
            family=standing.family,
            generation=standing.generation,
            expires_at=held.obtained_at + life if held is not None and life is not None else None,
            key_id=reader.sealed(standing.family, standing.token_generation).key_id if held is not None else "",
            effect=effect.key if effect is not None else "",
            why=self._why(effect) if ended and effect is not None else "",
        )

    def __repr__(self) -> str:
        """Its name and what the provider promises."""
        return f"Credential({self.name!r}, receiver={self.contract.receiver or self.contract.mode.value})"

    # --- asking -----------------------------------------------------------------------------------------------------

    def _asking(self, min_seconds: float, refused: str | None) -> Generator[Standing, None, Held]:
        """Yields each standing whose next refresh has to be settled; returns the token to give out."""
        if not 0 <= min_seconds < math.inf:
            raise UsageError(f"min_seconds must be seconds, 0 or more, found {min_seconds!r}")
        engine = self._engine()
        first = standing = self._look(engine)
        settled: tuple[int, int] | None = None
        while True:
            self._check_alive(standing, settled)
            held = standing.held
            if standing.state in (State.TOKEN, State.VOID) and held is not None:
                left, came = held.seconds_left(*_now(engine)), settled is not None and standing.place > first.place
                # one that came while we asked is as good as this provider's tokens get
                if held.access_token != refused and (left > held.needed_seconds(min_seconds) or (left > 0 and came)):
                    return held
                if came and standing.state is State.TOKEN:
                    same = "the provider gave the access token again that was turned down"
                    over = f"the new access token is over already; it was given for {held.lifetime_seconds} seconds"
                    raise NotRefreshed(self.name, same if left > 0 else over)
            self._keys.at_hand()  # a token that could not be kept is not asked for
            yield standing
            settled = standing.place
            standing = self._look(engine)
            if standing.family > settled[0]:  # a new authorization came while we were at the old one
                close_older(Reader(engine, self._keys, self.name), standing.family)

    def _check_alive(self, standing: Standing, settled: tuple[int, int] | None) -> None:
        """Raises NeedsReconnect where no refresh can help; a parked one is asked once more, for a late answer."""
        if not standing.family or standing.is_forgotten:
            why = "it was forgotten" if standing.is_forgotten else "it was never connected"
            raise NeedsReconnect(self.name, why)
        effect, state = standing.effect, standing.state
        if effect is None or not (state is State.DEAD or (state is State.PARKED and settled == standing.place)):
            return
        family, generation = standing.place
        error = NeedsReconnect(self.name, self._why(effect), family=family, generation=generation, effect=effect.key)
        if effect.status is Status.PARKED:
            advise(
                standing.engine, effect, f"{error.why}; reconnect(Token(...)) with a new authorization ends this doubt"
            )
        raise error

    def _why(self, effect: EffectRecord) -> str:
        """Why no refresh of this family can help any more."""
        match effect.status:
            case Status.PARKED if state_of(effect) is State.PARKED:
                ends = "would end the whole family" if self.contract.revokes_family else "is refused"
                late = f" by now ({effect.reason})" if self.contract.mode is Mode.GRACE else ""
                return (
                    "the answer to a refresh was lost, so its refresh token may be used up, and a second use of it "
                    f"{ends}{late}"
                )
            case Status.ABANDONED:
                return f"its last refresh was given up ({effect.reason})"
            case _:
                return effect.reason

    def _look(self, engine: Engine) -> Standing:
        reader = Reader(engine, self._keys, self.name)
        standing = reader.look(self._seen)
        if not standing.family and self._first is not None:
            connect_first(reader, self._first)
            standing = reader.look(standing)
        self._seen = standing
        return standing

    # --- settling ---------------------------------------------------------------------------------------------------

    def _settle_in_turn(self, standing: Standing) -> None:
        """Settle the next refresh, one thread of this process at a time; nothing if another one has done it."""
        me = threading.get_ident()
        if self._refreshing_thread == me:
            raise CredentialError(f"credential {self.name!r} is asked for a token by its own refresh function")
        with self._turn:
            now = self._look(standing.engine)
            if (now.place, now.state) != (standing.place, standing.state):
                self._check_void(now, now.generation)
                return
            self._refreshing_thread = me
            try:
                self._settle(standing)
            finally:
                self._refreshing_thread = 0

    def _settle(self, standing: Standing) -> None:
        generation, previous = standing.next_refresh()
        try:
            with self._exchange.settling(standing.engine, self.name) as settle:
                settle(self.name, standing.family, generation, previous)
        except SurefootError as error:
            self._check_moved(error)
        self._check_void(standing, generation)

    async def _settle_async(self, standing: Standing) -> None:
        generation, previous = standing.next_refresh()
        try:
            with self._exchange.settling(standing.engine, self.name) as settle:
                await settle(self.name, standing.family, generation, previous)
        except SurefootError as error:
            self._check_moved(error)
        self._check_void(standing, generation)

    def _flight(self, standing: Standing) -> asyncio.Task[None]:
        """The one task of this loop that settles; no asker owns it, so none can cut the exchange short."""
        import asyncio

        loop = asyncio.get_running_loop()
        flight = self._flights.get(id(loop))
        if flight is not None and flight.get_loop() is loop and not flight.done():
            return flight
        with outside_any_run(standing.engine):  # so that it is no branch of a run
            if self._exchange.is_async:
                flight = loop.create_task(self._settle_async(standing))
            else:
                flight = loop.create_task(asyncio.to_thread(self._settle_in_turn, standing))
        self._flights[id(loop)] = flight
        flight.add_done_callback(lambda done: self._landed(id(loop), done))
        return flight

    def _landed(self, loop: int, flight: asyncio.Task[None]) -> None:
        if self._flights.get(loop) is flight:
            del self._flights[loop]
        if not flight.cancelled():
            flight.exception()  # seen, even if every asker has gone

    def _check_moved(self, error: SurefootError) -> None:
        """An effect that another process took over is looked at again; every other error is raised."""
        if type(error) is not SurefootError:
            raise error

    def _check_void(self, standing: Standing, generation: int) -> None:
        """Raises NotRefreshed if this refresh gave no token, and the next one may try again."""
        effect = Reader(standing.engine, self._keys, self.name).read(standing.family, generation)
        if effect is None or state_of(effect) is not State.VOID:
            return
        if effect.status is Status.PARKED:
            why = f"{effect.reason}; this refresh token may be used again, so the next refresh takes its place"
            retire(standing.engine, effect, why, "credential")
        raise NotRefreshed(self.name, effect.reason)

    # --- places -----------------------------------------------------------------------------------------------------

    def _engine(self) -> Engine:
        scope = current.get()
        return scope.session.engine if scope is not None else outside_session(f"credential {self.name}").engine

    def _reader(self) -> Reader:
        return Reader(self._engine(), self._keys, self.name)

    def _checked(self, token: Token) -> Token:
        if not isinstance(token, Token):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"credential {self.name!r} is connected with a Token(...), found {type(token).__name__}")
        if not token.refresh_token:
            raise UsageError(f"credential {self.name!r} cannot be connected without a refresh token")
        return token


def _now(engine: Engine) -> tuple[float, str, float]:
    moment = moment_of(engine)
    return moment.now, moment.boot, moment.boot_now
