"""Behind a transaction pooler two statements may meet two servers' sessions: nothing of a session is relied on."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from surefoot import Surefoot
from surefoot.stores.postgres import store as module
from surefoot.stores.postgres.connection import Link, read_promise
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing import contract
from surefoot.testing.place import Place, one
from surefoot.testing.postgres import PrivatePostgres
from tests.postgres.test_opening import twice

CHECKS = (
    contract.a_batch_is_decided_and_saved_in_order,
    contract.processes_see_each_others_writes_at_once,
    contract.a_run_is_claimed_by_one_asker,
    contract.a_stale_fence_token_changes_nothing,
    contract.a_batch_that_comes_again_is_done_once,
    contract.a_large_value_is_stored_once_and_checked,
)


class PooledLink(Link):
    """Every statement on another session, as the worst pooler would have it; only a transaction keeps its own."""

    def rows(self, statement: Any, parameters: Any = None) -> Any:
        if self.connect().info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
            self.drop()
        return super().rows(statement, parameters)

    def wire(self) -> Any:
        self.drop()
        return super().wire()


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    def promise(link: Link, queries: dict[str, str]) -> Any:
        return replace(read_promise(link, queries), pooled=True)

    monkeypatch.setattr(module, "Link", PooledLink)
    monkeypatch.setattr(module, "read_promise", promise)


@pytest.mark.usefixtures("pooled")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_holds_when_every_statement_meets_another_session(
    check: contract.Check, postgres: PrivatePostgres
) -> None:
    url = postgres.create_database()
    check(Place(lambda: PostgresStore(url), fresh=lambda: Place(lambda: PostgresStore(url), fresh=lambda: None)))  # type: ignore[arg-type,return-value]


@pytest.mark.usefixtures("pooled")
def test_presence_says_nothing_behind_a_pooler(postgres_url: str) -> None:
    with Surefoot(postgres_url) as sf:
        assert sf.run(twice, id="r") == 2
        assert isinstance(sf.store, PostgresStore)
        assert any("presence: unknown" in line for line in sf.store.describe())
        with psycopg.connect(postgres_url) as db:
            locks = db.execute(b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
        assert locks == (0,)
        asker = PostgresStore(postgres_url)
        assert not asker.is_gone(sf.engine.owner), "it never held a mark, so its absence proves nothing"
        asker.close()


PREPARED = b"SELECT name FROM pg_prepared_statements"


def test_a_direct_connection_is_told_from_a_pooled_one(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    assert not store.promise.pooled
    place = Place(lambda: store, fresh=lambda: place)
    one(store, place.start())
    for _ in range(20):
        one(store, place.append(f"s{next(place.stamps)}"))
    assert store._often["append"].name.decode() in prepared_by(store), "its session stays, so it is used"
    store.close()


@pytest.mark.usefixtures("pooled")
def test_behind_a_pooler_no_statement_is_prepared(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    place = Place(lambda: store, fresh=lambda: place)
    one(store, place.start())
    link = store._writer
    assert isinstance(link, PooledLink)
    link.drop = lambda: None  # type: ignore[method-assign]
    for _ in range(20):
        one(store, place.append(f"s{next(place.stamps)}"))
    assert not prepared_by(store), "the next statement may meet another session"
    store.close()


@pytest.mark.parametrize("forget", [b"DEALLOCATE ALL", b"DISCARD ALL"])
def test_a_pooler_that_nobody_noticed_costs_a_statement_and_no_write(forget: bytes, postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    place = Place(lambda: store, fresh=lambda: place)
    one(store, place.start())
    one(store, place.append("before"))
    store._writer.connect().execute(forget)
    one(store, place.append("after"))
    one(store, place.append("later"))
    found = store.read_run("r")
    assert found is not None
    assert [entry.slot for entry in found[1]] == ["before", "after", "later"]
    assert not prepared_by(store), "from now on each statement is sent whole"
    store.close()


def test_a_statement_that_another_prepared_in_this_session_is_the_same_one(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    place = Place(lambda: store, fresh=lambda: place)
    one(store, place.start())
    link, statement = store._writer, store._often["append"]
    link.connect().pgconn.prepare(statement.name, statement.text)
    one(store, place.append("slot"))
    found = store.read_run("r")
    assert found is not None
    assert [entry.slot for entry in found[1]] == ["slot"]
    store.close()


def prepared_by(store: PostgresStore) -> set[str]:
    """The statements of the writer's present session."""
    cursor = store._writer.connect().execute(PREPARED)
    return {name for (name,) in cursor.fetchall()}


def test_a_session_without_the_settings_of_ours_is_not_appended_to_as_if_it_had_them(postgres_url: str) -> None:
    """A pooler that nobody noticed may give a session whose commits do not wait for the disk."""
    store = PostgresStore(postgres_url)
    place = Place(lambda: store, fresh=lambda: place)
    one(store, place.start())
    sent: list[Any] = []
    send = store._send

    def record(statement: Any, values: Any) -> Any:
        sent.append(next((name for name, known in store._often.items() if known is statement), "save"))
        return send(statement, values)

    store._send = record  # type: ignore[method-assign]
    one(store, place.append("before"))
    assert sent == ["append"], "a session of our own has been told to wait for the disk"
    store._writer.connect().execute(b"SET synchronous_commit = off")
    one(store, place.append("after"))
    assert sent[1:] == ["append", "save"], "the function sees to it that its own commit is durable"
    found = store.read_run("r")
    assert found is not None
    assert [entry.slot for entry in found[1]] == ["before", "after"]
    store.close()
