"""A process that dies at every command of a refresh, a reconnection and a farewell, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from surefoot import Attempt, Surefoot
from surefoot.core.effect import TERMINAL
from surefoot.credentials import (
    Credential,
    NeedsReconnect,
    Token,
    family_revocation,
    grace,
    reusable,
    strict,
)
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.crash import SimulatedCrash, abandon, crash_at
from surefoot.testing.ledger import Ledger
from surefoot.testing.oauth import EndpointError, Promise, TokenEndpoint

PROMISES = {
    "strict": (Promise.STRICT, strict()),
    "family_revocation": (Promise.FAMILY_REVOCATION, family_revocation()),
    "grace": (Promise.GRACE, grace(600)),
    "reusable": (Promise.REUSABLE, reusable()),
    "rotating": (Promise.ROTATING, reusable()),
}
COMMANDS_MAX = 60


class World:
    """One store and one provider, and a process that is started again and again."""

    def __init__(self, promise: str, *, connected: bool = True, alive: bool = False) -> None:
        kind, self.receiver = PROMISES[promise]
        self.clock, self.store = FakeClock(), MemoryStore()
        self.endpoint = TokenEndpoint(kind, Ledger(), now=self.clock.lease_now, grace_seconds=600.0)
        self.revoked: list[str] = []
        token = self.sign_in("one")
        self.first = token if alive else Token(refresh_token=token.refresh_token)
        if connected:
            self.after(lambda held: held.connect(self.first))

    def sign_in(self, name: str) -> Token:
        return Token.of(self.endpoint.authorize(name))

    def credential(self) -> Credential:
        def refresh(attempt: Attempt, refresh_token: str) -> Any:
            status, body = self.endpoint.exchange(refresh_token)
            if status >= 400:
                raise EndpointError(status, body)
            return body

        def revoke(attempt: Attempt, refresh_token: str) -> None:
            self.revoked.append(refresh_token)

        return Credential("b", refresh=refresh, receiver=self.receiver, key=lambda: bytes(32), revoke=revoke)

    def die_at(self, number: int, when: Any, job: Callable[[Credential], object]) -> str:
        """Do the job in a process that dies there; the command's name, or "" if it came to its end."""
        surefoot = Surefoot(self.store, clock=self.clock)
        driver = crash_at(number, when=when).drive(surefoot)
        try:
            job(self.credential())
        except SimulatedCrash:
            abandon(surefoot)
            assert driver.struck
            return driver.struck
        surefoot.close()
        assert not driver.struck
        return ""

    def after(self, job: Callable[[Credential], Any]) -> Any:
        """Do the job in another process that lives."""
        with Surefoot(self.store, clock=self.clock):
            return job(self.credential())

    def whats(self) -> list[str]:
        return [line.what for line in self.endpoint.ledger.lines()]

    def open_count(self) -> int:
        return sum(each.status not in TERMINAL for each in self.store.find_effects())


def each_death(
    promise: str, when: str, job: Callable[[World, Credential], object], *, connected: bool = True, alive: bool = False
) -> list[tuple[World, str]]:
    """A world for every command that the job makes, in which it died there."""
    worlds: list[tuple[World, str]] = []
    for number in range(1, COMMANDS_MAX):
        world = World(promise, connected=connected, alive=alive)
        struck = world.die_at(number, when, lambda held, world=world: job(world, held))
        if not struck:
            return worlds
        worlds.append((world, struck))
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("is_forced", [False, True], ids=["due", "forced"])
def test_a_refresh_that_dies_anywhere_gives_no_token_that_is_not_good(promise: str, when: str, is_forced: bool) -> None:
    """Also while the old access token still looks alive: the newest refresh decides."""

    def refresh(world: World, held: Credential) -> None:
        held.access_token(refused=held.access_token() if is_forced else None)

    worlds = each_death(promise, when, refresh, alive=is_forced)
    assert len(worlds) >= 5 and {"Commit", "SendEffect"} <= {struck for _, struck in worlds}
    may_repeat, parked = promise not in ("strict", "family_revocation"), 0
    for world, struck in worlds:
        place = f"{when} {struck}"
        reached = world.whats().count("exchanged")
        try:
            token = world.after(lambda held: held.access_token())
        except NeedsReconnect:
            assert not may_repeat, place
            parked += 1
            assert world.whats().count("exchanged") == reached, f"{place}: it was sent again"
            world.after(lambda held, world=world: held.reconnect(world.sign_in("two")))
            token = world.after(lambda held: held.access_token())
        assert world.endpoint.use(token) == 200, place
        assert world.open_count() == 0 and not {"revoked", "refused"} & set(world.whats()), place
        assert may_repeat or world.whats().count("exchanged") <= 1, place
    assert may_repeat or parked >= 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_first_connection_that_dies_anywhere_is_done_by_its_repeat(when: str) -> None:
    worlds = each_death("strict", when, lambda world, held: held.connect(world.first), connected=False)
    assert len(worlds) >= 4
    for world, struck in worlds:
        world.after(lambda held, world=world: held.connect(world.first))
        assert world.endpoint.use(world.after(lambda held: held.access_token())) == 200, f"{when} {struck}"
        assert world.after(lambda held: held.view().family) == 1 and world.open_count() == 0, f"{when} {struck}"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("promise", ["strict", "reusable"])
def test_a_reconnection_that_dies_anywhere_is_done_by_its_repeat(promise: str, when: str) -> None:
    fresh: dict[int, Token] = {}

    def reconnect(world: World, held: Credential) -> None:
        fresh[id(world)] = fresh.get(id(world)) or world.sign_in("two")
        held.reconnect(fresh[id(world)])

    worlds = each_death(promise, when, reconnect)
    assert len(worlds) >= 4
    for world, struck in worlds:
        assert world.endpoint.use(world.after(lambda held: held.access_token())) == 200, f"{when} {struck}"
        world.after(lambda held, world=world: reconnect(world, held))
        assert world.endpoint.use(world.after(lambda held: held.access_token())) == 200, f"{when} {struck}"
        assert world.after(lambda held: held.view().family) == 2 and world.open_count() == 0, f"{when} {struck}"


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_to_be_forgotten_is_forgotten_from_its_intent_on(when: str) -> None:
    worlds = each_death("strict", when, lambda world, held: held.forget())
    assert len(worlds) >= 4
    for world, struck in worlds:
        place, state = f"{when} {struck}", world.after(lambda held: held.view().state)
        begun = any(each.name == "credential.forget" for each in world.store.find_effects())
        assert state == ("forgotten" if begun else "ready"), place
        world.after(lambda held: held.forget())
        assert world.revoked and world.open_count() == 0, place
        with pytest.raises(NeedsReconnect):
            world.after(lambda held: held.access_token())
