"""What an effect's body is given besides its own arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.contract import Place
from ..core.effect import Effect
from ..core.errors import UsageError

Scope = Mapping[str, str]
SCOPE_NAMES = ("account", "environment", "region", "endpoint", "credential")


def pin_scope(scope: Scope, effect: str) -> tuple[tuple[str, str], ...]:
    """A scope as it is recorded: sorted; of a credential only a digest. UsageError for other names or no text."""
    pinned: list[tuple[str, str]] = []
    for name, value in sorted(scope.items()):
        if name not in SCOPE_NAMES:
            raise UsageError(
                f"effect {effect!r}: its scope names {name!r}; a scope may hold {', '.join(SCOPE_NAMES[:-1])} and "
                f"{SCOPE_NAMES[-1]}"
            )
        if not isinstance(value, str) or not value:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"effect {effect!r}: the {name} of its scope must be a text, found {value!r}")
        secret = name == "credential"
        pinned.append((name, hashlib.blake2b(value.encode(), digest_size=8).hexdigest() if secret else value))
    return tuple(pinned)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of an effect. One attempt is one request: switch off your client library's own retries.

    `key` is the idempotency key as the receiver wants it, the same at every try. Of `headers`, `params` and `fields`
    the one that the contract names carries it. `timeout` is in seconds, `deadline` in seconds since the epoch: after it
    the request must not be in flight any more. `number` counts tries from 1. `scope` is where the request has to go.
    `connection` is set for `same_transaction` effects only.
    """

    key: str
    timeout: float
    deadline: float
    number: int
    identity: str
    effect: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    params: dict[str, str] = field(default_factory=dict[str, str])
    fields: dict[str, str] = field(default_factory=dict[str, str])
    scope: dict[str, str] = field(default_factory=dict[str, str])
    record: Effect | None = field(default=None, repr=False)
    connection: Any = field(default=None, repr=False)

    @staticmethod
    def of(effect: Effect, connection: Any = None) -> Attempt:
        """The attempt that the effect's record describes."""
        contract = effect.contract
        key = f'"{effect.sent_key}"' if contract.quoted else effect.sent_key
        placed = {contract.key_name: key} if contract.key_name else {}
        return Attempt(
            key=effect.sent_key,
            headers=placed if contract.place in (Place.HEADER, Place.MAIL_HEADER) else {},
            params=placed if contract.place is Place.QUERY else {},
            fields=placed if contract.place in (Place.BODY, Place.PROPERTY) else {},
            timeout=effect.timeout_seconds,
            deadline=effect.deadline_at,
            number=effect.attempts,
            identity=effect.identity,
            effect=effect.key,
            scope=dict(effect.scope),
            record=effect,
            connection=connection,
        )
