"""From a real answer, over a real socket, to what the store keeps and what happens next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from surefoot import (
    Attempt,
    Refused,
    RunWaiting,
    Surefoot,
    UsageError,
    effect,
    keyed,
    lookup,
    natural,
    opaque,
    workflow,
)
from surefoot.core.contract import Contract, answers
from surefoot.core.effect import Status
from tests.effects.arrivals import Behaviour, answer, close, serving
from tests.effects.clients import an_attempt, open_issue_with_pygithub
from tests.runtime.support import FakeClock, restart, the_effect

LANDED_409 = msgspec.structs.replace(keyed(3600), answers=answers(landed=(409,)))
STORED = keyed(3600, stores_refusals=True)
SPENT = msgspec.structs.replace(keyed(3600), answers=answers(spent=("previous_attempt_failed",)))


class Ticket(msgspec.Struct):
    id: str


URL: list[str] = []
FOUND: list[Ticket | None] = []


def post(attempt: Attempt, path: str = "/tickets") -> dict[str, Any]:
    with attempt.session() as session:
        return attempt.check(session.post(URL[0] + path, json={"key": attempt.key})).json()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    restart()
    URL.clear()
    FOUND.clear()


def run(db: Path, server_url: str, body: Any, contract: Contract, *, with_lookup: bool = False) -> Any:
    """Run one effect outside of any waiting; what the workflow got, and the effect's record."""
    URL[:] = [server_url]

    @effect(contract, name="open ticket", identity="ticket:1", timeout=20.0, budget=60.0)
    def open_ticket(attempt: Attempt) -> Ticket:
        return body(attempt)

    if with_lookup:

        @open_ticket.lookup
        def _(attempt: Attempt) -> Ticket | None:
            return FOUND.pop(0)

    @workflow(name="flow")
    def flow() -> Ticket:
        return open_ticket()

    with Surefoot(db, clock=FakeClock()) as sf:
        try:
            got: Any = sf.run(flow, id="r")
        except (Refused, RunWaiting) as error:
            got = error
        return got, the_effect(sf)


def a_ticket(attempt: Attempt) -> Ticket:
    return Ticket(**post(attempt))


CREATED = answer(201, {"id": "T-1"})


@pytest.mark.parametrize(
    ("contract", "script", "arrived", "status"),
    [
        (keyed(3600), [CREATED], 1, Status.CONFIRMED),
        (keyed(3600), [answer(422, {"error": "no such partner"})], 1, Status.REFUSED),
        (keyed(3600), [close, answer(500), answer(409), CREATED], 4, Status.CONFIRMED),
        (keyed(3600), [close, answer(422), CREATED], 2, Status.PARKED),
        (STORED, [close, answer(422), CREATED], 2, Status.REFUSED),
        (STORED, [close, answer(401), CREATED], 2, Status.PARKED),
        (STORED, [close, answer(403), CREATED], 2, Status.PARKED),
        (STORED, [close, answer(429), CREATED], 3, Status.CONFIRMED),
        (STORED, [answer(401), CREATED], 1, Status.REFUSED),
        (LANDED_409, [close, answer(409, {"id": "T-1"})], 2, Status.CONFIRMED),
        (LANDED_409, [close, answer(409, {"error": "done before"})], 2, Status.PARKED),
        (SPENT, [answer(200, {"error": "previous_attempt_failed"}), CREATED], 1, Status.PARKED),
        (natural(), [close, answer(409, {"by": "somebody else"})], 2, Status.PARKED),
        (opaque(), [answer(500), CREATED], 1, Status.PARKED),
        (opaque(), [answer(200, {"ok": False, "error": "odd"}), CREATED], 1, Status.PARKED),
    ],
)
def test_an_answer_is_recorded_as_what_the_contract_says(
    contract: Contract, script: list[Behaviour], arrived: int, status: Status, tmp_path: Path
) -> None:
    with serving(tmp_path, *script) as server:
        got, record = run(tmp_path / "agents.db", server.url, a_ticket, contract)
        assert (server.arrived(), record.status) == (arrived, status)
    assert (got == Ticket("T-1")) is (status is Status.CONFIRMED)
    assert isinstance(got, Refused) is (status is Status.REFUSED)


def test_an_answer_that_says_landed_without_a_receipt_asks_the_lookup(tmp_path: Path) -> None:
    FOUND[:] = [Ticket("T-9")]
    with serving(tmp_path, close, answer(409, {"error": "done before"})) as server:
        got, record = run(tmp_path / "agents.db", server.url, a_ticket, LANDED_409, with_lookup=True)
        assert server.arrived() == 2
    assert (got, record.status) == (Ticket("T-9"), Status.CONFIRMED)


def test_what_exists_under_our_key_is_the_receipt(tmp_path: Path) -> None:
    ours: list[str] = []

    def body(attempt: Attempt) -> Ticket:
        ours.append(attempt.key)
        server.script = (close, answer(409, {"id": "T-1", "external_id": attempt.key}))
        return a_ticket(attempt)

    with serving(tmp_path, close) as server:
        got, record = run(tmp_path / "agents.db", server.url, body, natural())
        assert server.arrived() == 2 and len(set(ours)) == 1
    assert (got, record.status) == (Ticket("T-1"), Status.CONFIRMED)


def test_what_was_not_sent_is_sent_when_the_receiver_is_back(tmp_path: Path) -> None:
    import socket

    tries: list[int] = []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"

        def body(attempt: Attempt) -> Ticket:
            tries.append(attempt.number)
            URL[:] = [nowhere if len(tries) < 3 else server.url]
            return a_ticket(attempt)

        with serving(tmp_path, CREATED) as server:
            got, record = run(tmp_path / "agents.db", nowhere, body, opaque())
            assert server.arrived() == 1
    assert (got, record.unresolved, len(tries)) == (Ticket("T-1"), 0, 3)


@pytest.mark.parametrize(
    ("contract", "arrived", "status"), [(keyed(3600), 2, Status.CONFIRMED), (opaque(), 1, Status.PARKED)]
)
def test_a_package_that_sends_again_leaves_a_doubt_that_ends_by_the_contract(
    contract: Contract, arrived: int, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setattr(time, "sleep", lambda seconds: None)

    def body(attempt: Attempt) -> Ticket:
        if attempt.number == 1:
            open_issue_with_pygithub(URL[0], {})
        return a_ticket(attempt)

    with serving(tmp_path, answer(502), CREATED) as server:
        _, record = run(tmp_path / "agents.db", server.url, body, contract)
        assert (server.arrived("POST"), record.status) == (arrived, status)
    (first,) = [found for found in record.evidence if found.attempt == 1 and found.kind == "answer"]
    assert first.found == "unknown" and "PyGithub tried to send a second POST" in first.text
    assert 'attempt.options("github")' in first.text


def test_a_stop_that_the_body_swallows_is_a_doubt_all_the_same(tmp_path: Path) -> None:
    def body(attempt: Attempt) -> Ticket:
        try:
            post(attempt)
            post(attempt)
        except BaseException:
            pass
        return Ticket("made up")

    with serving(tmp_path, CREATED) as server:
        got, record = run(tmp_path / "agents.db", server.url, body, opaque())
        assert server.arrived() == 1
    assert isinstance(got, RunWaiting) and record.status is Status.PARKED


def test_an_answer_that_is_returned_instead_of_raised_is_not_taken_for_a_receipt(tmp_path: Path) -> None:
    def body(attempt: Attempt) -> Any:
        with attempt.client() as client:
            return client.post(URL[0])  # forgot raise_for_status, and .json()

    with serving(tmp_path, answer(500)) as server:
        _, record = run(tmp_path / "agents.db", server.url, body, opaque())
    assert record.status is Status.PARKED


async def test_an_async_body_in_a_task_group_ends_the_same(tmp_path: Path) -> None:
    import asyncio

    @effect(opaque(), name="open ticket async", identity="ticket:2", timeout=20.0)
    async def open_ticket(attempt: Attempt) -> Ticket:
        async with attempt.async_client() as client, asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(client.post(URL[0]))
        return Ticket("T-1")

    @workflow(name="flow async")
    async def flow() -> Ticket:
        return await open_ticket()

    with serving(tmp_path, answer(500)) as server:
        URL[:] = [server.url]
        async with Surefoot(tmp_path / "agents.db") as sf:
            with pytest.raises(RunWaiting):
                await sf.run(flow, id="r")
            record = the_effect(sf)
            assert record.status is Status.PARKED and any("a second POST" in found.text for found in record.evidence)
        assert server.arrived() == 1


def test_a_body_that_dawdles_past_its_deadline_sends_nothing_and_tries_again(tmp_path: Path) -> None:
    clock = FakeClock()

    @effect(opaque(), name="slow", identity="slow:1", timeout=20.0)
    def slow(attempt: Attempt) -> Ticket:
        if attempt.number == 1:
            clock.time += 30
        return a_ticket(attempt)

    @workflow(name="flow")
    def flow() -> Ticket:
        return slow()

    with serving(tmp_path, CREATED) as server, Surefoot(tmp_path / "agents.db", clock=clock) as sf:
        URL[:] = [server.url]
        assert sf.run(flow, id="r") == Ticket("T-1")
        assert (server.arrived(), the_effect(sf).attempts) == (1, 2)


def test_a_clients_key_and_timeout_are_the_attempts(tmp_path: Path) -> None:
    def body(attempt: Attempt) -> Ticket:
        for client in (attempt.client(), attempt.client("httpx2", headers={"X": "1"})):
            assert client.headers["Idempotency-Key"] == attempt.key
            assert client.timeout.connect + client.timeout.read == attempt.timeout
        return a_ticket(attempt)

    with serving(tmp_path, CREATED) as server:
        _, record = run(tmp_path / "agents.db", server.url, body, lookup(lag=1), with_lookup=True)
        (line,) = server.ledger.lines()
    assert f"Idempotency-Key: {record.sent_key}" in line.body


@pytest.mark.parametrize("library", ["sendgrid", "nonesuch"])
def test_options_that_cannot_be_given_are_refused_with_a_way_out(library: str) -> None:
    with pytest.raises(UsageError, match=r"attempt\.timeout"):
        an_attempt().options(library)


def test_an_attempt_without_a_client_library_named_so_is_refused() -> None:
    with pytest.raises(UsageError, match="expected 'httpx' or 'httpx2'"):
        an_attempt().client("requests")
