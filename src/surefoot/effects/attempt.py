"""What an effect's body is given besides its own arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.effect import Effect


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of an effect. One attempt is one request: switch off your client library's own retries.

    `key` is the idempotency key as the receiver wants it, the same at every try; `headers` carries it under the
    contract's header name. `timeout` is in seconds, `deadline` in seconds since the epoch: after it the request must
    not be in flight any more. `number` counts tries from 1. `connection` is set for `same_transaction` effects only.
    """

    key: str
    headers: dict[str, str]
    timeout: float
    deadline: float
    number: int
    identity: str
    effect: str
    connection: Any = field(default=None, repr=False)

    @staticmethod
    def of(effect: Effect, connection: Any = None) -> Attempt:
        """The attempt that the effect's record describes."""
        header = effect.contract.header
        quoted = effect.sent_key
        return Attempt(
            key=effect.sent_key,
            headers={header: quoted} if header else {},
            timeout=effect.timeout_seconds,
            deadline=effect.deadline_at,
            number=effect.attempts,
            identity=effect.identity,
            effect=effect.key,
            connection=connection,
        )
