"""The same random writes to a memory store and to one PostgreSQL schema that two stores have open.

As `test_stores_side_by_side.py`, whose machines these are. Commits of unknown outcome come in a third kind here: the
message is under way for a long time, and arrives after the retry has decided. It must change nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from surefoot.core.errors import CommitUnknown
from surefoot.core.writes import Write
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.postgres import PrivatePostgres
from tests.postgres.test_remembered import arrive, is_done
from tests.simulation.test_stores_side_by_side import (
    SEEN,
    InDoubt,
    SideBySide,
    bytes_in_memory,
    explore,
)

URL = [""]
NUMBERS = itertools.count()
SCHEMAS: dict[Path, str] = {}


@pytest.fixture(scope="module", autouse=True)
def unsynced_server() -> Iterator[None]:
    """No power is cut here, and thousands of commits are compared."""
    with PrivatePostgres(fsync=False) as server:
        URL[0] = server.url
        yield


def schema_of(path: Path) -> str:
    return SCHEMAS.setdefault(path, f"s{next(NUMBERS)}")


def open_postgres(path: Path) -> PostgresStore:
    return PostgresStore(URL[0], schema=schema_of(path))


def bytes_in_postgres(schema: str) -> dict[str, list[Any]]:
    """The rows of a schema, read past the store."""
    columns = "r.id, seq, kind, at_ms, attempts, slot, args_digest, preview, value, e.digest"
    selects = {
        "runs": "SELECT id, status, record, digest FROM {0}.runs",
        "entries": f"SELECT {columns} FROM {{0}}.entries e LEFT JOIN {{0}}.runs r ON r.num = e.run",
        "effects": "SELECT key, run, status, record, digest FROM {0}.effects",
        "owners": "SELECT id, record, digest FROM {0}.owners",
        "blobs": "SELECT hash, content FROM {0}.blobs",
    }
    with psycopg.connect(URL[0]) as db:
        found = {table: sorted(db.execute(select.format(schema).encode())) for table, select in selects.items()}
    found["entries"] = [(*row[:7], row[7].decode(), *row[8:]) for row in found["entries"]]
    return found


class OnPostgres(SideBySide):
    """The reference, and two processes' stores on one schema."""

    open_store = staticmethod(open_postgres)

    def teardown(self) -> None:
        try:
            found = bytes_in_postgres(schema_of(self.path))
            assert {k: sorted(v) for k, v in found.items()} == bytes_in_memory(self.memory)
            assert self.stores[0].check() == []
        finally:
            for store in self.stores:
                store.close()
            self.folder.cleanup()


class UnsurePostgres(PostgresStore):
    """A store with a plan for its next commits: applied, or under way for long; each raises CommitUnknown."""

    def __init__(self, path: Path) -> None:
        self.plan: list[str] = []
        self.late: list[tuple[Any, Any]] = []
        super().__init__(URL[0], schema=schema_of(path))

    def transact(self, writes: Any, *, again: bool = False) -> Any:
        planned = len(self.plan)
        answers = super().transact(writes, again=again)
        if planned and len(self.plan) == planned:  # nothing was to be saved
            self.plan.pop(0)
            raise CommitUnknown("planned")
        if not planned:
            self.arrive()
        return answers

    def _send(self, statement: Any, values: Any) -> Any:
        if not self.plan:
            return super()._send(statement, values)
        if self.plan[0] == "applied":
            result = super()._send(statement, values)
            if not is_done(result):
                return result  # something had moved: the attempt after this one will be applied
        else:
            self.late.append((statement, values))
        self.plan.pop(0)
        raise CommitUnknown("planned")

    def arrive(self) -> None:
        """What was under way reaches the server now."""
        late, self.late = self.late, []
        with psycopg.connect(URL[0], autocommit=True) as db:
            for statement, values in late:
                changed = arrive(db, statement, values)
                assert not values or not changed, f"a late message was applied: {values}"
                SEEN["message", "arrived late"] += 1


class InDoubtOnPostgres(OnPostgres, InDoubt):
    """The same, with commits of unknown outcome, up to three in a row; the reference never notices."""

    open_store = UnsurePostgres

    def memory_agrees_with_disk(self, through: int) -> None:
        """What is remembered here is a guess, which the database compares."""

    def unknown(self, batch: list[Write], through: int, outcomes: Any) -> None:
        super().unknown(batch, through, outcomes)


def test_memory_and_postgresql_cannot_be_told_apart_by_any_history() -> None:
    explore(OnPostgres, examples=3, steps=25)
    assert SEEN["batch", "illegal move"] and len(SEEN) > 25


def test_a_message_that_arrives_after_the_retry_changes_nothing() -> None:
    explore(InDoubtOnPostgres, examples=3, steps=25)
    assert SEEN["unknown", "applied"] > 3 and SEEN["message", "arrived late"] > 3
