"""The schema: a fresh file equals a migrated one, and a file from the future is left as it is (I19)."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot
from surefoot.core.errors import StoreError, StoreRefused
from surefoot.stores.queries import load_migrations
from surefoot.stores.sqlite import connection
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.place import Place
from tests.upgrade.make_golden import rebuild

MIGRATIONS = load_migrations(connection.__file__)
FOLDER = Path(__file__).parent


def shape(db: Path) -> dict[str, Any]:
    """What SQLite itself says of a file's schema; the text without its layout and comments."""
    with closing(sqlite3.connect(db)) as file:
        made = file.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
        found: dict[str, Any] = {f"{kind} {name}": (table, normalised(sql or "")) for kind, name, table, sql in made}
        for name in [name for kind, name, _, _ in made if kind == "table"]:
            found[f"columns of {name}"] = file.execute(f"PRAGMA table_xinfo({name})").fetchall()
            found[f"indexes of {name}"] = file.execute(f"PRAGMA index_list({name})").fetchall()
        for pragma in ("application_id", "user_version"):
            found[pragma] = file.execute(f"PRAGMA {pragma}").fetchone()[0]
    return found


def normalised(sql: str) -> str:
    return re.sub(r"\s*([(),])\s*", r"\1", re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", sql))).strip()


def opened(db: Path) -> Path:
    SqliteStore(db).close()
    return db


def left_by(version: int, db: Path) -> Path:
    """The file as a Surefoot of that schema left it: what its migrations say, run by SQLite alone."""
    with closing(sqlite3.connect(db)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        for number, script in MIGRATIONS:
            if number <= version:
                file.executescript(script)
        if version:
            file.execute(f"PRAGMA application_id = {connection.APPLICATION_ID}")
            file.execute(f"PRAGMA user_version = {version}")
    return db


# --- fresh equals migrated ------------------------------------------------------------------------------------------


def test_migrations_are_numbered_without_gaps_and_end_at_this_schema() -> None:
    assert [number for number, _ in MIGRATIONS] == list(range(1, connection.SCHEMA_VERSION + 1))
    assert f"= {connection.SCHEMA_VERSION}" in connection.PRAGMAS["set_user_version"]
    assert str(connection.APPLICATION_ID) in connection.PRAGMAS["set_application_id"]


@pytest.mark.parametrize("version", range(connection.SCHEMA_VERSION + 1))
def test_a_file_of_any_older_schema_becomes_what_a_fresh_file_is(version: int, tmp_path: Path) -> None:
    old = left_by(version, tmp_path / "old.db")
    assert shape(opened(old)) == shape(opened(tmp_path / "fresh.db"))


def test_the_schema_of_the_golden_file_is_what_its_migrations_still_make(tmp_path: Path) -> None:
    rebuild((FOLDER / "golden_v1.sql").read_text(), tmp_path / "golden.db")
    assert shape(tmp_path / "golden.db") == shape(left_by(1, tmp_path / "old.db")), (
        "a migration that was released is never edited: users' files were made by it. Write the next one."
    )


def test_the_comparison_sees_a_column_and_an_index(tmp_path: Path) -> None:
    fresh = shape(opened(tmp_path / "fresh.db"))
    changes = (
        "ALTER TABLE runs ADD COLUMN extra TEXT",
        "CREATE INDEX extra ON entries (slot)",
        "DROP INDEX effects_open",
    )
    for number, change in enumerate(changes):
        other = opened(tmp_path / f"{number}.db")
        with closing(sqlite3.connect(other)) as file:
            file.execute(change)
        assert shape(other) != fresh, change


# --- the next schema, planted ---------------------------------------------------------------------------------------


def plant(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """This Surefoot knows one more migration."""
    number = connection.SCHEMA_VERSION + 1
    monkeypatch.setattr(connection, "SCHEMA_VERSION", number)
    monkeypatch.setattr(connection, "load_migrations", lambda module: [*MIGRATIONS, (number, script)])
    monkeypatch.setitem(connection.PRAGMAS, "set_user_version", f"PRAGMA user_version = {number}")


def test_the_next_migration_reaches_old_files_with_all_that_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuild((FOLDER / "golden_v1.sql").read_text(), tmp_path / "old.db")
    with closing(SqliteStore(tmp_path / "old.db")) as store:
        before = store.find_runs(), store.find_effects(), store.read_run("done")
    plant(
        monkeypatch, "ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT '';\nCREATE INDEX x ON runs (tenant);\n"
    )
    with closing(SqliteStore(tmp_path / "old.db")) as store:
        assert (store.find_runs(), store.find_effects(), store.read_run("done")) == before
    assert shape(tmp_path / "old.db") == shape(opened(tmp_path / "fresh.db"))
    assert "index x" in shape(tmp_path / "old.db")


def test_a_migration_that_fails_half_way_leaves_the_old_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = opened(tmp_path / "old.db")
    before = shape(db)
    with monkeypatch.context() as planted:
        plant(planted, "ALTER TABLE runs ADD COLUMN tenant TEXT;\nCREATE INDEX x ON no_such_table (tenant);\n")
        with pytest.raises(StoreError, match="no_such_table"):
            SqliteStore(db)
    assert shape(db) == before
    assert shape(opened(db)) == before


# --- a schema from the future ---------------------------------------------------------------------------------------


def from_the_future(db: Path, *, mode: str = "WAL") -> Path:
    rebuild((FOLDER / "golden_v1.sql").read_text(), db)
    with closing(sqlite3.connect(db)) as file:
        file.execute(f"PRAGMA journal_mode = {mode}")
        file.execute(f"PRAGMA user_version = {connection.SCHEMA_VERSION + 1}")
    return db


def on_disk(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_file_from_the_future_is_refused_and_not_a_byte_changes(mode: str, tmp_path: Path) -> None:
    db = from_the_future(tmp_path / "agents.db", mode=mode)
    before = on_disk(tmp_path)
    for open_it in (SqliteStore, Surefoot):
        with pytest.raises(StoreRefused, match=r"schema 2, made by a newer Surefoot; this one knows 1\. Upgrade"):
            open_it(db)
        assert on_disk(tmp_path) == before


def test_a_newer_process_that_is_at_work_notices_nothing_of_the_refusal(tmp_path: Path) -> None:
    db = from_the_future(tmp_path / "agents.db")
    with closing(sqlite3.connect(db, isolation_level=None)) as newer:
        newer.execute("UPDATE owners SET record = x'00'")
        before = {name: content for name, content in on_disk(tmp_path).items() if not name.endswith("-shm")}
        with pytest.raises(StoreRefused, match="newer Surefoot"):
            SqliteStore(db)
        assert {name: content for name, content in on_disk(tmp_path).items() if not name.endswith("-shm")} == before
        assert newer.execute("SELECT DISTINCT record FROM owners").fetchall() == [(b"\0",)]


def test_a_migration_never_takes_a_file_back_to_an_older_schema(tmp_path: Path) -> None:
    """A newer process migrates between this one's look at the version and its own migration."""
    db = opened(tmp_path / "agents.db")
    with closing(connection.open_connection(db)) as older:
        from_future = sqlite3.connect(db)
        from_future.execute(f"PRAGMA user_version = {connection.SCHEMA_VERSION + 1}")
        from_future.close()
        with suppress(StoreRefused):
            connection.migrate(older, db)
    assert shape(db)["user_version"] == connection.SCHEMA_VERSION + 1


def test_an_open_store_writes_nothing_more_once_a_newer_process_has_migrated_the_file(tmp_path: Path) -> None:
    """I19: an old worker on a new schema works or refuses; it never learns what the new schema means."""
    db = tmp_path / "agents.db"
    with closing(SqliteStore(db)) as store:
        place = Place(lambda: store, fresh=lambda: place)
        store.transact([place.start("before")])
        with closing(sqlite3.connect(db)) as newer:
            newer.execute(f"PRAGMA user_version = {connection.SCHEMA_VERSION + 1}")
        with pytest.raises(StoreRefused, match="newer Surefoot"):
            store.transact([place.start("after")])
        assert store.find_run("after") is None
