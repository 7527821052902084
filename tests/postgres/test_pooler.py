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


def test_a_direct_connection_is_told_from_a_pooled_one(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    assert not store.promise.pooled
    place = Place(lambda: store, fresh=lambda: place)
    one(store, place.start())
    with psycopg.connect(postgres_url) as db:
        prepared = b"SELECT count(*) FROM pg_prepared_statements"
        assert db.execute(prepared).fetchone() == (0,)
    for _ in range(20):
        one(store, place.append(f"s{next(place.stamps)}"))
    assert store._writer.rows(prepared)[0] == (0,), "a pooler would lose prepared statements"
    store.close()
