"""A run whose record was changed on disk stops, and nobody else: workers go on with all other runs of the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from surefoot import Damaged, Surefoot, workflow
from tests.runtime.support import restart


def damage(url: str, run_id: str) -> None:
    """Change a byte of its record behind the store's back."""
    if url.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(url) as connection:
            change = (
                "UPDATE surefoot.runs SET record = overlay(record PLACING '\\x00'::bytea FROM 10 FOR 1) WHERE id = %s"
            )
            assert connection.execute(change, (run_id,)).rowcount == 1
        return
    with sqlite3.connect(url) as connection:
        changed = f"CAST(replace(CAST(record AS TEXT), '{run_id}', 'other') AS BLOB)"
        assert connection.execute(f"UPDATE runs SET record = {changed} WHERE id = ?", (run_id,)).rowcount == 1
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_damaged_run_stops_no_worker(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = str(tmp_path / "agents.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    restart()

    @workflow(name="work")
    def work(number: int) -> int:
        return number

    with Surefoot(url) as sf:
        handles = [sf.start(work, number, id=f"run-{number}", queue="default") for number in range(4)]
    damage(url, "run-0")  # the oldest, which stands in front of all others
    with Surefoot(url) as sf, sf.worker([work], concurrency=1):
        handles = [sf.start(work, number, id=f"run-{number}", queue="default") for number in range(1, 4)]
        assert [handle.result(30) for handle in handles] == [1, 2, 3]
        with pytest.raises(Damaged, match="run-0"):
            sf.get("run-0")
