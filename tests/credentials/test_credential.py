"""One process: which token a credential gives, to whom, and with how many exchanges."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from surefoot import Attempt, Surefoot, effect, opaque, step, workflow
from surefoot.core.flows import POLL_SECONDS
from surefoot.credentials import (
    Credential,
    NotRefreshed,
    Token,
    family_revocation,
    reusable,
    strict,
)
from surefoot.credentials.exchange import outside_any_run
from surefoot.stores.memory import MemoryStore
from surefoot.testing.ledger import Ledger
from surefoot.testing.oauth import Promise, TokenEndpoint
from tests.credentials.world import KEY, World

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


def test_a_life_counts_from_the_request_however_late_the_answer_comes(worlds: Callable[..., World]) -> None:
    world = worlds(first=None)

    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        answer = world.exchange(attempt, refresh_token)
        world.clock.advance(20)
        return answer

    held = world.another(refresh)
    world.clock.advance(3600)
    asked_at = world.clock.now()
    held.access_token()
    assert held.view().expires_at == asked_at + 3600


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

    world.clock.advance(3600)  # so that the workflow itself asks for a refresh
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
