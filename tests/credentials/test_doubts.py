"""One process: lost answers, refusals, new authorizations and secret keys, under each promise of the provider."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import Attempt, Surefoot, UsageError
from surefoot.core.commands import Commit
from surefoot.core.effect import Status
from surefoot.credentials import (
    Credential,
    CredentialError,
    NeedsReconnect,
    NotRefreshed,
    Token,
    TokenContract,
    WrongKey,
    family_revocation,
    grace,
    reusable,
    strict,
)
from surefoot.credentials.exchange import outside_any_run
from surefoot.testing.crash import SimulatedCrash, abandon, crash_at
from surefoot.testing.oauth import EndpointError, Fault, Promise
from tests.credentials.world import KEY, OTHER_KEY, World

# --- lost answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ERROR, Fault.GARBLED, Fault.BUSY])
@pytest.mark.parametrize("receiver", [strict(), family_revocation()], ids=["strict", "family"])
def test_an_answer_that_says_nothing_ends_a_strict_family_at_once(
    worlds: Callable[..., World], receiver: TokenContract, fault: Fault
) -> None:
    world = worlds(Promise.FAMILY_REVOCATION, receiver)
    world.clock.advance(3600)
    world.endpoint.faults = [fault]
    for _ in range(2):
        with pytest.raises(NeedsReconnect, match=r"reconnect\(Token"):
            world.credential.access_token()
    assert world.whats() == ([] if fault is Fault.BUSY else ["exchanged"]), "a refresh token was sent again"
    (parked,) = world.open_effects()
    assert parked.status is Status.PARKED and world.credential.view().state == "needs_reconnect"
    world.credential.reconnect(world.sign_in("two"))
    assert world.open_effects() == [] and world.credential.view().state == "ready"
    assert world.endpoint.use(world.credential.access_token()) == 200


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ERROR, Fault.GARBLED, Fault.BUSY, Fault.TOO_MANY])
@pytest.mark.parametrize("promise", [Promise.GRACE, Promise.REUSABLE, Promise.ROTATING])
def test_an_answer_that_says_nothing_is_asked_for_again_where_that_is_allowed(
    worlds: Callable[..., World], promise: Promise, fault: Fault
) -> None:
    world = worlds(promise, grace(600) if promise is Promise.GRACE else reusable())
    world.clock.advance(3600)
    world.endpoint.faults = [fault, fault]
    assert world.endpoint.use(world.credential.access_token()) == 200
    assert "revoked" not in world.whats() and world.open_effects() == []


def test_a_refused_client_between_two_tries_says_nothing_about_the_first(worlds: Callable[..., World]) -> None:
    world = worlds(Promise.GRACE, grace(600))
    world.clock.advance(3600)
    world.endpoint.faults = [Fault.LOST, Fault.CLIENT, Fault.TOO_MANY]
    assert world.endpoint.use(world.credential.access_token()) == 200
    assert world.whats() == ["exchanged", "exchanged", "served"] and world.open_effects() == []


def test_only_half_of_the_grace_is_relied_on(worlds: Callable[..., World]) -> None:
    world = worlds(Promise.GRACE, grace(600), budget=30)
    world.clock.advance(3600)
    world.endpoint.faults = [Fault.LOST] * 1000
    began = world.clock.lease_now()

    def ask_until_told() -> None:
        while world.clock.lease_now() < began + 400:
            with pytest.raises(NotRefreshed):
                world.credential.access_token()
            world.clock.advance(5)

    with pytest.raises(NeedsReconnect, match="by now"):
        ask_until_told()
    last = max(line.at for line in world.endpoint.ledger.lines() if line.what == "exchanged")
    assert began + 200 < last <= began + 300, "a use outside of half of the window"


def test_one_call_waits_no_longer_than_its_budget_and_the_next_goes_on(worlds: Callable[..., World]) -> None:
    world = worlds(Promise.GRACE, grace(600), budget=30)
    world.clock.advance(3600)
    world.endpoint.faults = [Fault.LOST] * 20
    began = world.clock.lease_now()
    with pytest.raises(NotRefreshed, match="for 30 s"):
        world.credential.access_token()
    assert world.clock.lease_now() - began < 60
    world.endpoint.faults = []
    assert world.endpoint.use(world.credential.access_token()) == 200


def test_a_refused_token_needs_a_new_authorization_without_a_doubt(worlds: Callable[..., World]) -> None:
    world = worlds(Promise.REUSABLE, reusable())
    world.endpoint.revoke("one")
    world.clock.advance(3600)
    for _ in range(2):
        with pytest.raises(NeedsReconnect, match="invalid_grant"):
            world.credential.access_token()
    assert world.whats() == ["refused"] and world.open_effects() == []


def test_a_token_that_is_refused_after_a_lost_answer_is_used_up(worlds: Callable[..., World]) -> None:
    """The grace was not honoured: it is no refusal of the first try, and nothing is sent any more."""
    world = worlds(Promise.STRICT, grace(600))
    world.clock.advance(3600)
    world.endpoint.faults = [Fault.LOST]
    for _ in range(2):
        with pytest.raises(NeedsReconnect):
            world.credential.access_token()
    assert world.whats() == ["exchanged", "refused"]
    assert [each.status for each in world.open_effects()] == [Status.PARKED]


def test_a_client_that_is_refused_uses_nothing_up(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.clock.advance(3600)
    world.endpoint.faults = [Fault.CLIENT]
    with pytest.raises(NotRefreshed, match="invalid_client"):
        world.credential.access_token()
    assert world.endpoint.use(world.credential.access_token()) == 200 and world.open_effects() == []


def test_an_endpoint_that_is_down_is_tried_for_the_budget_and_then_again(worlds: Callable[..., World]) -> None:
    world, is_up, tries = worlds(first=None), [False], list[float]()

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        tries.append(world.clock.now())
        if not is_up[0]:
            raise ConnectionRefusedError("nobody listens")
        return world.exchange(attempt, refresh_token)

    held = world.another(refresh, budget=30)
    world.clock.advance(3600)
    for _ in range(2):
        with pytest.raises(NotRefreshed):
            held.access_token()
    assert len(tries) >= 6
    is_up[0] = True
    assert world.endpoint.use(held.access_token()) == 200 and world.open_effects() == []


class StoodStill:
    """A sender that stood still past its lease, while another process parked its refresh; then it brings the token."""

    def __init__(self, world: World) -> None:
        self.world, self.seen = world, list[str]()
        self.other = Surefoot(world.surefoot.store, clock=world.clock)
        self.held = world.another(self.refresh)
        self.twin = Credential("b", refresh=self.refresh, receiver=strict(), key=lambda: KEY)
        world.clock.advance(3600)

    def refresh(self, attempt: Attempt, refresh_token: str) -> Any:
        answer = self.world.exchange(attempt, refresh_token)
        self.world.clock.advance(3000)
        thread = threading.Thread(target=self.ask_elsewhere)
        thread.start()
        thread.join()
        return answer

    def ask_elsewhere(self) -> None:
        with outside_any_run(self.other.engine), pytest.raises(NeedsReconnect):
            self.twin.access_token()
        self.seen.append("parked")


def test_a_late_answer_of_a_sender_that_was_given_up_makes_it_whole_again(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)
    scene = StoodStill(world)
    with scene.other, Surefoot(world.surefoot.store, clock=world.clock, lease=5):
        token = scene.held.access_token(min_seconds=0)
    assert scene.seen == ["parked"]
    assert world.endpoint.use(token) == 200 and world.whats() == ["exchanged", "served"]


def test_a_late_answer_whose_sender_died_right_after_is_adopted_by_the_next_asker(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)
    scene = StoodStill(world)
    sender = Surefoot(world.surefoot.store, clock=world.clock, lease=5)
    driver = crash_at(2, when="after", kind=Commit).drive(sender)
    with pytest.raises(SimulatedCrash):
        scene.held.access_token()
    abandon(sender)
    assert driver.struck == "Commit" and scene.seen == ["parked"]
    with scene.other, outside_any_run(scene.other.engine):
        token = scene.twin.access_token(min_seconds=0)
    assert world.endpoint.use(token) == 200 and world.whats() == ["exchanged", "served"]


# --- authorizations -----------------------------------------------------------------------------------------------


def test_a_credential_that_was_never_connected_says_so(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)
    with pytest.raises(NeedsReconnect, match="never connected"):
        world.credential.access_token()
    assert world.credential.view().state == "not_connected"


def test_the_first_token_in_the_code_counts_only_where_there_is_none(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.clock.advance(3600)
    token = world.credential.access_token()
    restarted = Credential(
        "gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEY, first=world.sign_in("two")
    )
    restarted.connect(world.sign_in("three"))
    assert restarted.access_token() == world.credential.access_token() == token and world.whats() == ["exchanged"]
    assert restarted.view().family == 1


def test_a_new_authorization_is_used_by_everybody_at_once(worlds: Callable[..., World]) -> None:
    world = worlds()
    twin = Credential("gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEY)
    assert twin.access_token() == world.credential.access_token()
    fresh = world.sign_in("two")
    world.credential.reconnect(fresh)
    world.credential.reconnect(fresh)
    assert twin.access_token() == fresh.access_token and twin.view().family == 2


def test_a_new_authorization_during_a_refresh_leaves_no_doubt_of_the_old_one(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        held.reconnect(world.sign_in("three"))
        raise TimeoutError("the answer was lost")

    held = world.another(refresh)
    world.clock.advance(3600)
    assert world.endpoint.use(held.access_token()) == 200
    assert held.view().family == 2 and world.open_effects() == []


def test_a_token_that_was_used_up_is_no_new_authorization(worlds: Callable[..., World]) -> None:
    first = Token(access_token="a", refresh_token="r", expires_in=3600)
    world = worlds(first=first)
    world.clock.advance(3600)
    with pytest.raises(NeedsReconnect):
        world.credential.access_token()
    with pytest.raises(UsageError, match="new authorization"):
        world.credential.reconnect(first)


def test_what_is_forgotten_is_given_out_nowhere_and_revoked_once(worlds: Callable[..., World]) -> None:
    revoked: list[str] = []
    world = worlds(revoke=lambda attempt, refresh_token: revoked.append(refresh_token))
    twin = Credential("gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEY)
    twin.access_token()
    world.credential.forget()
    world.credential.forget()
    assert len(revoked) == 1 and world.credential.view().state == "forgotten"
    for held in (world.credential, twin):
        with pytest.raises(NeedsReconnect, match="forgotten"):
            held.access_token()
    world.credential.reconnect(world.sign_in("two"))
    assert world.endpoint.use(twin.access_token()) == 200


def test_what_is_forgotten_leaves_no_doubt(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.clock.advance(3600)
    world.endpoint.faults = [Fault.LOST]
    with pytest.raises(NeedsReconnect):
        world.credential.access_token()
    assert [each.status for each in world.open_effects()] == [Status.PARKED]
    world.credential.forget()
    assert world.open_effects() == []


def test_a_revocation_that_nobody_confirmed_is_told_and_one_of_a_dead_token_is_done(
    worlds: Callable[..., World],
) -> None:
    says = [EndpointError(400, {"error": "invalid_scope"}), EndpointError(400, {"error": "invalid_grant"})]

    def revoke(attempt: Attempt, refresh_token: str) -> None:
        raise says[0]

    for told in (True, False):
        world = worlds(revoke=revoke)
        if told:
            with pytest.raises(CredentialError, match="has not confirmed that it revoked them"):
                world.credential.forget()
        else:
            world.credential.forget()
        assert world.credential.view().state == "forgotten"
        del says[0]


# --- keys ---------------------------------------------------------------------------------------------------------


def test_keys_are_rotated_without_an_interruption(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.credential.access_token()
    old_id = world.credential.view().key_id

    def rotated(*keys: bytes) -> Credential:
        return Credential("gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: keys)

    with pytest.raises(WrongKey, match=old_id):
        rotated(OTHER_KEY).access_token()
    world.clock.advance(3600)
    assert world.endpoint.use(rotated(OTHER_KEY, KEY).access_token()) == 200
    assert rotated(OTHER_KEY).view().key_id != old_id
    world.clock.advance(3600)
    assert world.endpoint.use(rotated(OTHER_KEY).access_token()) == 200


def test_a_key_that_is_missing_is_found_out_before_anything_is_sent(worlds: Callable[..., World]) -> None:
    world, keys = worlds(first=None), [KEY]
    held = world.another(world.exchange, key=lambda: keys)
    held.access_token()
    world.clock.advance(3600)
    keys.clear()
    with pytest.raises(WrongKey, match="SUREFOOT_SECRET_KEY"):
        held.access_token()
    keys.append(OTHER_KEY)
    with pytest.raises(WrongKey):
        Credential("b", refresh=world.exchange, receiver=strict(), key=lambda: keys).access_token()
    assert world.whats() == []
    keys[:] = [KEY]
    assert world.endpoint.use(held.access_token()) == 200


def test_a_vault_that_fails_after_the_exchange_loses_no_token(worlds: Callable[..., World]) -> None:
    world, is_up = worlds(first=None), [True]

    def key() -> bytes:
        if not is_up[0]:
            raise OSError("the vault is down")
        return KEY

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        answer = world.exchange(attempt, refresh_token)
        is_up[0] = False
        return answer

    held = world.another(refresh, key=key)
    world.clock.advance(3600)
    with pytest.raises(WrongKey, match="OSError"):
        held.access_token()
    is_up[0] = True
    assert world.endpoint.use(held.access_token()) == 200 and world.whats() == ["exchanged", "served"]


def test_a_box_opens_only_in_its_own_place(worlds: Callable[..., World], tmp_path: Path) -> None:
    from surefoot.credentials.sealing import Keys, Place, Sealed

    keys = Keys(lambda: KEY)
    place = Place("default", "gmail:acme", 1, 2)
    sealed = keys.sealer()(b"secret", place)
    assert keys.open(sealed, place) == b"secret"
    for other in (
        Place("staging", "gmail:acme", 1, 2),
        Place("default", "gmail:b", 1, 2),
        Place("default", "gmail:acme", 2, 2),
        Place("default", "gmail:acme", 1, 3),
    ):
        with pytest.raises(WrongKey, match="does not open"):
            keys.open(sealed, other)
    with pytest.raises(WrongKey):
        keys.open(Sealed(key_id=sealed.key_id, box=sealed.box[:-1] + bytes([sealed.box[-1] ^ 1])), place)
    assert keys.sealer()(b"secret", place).box != sealed.box
