"""What a protected handler is given: its key, and `once` under it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ..core.errors import UsageError
from .once import HTTP_SCOPE, Once, once
from .rules import Claim

CALL = "surefoot.idempotency"
"""Where the call stands in the ASGI scope."""


class IdempotentCall:
    """One protected request, for its handler. `attempt` counts runs of the handler under this key, from 1."""

    def __init__(self, claim: Claim, expires: timedelta | None) -> None:
        """Made by the middleware."""
        self.key = claim.key
        self.scope = claim.scope.removeprefix(HTTP_SCOPE)
        self.digest = claim.digest
        self.attempt = claim.attempts
        self.used_once = False
        self.certainly_nothing_happened = False
        self._expires = expires

    def once(self, connection: Any, *, commit: bool = True) -> Once:
        """`once` under this request's own key, scope and fingerprint; see there. For transactional handlers.

        Ask it before anything else that the database could answer: a repeat after a crash must meet the stored result,
        and not the traces of the first attempt.
        """
        return once(connection, self.key, self.digest, scope=self.scope, expires=self._expires, commit=commit)

    def nothing_happened(self) -> None:
        """Say, before failing, that the handler has certainly changed nothing: a repeat may then run it again."""
        self.certainly_nothing_happened = True


def idempotency(request: Any) -> IdempotentCall:
    """The call of a protected request, by Starlette's Request or the ASGI scope; UsageError if it is not protected."""
    scope: Mapping[str, Any] = getattr(request, "scope", request)
    call = scope.get(CALL)
    if call is None:
        raise UsageError(
            "this request carries no Idempotency-Key, or no IdempotencyMiddleware is before this endpoint; add it, or "
            f"look at scope.get({CALL!r}) where the key is optional"
        )
    return call
