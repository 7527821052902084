"""What a process remembers is a guess: the database compares it under the row's lock; a wrong one changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.pq.abc import PGresult

from surefoot.core.dispatch import Limits, Served
from surefoot.core.dispatch_writes import ClaimReady, SetQueue
from surefoot.core.effect import Do, Status
from surefoot.core.run import RunDo
from surefoot.core.writes import Verdict, Write
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.place import AT, STRANGER, Place, one, seen_by, slots
from tests.postgres.test_queues import pending

Two = tuple[PostgresStore, PostgresStore, Place]


@pytest.fixture
def two(postgres_url: str) -> Iterator[Two]:
    """Two processes' stores."""
    mine, theirs = PostgresStore(postgres_url), PostgresStore(postgres_url)
    place = Place(lambda: mine, fresh=lambda: place)
    yield mine, theirs, place
    mine.close()
    theirs.close()


STALE: dict[str, Callable[[Place, str], list[Write]]] = {
    "one entry": lambda place, key: [place.append("late")],
    "several entries": lambda place, key: [place.append("late"), place.append("later")],
    "an end": lambda place, key: [place.end()],
    "a release": lambda place, key: [place.end(RunDo.RELEASE)],
    "a new effect": lambda place, key: [place.take("order:2")],
    "an outcome": lambda place, key: [replace(place.record(key, Do.CONFIRM), late=None, event=None)],
}


@pytest.mark.parametrize("name", STALE)
def test_an_owner_that_lost_its_run_without_a_trace_in_the_journal_writes_nothing(name: str, two: Two) -> None:
    mine, theirs, place = two
    take = place.take()
    mine.transact([place.join(), place.start(), take])
    mine.transact([place.append("a")])
    assert one(theirs, place.claim(seen_by(STRANGER, gone=[11]))).verdict is Verdict.TOOK
    before = theirs.read_run("r"), theirs.find_effects()
    answers = mine.transact(STALE[name](place, take.effect.key))
    assert {answer.verdict for answer in answers} == {Verdict.FENCED}
    assert (theirs.read_run("r"), theirs.find_effects()) == before


def test_a_fenced_write_is_told_and_the_rest_of_its_batch_commits(two: Two) -> None:
    mine, theirs, place = two
    mine.transact([place.join(), place.start("r"), place.start("s")])
    one(theirs, place.claim(seen_by(STRANGER, gone=[11])))
    answers = mine.transact([place.append("x"), place.append("y", run_id="s")])
    assert [answer.verdict for answer in answers] == [Verdict.FENCED, Verdict.DONE]
    assert slots(mine, "r") == [] and slots(mine, "s") == ["y"]


def test_a_move_that_only_a_wrong_guess_forbids_is_made(two: Two) -> None:
    mine, theirs, place = two
    take = place.take()
    mine.transact([place.start(), take])
    one(theirs, place.record(take.effect.key, Do.LOSE, ends=False))
    assert one(mine, place.record(take.effect.key, Do.PARK, ends=False)).verdict is Verdict.DONE
    held = mine.read_effect(take.effect.key)
    assert held is not None and held.status is Status.PARKED


def is_done(result: PGresult) -> bool:
    """True if a writing statement has found everything as supposed: it put its row, or answered with a value."""
    if result.status is psycopg.pq.ExecStatus.COMMAND_OK:
        return bool(result.command_tuples)
    return bool(result.ntuples) and result.get_value(0, 0) is not None


def arrive(db: psycopg.Connection[Any], statement: Any, values: Any) -> bool:
    """True if a message of another connection, arriving now, changed something."""
    result = db.pgconn.exec_params(statement.text, values, None, [1] * len(values), 1)
    if result.status is psycopg.pq.ExecStatus.FATAL_ERROR:
        assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"23505", result.error_message
        return False
    return is_done(result)


@pytest.mark.parametrize("what", ["a renewal", "an entry", "a claim", "an effect"])
def test_a_message_that_was_overtaken_changes_nothing(what: str, two: Two, postgres_url: str) -> None:
    """It was lost on its way, sent again, others wrote behind it, and then the first copy arrives."""
    mine, theirs, place = two
    mine.transact([place.join(), place.start(), place.start("free"), place.end(RunDo.RELEASE, run_id="free")])
    write: Write = {
        "a renewal": place.join(lease_until=150.0),
        "an entry": place.append("a"),
        "a claim": place.claim(seen_by(11), "free"),
        "an effect": place.take(),
    }[what]
    sent: list[tuple[Any, Any]] = []
    send = mine._send

    def record(statement: Any, values: Any) -> Any:
        sent.append((statement, values))
        return send(statement, values)

    mine._send = record  # type: ignore[method-assign]
    assert one(mine, write).verdict in (Verdict.DONE, Verdict.TOOK)
    theirs.transact([place.join(lease_until=900.0)])
    before = [theirs.read_run("r"), theirs.read_run("free"), theirs.find_effects(), theirs.read_owner(11)]
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for statement, values in sent:
            assert not arrive(db, statement, values)
    assert [theirs.read_run("r"), theirs.read_run("free"), theirs.find_effects(), theirs.read_owner(11)] == before


def test_two_claims_of_different_runs_do_not_both_pass_one_limit(two: Two) -> None:
    """Between one's decision and its save, another takes a run of the same queue: the limit is for both."""
    mine, theirs, place = two
    other = pending(place, "x", at=AT + 1)
    mine.transact([pending(place, "r"), replace(other, run=replace(other.run, workflow="v"))])
    one(mine, SetQueue(name="mails", limits=Limits(concurrency=1), at=AT, stamp=next(place.stamps)))

    def claim(owner: int, workflow: str) -> ClaimReady:
        served = Served(queues=("mails",), workflows=((workflow, ""),))
        vantage = replace(seen_by(owner), at=AT + 1000)
        return ClaimReady(served=served, slots=1, vantage=vantage, stamp=next(place.stamps))

    send, calls = mine._send, list[Verdict]()

    def late(statement: Any, values: Any) -> Any:
        if not calls:
            calls.append(one(theirs, claim(22, "v")).verdict)
        return send(statement, values)

    mine._send = late  # type: ignore[method-assign]
    assert one(mine, claim(11, "w")).verdict is Verdict.ABSENT and calls == [Verdict.TOOK]
    assert [row.owner for row in mine.board.backlog() if row.owner] == [22]
