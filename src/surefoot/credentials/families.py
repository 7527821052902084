"""Authorizations: each gives a family of tokens, begun by a person and ended by the next one, or by `forget`.

The first token of a family is number 0 of its chain. A family counts once that is recorded; one whose connection broke
off before changes nothing, and the next connection takes its number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..core.contract import natural
from ..core.effect import TERMINAL, Status
from ..core.errors import Refused, UsageError
from ..core.outcome import Confirmed, InDoubt
from ..effects.attempt import Attempt
from ..effects.effect import Effect
from .answers import DEAD, told
from .chain import CONNECT, FORGET, State, identity_of, newest
from .contract import Mode, TokenContract
from .errors import CredentialError
from .exchange import moment_of, outside_any_run
from .retire import retire
from .standing import Reader, Standing
from .token import Held, Token, held_from

Revoke = Callable[[Attempt, str], Any]
HEAD_BUDGET_SECONDS = 60.0
HARMLESS = natural(exists=(), refused=(), lag=0.0)


def connect(reader: Reader, family: int, token: Token) -> bool:
    """Record `token` as the first of this family; False if another connection was faster. Durable when it returns."""
    held = held_from(token, moment_of(reader.engine))

    seal = reader.keys.sealer()

    def give(attempt: Attempt) -> Any:
        return msgspec.to_builtins(seal(msgspec.json.encode(held), reader.place(family, 0)))

    _head(reader, CONNECT, family, give)
    return reader.open(family, 0) == held


def connect_first(reader: Reader, token: Token) -> None:
    """Begin the first family, unless there ever was one; one whose token never arrived is begun again."""
    standing = reader.look(opens=False)
    if not standing.family:
        connect(reader, _free_family(reader, standing.top), token)


def _free_family(reader: Reader, top: int) -> int:
    """The number of the next family: the newest one's, if its token never arrived."""
    return top if top and reader.head_is_open(top) else top + 1


def _head_identity(credential: str, family: int) -> str:
    return identity_of(credential, family, 0)


def _head(reader: Reader, kind: str, family: int, give: Callable[[Attempt], Any]) -> Confirmed[Any] | Refused | InDoubt:
    def head(attempt: Attempt, credential: str, family: int) -> Any:
        return give(attempt)

    effect: Effect[..., Any] = Effect(
        head,
        HARMLESS,
        identity=_head_identity,
        budget=HEAD_BUDGET_SECONDS,
        name=kind,
    )
    with outside_any_run(reader.engine):
        return effect.outcome(reader.credential, family)


def reconnect(reader: Reader, contract: TokenContract, token: Token) -> None:
    """Begin a new family with `token`, and close what is in doubt in older ones; once for each token."""
    standing = reader.look(opens=False)
    if _is_known(reader, standing, token):
        ended = standing.state in (State.DEAD, State.PARKED)
        if ended and contract.mode is not Mode.REUSABLE:
            raise UsageError(
                f"credential {reader.credential!r}: reconnect() was given a refresh token that it has had before, and "
                "that is what ended; it needs the tokens of a new authorization"
            )
        if not ended:
            close_older(reader, standing.family)
            return
    family = 0
    while not family or not connect(reader, family, token):
        family = _free_family(reader, reader.look(opens=False).top)
    close_older(reader, family)


def close_older(reader: Reader, family: int) -> None:
    """Retire the last refresh of each older family, if it is still open: its tokens are not used any more."""
    why = f"credential {reader.credential!r} has gone on with family {family}"
    for older in range(1, family):
        _, effect = newest(lambda number, older=older: reader.read(older, number), 0)
        if effect is not None and effect.status not in TERMINAL:
            retire(reader.engine, effect, why, "reconnect")


def _is_known(reader: Reader, standing: Standing, token: Token) -> bool:
    """True if this refresh token began a family since the last `forget`, or is the newest one."""
    if standing.is_forgotten or not standing.family:
        return False
    places = [(standing.family, standing.token_generation)]
    for family in range(standing.family, 0, -1):
        head = reader.read(family, 0)
        if head is not None and head.name == FORGET:
            break
        if head is not None and head.status is Status.CONFIRMED:
            places.append((family, 0))
    return any(_refresh_token(reader, *place) == token.refresh_token for place in places)


def _refresh_token(reader: Reader, family: int, generation: int) -> str:
    try:
        return reader.open(family, generation).refresh_token
    except CredentialError:
        return ""  # what nobody can open is nobody's token


def forget(reader: Reader, contract: TokenContract, revoke: Revoke | None) -> None:
    """End the family in use without another: no token is given out from when the intent is on disk."""
    standing = reader.look(opens=False)
    if not standing.family:
        return
    family = standing.family if standing.is_forgotten else standing.top + 1
    if not standing.is_forgotten and reader.head_is_open(standing.top):
        head = reader.read(standing.top, 0)
        assert head is not None
        retire(reader.engine, head, f"credential {reader.credential!r} is forgotten", "forget")

    held = _last_token(reader, family) if revoke is not None else None

    def give(attempt: Attempt) -> Any:
        if revoke is not None and held is not None:
            _revoke(revoke, attempt, held, contract)
        return {"forgotten": True}

    outcome = _head(reader, FORGET, family, give)
    close_older(reader, family)
    if not isinstance(outcome, Confirmed):
        raise CredentialError(
            f"credential {reader.credential!r} is forgotten and none of its tokens is given out any more, but the "
            f"provider has not confirmed that it revoked them: {outcome.reason}. Revoke them there by hand"
        )


def _last_token(reader: Reader, family: int) -> Held | None:
    """The newest token of the family in use before this one, if there is one and it opens."""
    for older in range(family - 1, 0, -1):
        head = reader.read(older, 0)
        if head is not None and head.name == CONNECT and head.status is Status.CONFIRMED:
            return reader.look_at(older).held
    return None


def _revoke(revoke: Revoke, attempt: Attempt, held: Held, contract: TokenContract) -> None:
    told_as: Exception | None = None
    try:
        revoke(attempt, held.refresh_token)
    except Exception as error:
        told_as = told(error, contract, (held.refresh_token, held.access_token))
    if isinstance(told_as, Refused) and told_as.reason.startswith(DEAD):
        return  # it is no good any more, which is what was asked for
    if told_as is not None:
        raise told_as
