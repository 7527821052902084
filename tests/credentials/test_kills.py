"""A process that refreshes is killed at every boundary, under every promise; another one asks after it.

Each kill is proved by the exit status, and what had reached the provider by then is read from its ledger.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.core.effect import Status
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.forkserver import Child, ForkServer
from tests.credentials.conftest import Endpoint

BOUNDARIES = ("undeclared", "declared", "unsent", "acted", "answered", "unrecorded", "recorded")
PROMISES = ("strict", "family_revocation", "grace", "reusable", "rotating")
REACHED = ("acted", "answered", "unrecorded", "recorded")
"""Kills after which the exchange has happened."""
DOUBTFUL = ("declared", "unsent", "acted", "answered", "unrecorded")
"""Kills after which nobody on our side can know whether it has."""

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


class Death:
    """One refresh, killed at one boundary under one promise, and what came after."""

    def __init__(self, server: ForkServer, folder: Path, endpoint: Endpoint, boundary: str) -> None:
        self.server, self.endpoint, self.boundary = server, endpoint, boundary
        self.name, self.promise = f"{endpoint.promise}-{boundary}", endpoint.promise
        self.db = folder / f"{self.name}.db"

    def start(self, job: str, *arguments: Any) -> Child:
        return self.server.start(job, str(self.db), self.endpoint.port, self.name, self.promise, *arguments)

    def whats(self) -> list[str]:
        return [line.what for line in self.endpoint.lines(self.name)]

    def play(self) -> None:
        connected = self.start("connect")
        assert connected.join() == 0 and connected.lines[-1] == "ready"
        child = self.start("ask", self.boundary)
        if self.boundary == "acted":
            wait_for(lambda: "exchanged" in self.whats())
            self.status = child.kill()
        else:
            self.status = child.join()
        self.killed, self.reached = child, self.whats()
        after = self.start("ask", "")
        assert after.join() == 0, after.lines
        self.after, self.seen = after, self.whats()

    def reconnect(self) -> None:
        assert self.start("connect").join() == 0
        again = self.start("ask", "")
        assert again.join() == 0, again.lines
        self.again = again


def wait_for(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def deaths(server: ForkServer, folder: Path, endpoints: Callable[..., Endpoint]) -> dict[tuple[str, str], Death]:
    by_promise = {promise: endpoints(promise) for promise in PROMISES}
    cases = [Death(server, folder, by_promise[p], boundary) for p in PROMISES for boundary in BOUNDARIES]
    todo, problems = iter(cases), list[BaseException]()
    lock = threading.Lock()

    def play() -> None:
        while not problems:
            with lock:
                death = next(todo, None)
            if death is None:
                return
            try:
                death.play()
            except BaseException as error:
                problems.append(error)

    threads = [threading.Thread(target=play) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    return {(death.promise, death.boundary): death for death in cases}


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("promise", PROMISES)
def test_a_refresh_died_where_it_should(deaths: dict[tuple[str, str], Death], promise: str, boundary: str) -> None:
    death = deaths[promise, boundary]
    assert death.status == -9, f"it ended with {death.status} and was not killed: {death.killed.lines}"
    assert death.killed.said("used ") is None
    assert death.reached == (["exchanged"] if boundary in REACHED else [])


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("promise", ["grace", "reusable", "rotating"])
def test_where_the_old_token_may_come_again_the_next_asker_goes_on(
    deaths: dict[tuple[str, str], Death], promise: str, boundary: str
) -> None:
    death = deaths[promise, boundary]
    assert death.after.said("used ") == "200"
    again = ["exchanged"] if boundary in (*DOUBTFUL, "undeclared") else []
    assert death.seen == [*death.reached, *again, "served"]
    assert "revoked" not in death.seen and "refused" not in death.seen


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("promise", ["strict", "family_revocation"])
def test_where_it_may_not_the_next_asker_is_told_to_reconnect_and_nothing_is_sent(
    deaths: dict[tuple[str, str], Death], promise: str, boundary: str
) -> None:
    death = deaths[promise, boundary]
    if boundary not in DOUBTFUL:
        assert death.after.said("used ") == "200"
        assert death.seen == ["exchanged", "served"]
        return
    told = death.after.said("needs_reconnect ")
    assert told is not None and "reconnect(Token(...))" in told and "sending" not in death.after.lines
    assert death.seen == death.reached, "a refresh token was sent a second time, or an unsure one was used"
    store = SqliteStore(death.db)
    (parked,) = store.find_effects((Status.PARKED,))
    store.close()
    assert told.startswith(parked.key) and any(each.kind == "advice" for each in parked.evidence)


@pytest.mark.parametrize("promise", ["strict", "family_revocation"])
def test_after_a_new_authorization_all_goes_on_and_no_doubt_is_left(
    deaths: dict[tuple[str, str], Death], promise: str
) -> None:
    death = deaths[promise, "acted"]
    death.reconnect()
    assert death.again.said("used ") == "200"
    store = SqliteStore(death.db)
    assert store.find_effects((Status.PARKED, Status.IN_DOUBT, Status.ATTEMPTED)) == []
    store.close()
