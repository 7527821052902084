"""A provider and a credential in one process, on one clock that the test moves."""

from __future__ import annotations

from typing import Any

from surefoot import Attempt, Surefoot
from surefoot.core.effect import Status
from surefoot.credentials import (
    Credential,
    Token,
    TokenContract,
    strict,
)
from surefoot.testing.clock import FakeClock
from surefoot.testing.ledger import Ledger
from surefoot.testing.oauth import EndpointError, Promise, TokenEndpoint

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
OPEN = (Status.INTENDED, Status.ATTEMPTED, Status.IN_DOUBT, Status.PARKED)


class World:
    """A token endpoint and a credential, on one clock that the test moves."""

    def __init__(self, promise: Promise, receiver: TokenContract, **options: Any) -> None:
        self.clock = FakeClock()
        self.surefoot = Surefoot("memory:", clock=self.clock)
        self.endpoint = TokenEndpoint(promise, Ledger(), now=self.clock.lease_now, grace_seconds=600.0)
        first = options.pop("first", self.sign_in("one"))
        options = {"key": lambda: KEY} | options
        self.credential = Credential("gmail:acme", refresh=self.exchange, receiver=receiver, **options)
        if first is not None:
            self.credential.connect(first)

    def another(self, refresh: Any, **options: Any) -> Credential:
        """A credential of its own, just connected."""
        options = {"key": lambda: KEY, "receiver": strict()} | options
        held = Credential("b", refresh=refresh, **options)
        held.connect(self.sign_in("two"))
        return held

    def sign_in(self, name: str) -> Token:
        return Token.of(self.endpoint.authorize(name))

    def exchange(self, attempt: Attempt, refresh_token: str) -> dict[str, Any]:
        status, body = self.endpoint.exchange(refresh_token)
        if status == 0:
            raise TimeoutError(f"no answer for {refresh_token}")
        if status >= 400:
            raise EndpointError(status, body)
        return body

    def whats(self) -> list[str]:
        return [line.what for line in self.endpoint.ledger.lines()]

    def open_effects(self) -> list[Any]:
        return list(self.surefoot.store.find_effects(OPEN))
