"""A backlog is looked at from where it began the last time, so that rows which are gone cost little; none is missed."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from surefoot.stores.postgres.desk import FRONT_USES
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.contract_desk import SERVED, claim, names, queued
from surefoot.testing.place import AT, STRANGER, Place, one


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    yield store
    store.close()


@pytest.fixture
def place(store: PostgresStore) -> Place:
    return Place(lambda: store, fresh=lambda: place)


def taken(store: PostgresStore, place: Place) -> list[str]:
    """The run that one more claim takes."""
    return names(one(store, claim(place)))


def backlog(store: PostgresStore, place: Place, count: int = 60) -> None:
    """Runs r00, r01, ... of one priority, and two claims, of which the second begins where the first did."""
    store.transact([place.join(), *(queued(place, f"r{n:02}", at=AT + n, updated_at=AT + n) for n in range(count))])
    assert taken(store, place) == ["r00"] and taken(store, place) == ["r01"]
    assert store._memory.fronts.of(SERVED, "mails") == (0, AT + 1)


def test_a_row_that_comes_to_stand_in_front_is_found_after_a_few_looks(store: PostgresStore, place: Place) -> None:
    backlog(store, place)
    one(store, queued(place, "late", at=AT - 5, updated_at=AT - 5))
    found = [taken(store, place)[0] for _ in range(FRONT_USES + 1)]
    assert found[0] == "r02" and "late" in found
    assert [name for name in found if name != "late"] == [f"r{n:02}" for n in range(2, FRONT_USES + 2)]


def test_a_higher_priority_is_found_at_once(store: PostgresStore, place: Place) -> None:
    backlog(store, place)
    one(store, queued(place, "urgent", at=AT - 5, updated_at=AT - 5, priority=3))
    one(store, queued(place, "idle", at=AT - 5, updated_at=AT - 5, priority=-3))
    assert taken(store, place) == ["urgent"] and taken(store, place) == ["r02"]


def test_where_a_backlog_ends_everything_is_looked_at_at_once(
    store: PostgresStore, place: Place, postgres_url: str
) -> None:
    backlog(store, place, 12)
    others = PostgresStore(postgres_url)
    assert len(names(one(others, claim(place, STRANGER, slots=20)))) == 10
    others.close()
    one(store, queued(place, "late", at=AT - 5, updated_at=AT - 5))
    assert taken(store, place) == ["late"] and taken(store, place) == []


def test_each_of_several_priorities_is_taken_once(store: PostgresStore, place: Place) -> None:
    backlog(store, place, 12)
    one(store, queued(place, "late", at=AT - 5, updated_at=AT - 5))
    one(store, queued(place, "idle", at=AT - 9, updated_at=AT - 9, priority=-3))
    found = [taken(store, place) for _ in range(13)]
    assert sorted(name for taken in found for name in taken) == sorted(
        ["late", "idle", *(f"r{n:02}" for n in range(2, 12))]
    )
    assert found[-1] == []


def test_rows_that_are_gone_are_not_passed_again(store: PostgresStore, place: Place, postgres_url: str) -> None:
    """Counted by the database: index entries that the looks have read, while a snapshot keeps all that were taken."""
    with psycopg.connect(postgres_url) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        backlog(store, place, 200)
        old.execute("SELECT count(*) FROM surefoot.queue").fetchone()
        for _ in range(100):
            assert taken(store, place)
        read = read_of_index(postgres_url)
        for _ in range(FRONT_USES):
            assert taken(store, place)
        assert read_of_index(postgres_url) - read < FRONT_USES * 100, "one look passes them all, the others do not"


def read_of_index(url: str) -> int:
    """Entries that were read from the index of ready rows, as far as its sessions have told."""
    query = "SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'queue_ready'"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SELECT pg_sleep(1.2)")  # sessions tell once a second, when they are idle
        row = db.execute(query).fetchone()
    assert row is not None
    return int(row[0])
