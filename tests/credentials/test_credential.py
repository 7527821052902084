"""One process: what a credential gives, refuses, and says, under each promise of the provider."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot import Attempt, Surefoot, UsageError, effect, opaque, step, workflow
from surefoot.core.effect import Status
from surefoot.core.flows import POLL_SECONDS
from surefoot.credentials import (
    Credential,
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
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.ledger import Ledger
from surefoot.testing.oauth import EndpointError, Fault, Promise, TokenEndpoint

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


@pytest.fixture
def worlds() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(promise: Promise = Promise.STRICT, receiver: TokenContract | None = None, **options: Any) -> World:
        made.append(World(promise, receiver or strict(), **options))
        return made[-1]

    yield make
    for world in made:
        world.surefoot.close()


# --- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_kept_until_it_would_die_too_soon(worlds: Callable[..., World]) -> None:
    world = worlds()
    first = world.credential.access_token()
    world.clock.advance(3539)
    assert world.credential.access_token() == first and world.whats() == []
    world.clock.advance(2)
    second = world.credential.access_token()
    assert second != first and world.endpoint.use(second) == 200 and world.whats() == ["exchanged", "served"]
    assert world.credential.headers() == {"Authorization": f"Bearer {second}"}


def test_a_token_that_lives_shorter_than_asked_for_is_not_refreshed_each_time(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.endpoint._told_seconds = 20.0
    world.clock.advance(3600)
    tokens = {world.credential.access_token(min_seconds=600) for _ in range(5)}
    assert len(tokens) == 1 and world.whats() == ["exchanged"]


def test_a_token_that_a_resource_turned_down_is_replaced_once(worlds: Callable[..., World]) -> None:
    world = worlds()
    first = world.credential.access_token()
    second = world.credential.access_token(refused=first)
    assert second != first and world.credential.access_token(refused=first) == second
    assert world.whats() == ["exchanged"]


def test_a_provider_whose_tokens_are_over_at_once_is_asked_once_and_named(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.endpoint._told_seconds = 0.0
    with pytest.raises(NotRefreshed, match="over already"):
        world.credential.access_token(refused=world.credential.access_token())
    assert world.whats() == ["exchanged"]


def test_a_provider_that_gives_the_same_token_again_is_asked_once_and_named(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)
    same = Token(access_token="the-same", refresh_token="r", expires_in=3600)
    asked: list[str] = []
    held = world.another(lambda attempt, refresh_token: asked.append(refresh_token) or same)
    first = held.access_token()
    assert held.access_token(refused=first) == "the-same"
    with pytest.raises(NotRefreshed, match="again"):
        held.access_token(refused="the-same")
    assert len(asked) == 2


def test_a_clock_that_is_set_back_gives_no_dead_token(worlds: Callable[..., World]) -> None:
    world = worlds()
    first = world.credential.access_token()
    world.clock.advance(3600)
    world.clock.shift_wall(-3600)
    assert world.endpoint.use(world.credential.access_token()) == 200
    assert world.credential.access_token() != first


def test_a_refresh_token_that_stays_is_kept(worlds: Callable[..., World]) -> None:
    world = worlds(Promise.REUSABLE, reusable())
    for _ in range(3):
        world.clock.advance(3600)
        assert world.endpoint.use(world.credential.access_token()) == 200
    assert world.whats() == ["exchanged", "served"] * 3
    assert len({line.key for line in world.endpoint.ledger.lines() if line.what == "exchanged"}) == 1


def test_only_a_refresh_token_is_enough_to_begin_with(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)
    world.credential.connect(Token(refresh_token=world.sign_in("two").refresh_token))
    assert world.endpoint.use(world.credential.access_token()) == 200


def test_the_newest_generation_is_found_in_few_reads(worlds: Callable[..., World]) -> None:
    world = worlds()
    for _ in range(100):
        world.clock.advance(3600)
        world.credential.access_token()
    reads: list[str] = []
    store, read_effect = world.surefoot.store, world.surefoot.store.read_effect
    store.read_effect = lambda key: reads.append(key) or read_effect(key)  # type: ignore[method-assign]
    world.credential.access_token()
    assert len(reads) == 2
    reads.clear()
    stranger = Credential("gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEY)
    assert stranger.access_token() == world.credential.access_token()
    assert len(reads) < 24, f"{len(reads)} reads for 100 generations"


# --- one at a time ------------------------------------------------------------------------------------------------


def test_fifty_threads_share_one_exchange(worlds: Callable[..., World]) -> None:
    world = worlds(Promise.FAMILY_REVOCATION, family_revocation())
    world.clock.advance(3600)
    tokens: list[str] = []
    threads = [threading.Thread(target=lambda: tokens.append(world.credential.access_token())) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 50 and len(set(tokens)) == 1 and world.whats() == ["exchanged"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_fifty_tasks_share_one_exchange(worlds: Callable[..., World], is_async: bool) -> None:
    world = worlds(Promise.FAMILY_REVOCATION, family_revocation())
    if is_async:

        async def refresh(attempt: Attempt, refresh_token: str) -> dict[str, Any]:
            await asyncio.sleep(0)
            return world.exchange(attempt, refresh_token)

        world.credential = world.another(refresh)
    world.clock.advance(3600)
    tokens = await asyncio.gather(*(world.credential.access_token_async() for _ in range(50)))
    assert len(set(tokens)) == 1 and world.whats() == ["exchanged"]
    assert await world.credential.headers_async() == {"Authorization": f"Bearer {tokens[0]}"}


async def test_a_task_that_gives_up_does_not_cut_the_exchange_short(worlds: Callable[..., World]) -> None:
    world, go_on, begun = worlds(Promise.FAMILY_REVOCATION, strict()), asyncio.Event(), asyncio.Event()

    async def refresh(attempt: Attempt, refresh_token: str) -> dict[str, Any]:
        answer = world.exchange(attempt, refresh_token)
        begun.set()
        await go_on.wait()
        return answer

    held = world.another(refresh)
    world.clock.advance(3600)
    impatient = asyncio.create_task(held.access_token_async())
    await begun.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    go_on.set()
    assert world.endpoint.use(await held.access_token_async()) == 200
    assert world.whats() == ["exchanged", "served"] and world.open_effects() == []


def test_a_refresh_function_that_asks_for_its_own_token_is_told(worlds: Callable[..., World]) -> None:
    world = worlds(budget=1)

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        return held.access_token()

    held = world.another(refresh, budget=1)
    world.clock.advance(3600)
    with pytest.raises(NotRefreshed):
        held.access_token()
    assert world.whats() == []


def test_askers_of_another_process_wait_without_hammering_the_store(worlds: Callable[..., World]) -> None:
    """Twenty of them: one look in fifty milliseconds for all together."""
    begun, go_on, commits = threading.Event(), threading.Event(), [0]

    class Counting(MemoryStore):
        def transact(self, writes: Any, *, again: bool = False) -> Any:
            commits[0] += begun.is_set()
            return super().transact(writes, again=again)

    endpoint, store = TokenEndpoint(Promise.STRICT, Ledger()), Counting()

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        begun.set()
        go_on.wait(30)
        return endpoint.exchange(refresh_token)[1]

    def made() -> Credential:
        return Credential("b", refresh=refresh, receiver=strict(), key=lambda: KEY)

    def ask(surefoot: Surefoot, held: Credential) -> None:
        with outside_any_run(surefoot.engine):
            tokens.append(held.access_token())

    first, second, tokens = Surefoot(store), Surefoot(store), list[str]()
    made().connect(Token(refresh_token=endpoint.authorize("one")["refresh_token"]))
    leading, waiting = made(), made()
    threads = [threading.Thread(target=ask, args=(first, leading))]
    threads[0].start()
    assert begun.wait(30)
    began, commits[0] = time.monotonic(), 0
    threads += [threading.Thread(target=ask, args=(second, waiting)) for _ in range(20)]
    for thread in threads[1:]:
        thread.start()
    while commits[0] < 10:
        time.sleep(0.01)
    looked, took = commits[0], time.monotonic() - began
    go_on.set()
    for thread in threads:
        thread.join()
    assert looked <= took / POLL_SECONDS + 4, f"{looked} commits in {took:.2f} s"
    assert len(set(tokens)) == 1 and len(tokens) == 21
    first.close()
    second.close()


# --- inside runs --------------------------------------------------------------------------------------------------


def test_a_run_records_no_token_and_replays_whether_or_not_it_was_refreshed(worlds: Callable[..., World]) -> None:
    world, sent = worlds(), list[str]()

    @step
    def wait(number: int) -> int:
        world.clock.advance(1900)
        return number

    @effect(opaque(), identity="mail:{number}")
    def mail(attempt: Attempt, number: int) -> str:
        sent.append(world.credential.access_token())
        return "sent"

    @workflow
    def mails() -> list[str]:
        world.credential.access_token()
        return [mail(wait(number)) for number in range(4)]

    assert world.surefoot.run(mails, id="mails") == ["sent"] * 4
    assert world.surefoot.run(mails, id="mails") == ["sent"] * 4
    assert len(sent) == 4 and len(set(sent)) == 3
    read = world.surefoot.store.read_run("mails")
    assert read is not None and [entry.slot for entry in read[1] if "credential" in entry.slot] == []


def test_an_effect_that_gets_no_token_was_not_sent(worlds: Callable[..., World]) -> None:
    world, sent = worlds(first=None), list[str]()

    @effect(opaque(), identity="mail:{number}", budget=1)
    def mail(attempt: Attempt, number: int) -> str:
        sent.append(world.credential.access_token())
        return "sent"

    outcome: Any = mail.outcome(1)
    assert sent == [] and outcome.reason.startswith("it could not be sent") and world.open_effects() == []


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


def test_a_late_answer_of_a_sender_that_was_given_up_makes_it_whole_again(worlds: Callable[..., World]) -> None:
    """It stood still past its lease; another process parked its refresh; then it wakes and brings the token."""
    world, seen = worlds(first=None), list[str]()
    other = Surefoot(world.surefoot.store, clock=world.clock)

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        answer = world.exchange(attempt, refresh_token)
        if not seen:
            seen.append("stood still")
            world.clock.advance(3000)
            ask_elsewhere(other)
        return answer

    def ask_elsewhere(surefoot: Surefoot) -> None:
        def ask() -> None:
            with outside_any_run(surefoot.engine), pytest.raises(NeedsReconnect):
                twin.access_token()
            seen.append("parked")

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    held, twin = world.another(refresh), Credential("b", refresh=refresh, receiver=strict(), key=lambda: KEY)
    with Surefoot(world.surefoot.store, clock=world.clock, lease=5):
        world.clock.advance(3600)
        token = held.access_token()
    assert seen == ["stood still", "parked"]
    assert world.endpoint.use(token) == 200 and world.whats() == ["exchanged", "served"]
    other.close()


# --- authorizations -----------------------------------------------------------------------------------------------


def test_a_credential_that_was_never_connected_says_so(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)
    with pytest.raises(NeedsReconnect, match="never connected"):
        world.credential.access_token()
    assert world.credential.view().state == "not_connected"


def test_the_first_token_in_the_code_counts_only_where_there_is_none(worlds: Callable[..., World]) -> None:
    world = worlds()
    world.clock.advance(3600)
    world.credential.access_token()
    restarted = Credential(
        "gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEY, first=world.sign_in("two")
    )
    restarted.connect(world.sign_in("three"))
    assert restarted.access_token() == world.credential.access_token() and world.whats() == ["exchanged"]


def test_a_new_authorization_is_used_by_everybody_at_once(worlds: Callable[..., World]) -> None:
    world = worlds()
    twin = Credential("gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEY)
    assert twin.access_token() == world.credential.access_token()
    fresh = world.sign_in("two")
    world.credential.reconnect(fresh)
    world.credential.reconnect(fresh)
    assert twin.access_token() == fresh.access_token and twin.view().family == 2


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
