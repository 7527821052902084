"""Many waiting runs cost nobody anything: due timers are found by index, and a claim reads no more rows than alone."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from surefoot.core.dispatch import Served
from surefoot.core.dispatch_writes import ClaimReady
from surefoot.core.run import RunStatus
from surefoot.core.writes import StartRun
from surefoot.stores.postgres import store as postgres_store
from surefoot.stores.postgres.desk import NOWHERE
from surefoot.stores.queries import load_queries
from surefoot.stores.sqlite import desk
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.place import AT, Place, one, seen_by
from tests.waits.crowd import fill

QUERIES = load_queries(postgres_store.__file__)
SERVED = Served(queues=("default",), workflows=(("crowd", ""),))
LATER = AT + 1_000_000
_stamps = itertools.count(1)


def due_run(place: Place, number: int) -> StartRun:
    """A run whose time has come."""
    begun = place.start(f"due-{number}", created_at=AT)
    run = replace(begun.run, workflow="crowd", status=RunStatus.WAITING, owner=0, queue="default", wake_at=AT + number)
    return replace(begun, run=run)


def claim(number: int) -> ClaimReady:
    vantage = replace(seen_by(11), at=AT + 100)
    return ClaimReady(served=SERVED, slots=1, vantage=vantage, stamp=(1 << 50) + next(_stamps))


def cost_of_a_claim(path: Path, crowd: int) -> tuple[int, int]:
    """How many instructions SQLite runs to claim one due run, and to say when the next is due."""
    store = SqliteStore(path)
    place = Place(lambda: store, fresh=lambda: place)
    fill(store, crowd, first_due=LATER, every=1.0)
    store.transact([due_run(place, n) for n in range(3)])
    counted = [0, 0]

    def count(which: int) -> Any:
        def step() -> int:
            counted[which] += 1
            return 0

        return step

    one(store, claim(0))  # prepares its statements
    store._db.set_progress_handler(count(0), 1)
    assert [run.id for run in one(store, claim(1)).runs] == ["due-1"]
    store._reader.set_progress_handler(count(1), 1)
    assert store.board.next_due(SERVED) == LATER + 1 if crowd > 1 else True
    store.close()
    return counted[0], counted[1]


def test_a_claim_among_a_crowd_costs_sqlite_what_it_costs_alone(quick_path: Path) -> None:
    alone, few = cost_of_a_claim(quick_path / "few.db", 20)
    crowded, many = cost_of_a_claim(quick_path / "many.db", 10_000)
    assert alone > 100, "instructions are counted"
    assert crowded < alone * 1.3 and many < few * 1.3


def test_sqlite_finds_due_timers_by_an_index(quick_path: Path) -> None:
    store = SqliteStore(quick_path / "agents.db")
    fill(store, 2000, first_due=LATER)
    for name, index in (("wake_rows", "queue_asleep"), ("next_due", "queue_asleep"), ("find_ready", "queue_ready")):
        query = desk.QUERIES[name]
        plan = store._db.execute(f"EXPLAIN QUERY PLAN {query}", ["[]" for _ in range(query.count("?"))]).fetchall()
        lines = [row[3] for row in plan if " queue" in row[3]]
        assert lines and all(index in line for line in lines), (name, plan)
        assert not any("TEMP B-TREE" in row[3] for row in plan), (name, plan)
    store.close()


def plan_of(connection: Any, query: str, parameters: Any) -> dict[str, Any]:
    explained = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", parameters).fetchone()[0]
    return (explained if isinstance(explained, list) else json.loads(explained))[0]["Plan"]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


def test_postgresql_finds_due_timers_by_an_index_and_reads_only_what_is_due(postgres_url: str) -> None:
    store = postgres_store.PostgresStore(postgres_url)
    fill(store, 4000, first_due=LATER, every=1.0)
    place = Place(lambda: store, fresh=lambda: place)
    store.transact([due_run(place, n) for n in range(3)])
    held = {"workflows": ["crowd"], "versions": [""]}
    everything = {"priorities": [NOWHERE], "sinces": [0.0]}
    asked = {"queues": ["default"], "limit": 4, "now": AT + 100, **everything, **held}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE surefoot.queue")
        for name, parameters in (("find_ready", asked), ("next_due", {"queues": ["default"], **held})):
            query = QUERIES[name].replace("{schema}", "surefoot").rstrip().rstrip(";")
            scans = [n for n in nodes(plan_of(connection, query, parameters)) if n.get("Relation Name") == "queue"]
            assert scans and all(n.get("Index Name", "").startswith("queue_") for n in scans), (name, scans)
            assert sum(n["Actual Rows"] * n["Actual Loops"] for n in scans) <= 4, (name, scans)
    assert [run.id for run in one(store, claim(0)).runs] == ["due-0"]
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_that_waits_for_a_message_alone_has_no_row_among_the_ready(
    kind: str, quick_path: Path, request: pytest.FixtureRequest
) -> None:
    store: Any = (
        SqliteStore(quick_path / "agents.db")
        if kind == "sqlite"
        else postgres_store.PostgresStore(request.getfixturevalue("postgres_url"))
    )
    fill(store, 100, first_due=LATER)
    assert len(store.board.backlog()) == 50
    store.close()
