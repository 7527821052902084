"""`surefoot migrate`: the one command that makes and changes tables, and the rights that a worker needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from surefoot import Surefoot, step, workflow
from surefoot.core.errors import StoreRefused
from surefoot.stores.postgres import schema as module
from surefoot.testing.postgres import PrivatePostgres
from tests.cli.conftest import Command

NUMBERS = itertools.count()
NO_RIGHT = "42501"


@pytest.fixture
def url(postgres_url: str, monkeypatch: pytest.MonkeyPatch, cli: Command) -> str:
    monkeypatch.setenv("SUREFOOT_DB", postgres_url)
    return postgres_url


@pytest.fixture
def worker(postgres: PrivatePostgres, url: str) -> Iterator[tuple[str, str]]:
    """A role that may do nothing yet, and the URL it would use."""
    role = f"worker_{next(NUMBERS)}"
    run_sql(url, f"CREATE ROLE {role} LOGIN PASSWORD 'w0rk'")
    yield role, url.replace(f"surefoot:{postgres.password}", f"{role}:w0rk")
    run_sql(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def run_sql(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            last = db.execute(statement.encode())
        return last.fetchall() if last.description else []


def schemas(url: str) -> int:
    return run_sql(url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'surefoot'")[0][0]


@step
def assess(partner: str) -> str:
    return f"{partner}: low risk"


@workflow
def onboard_later(partner: str) -> str:
    return assess(partner)


# --- the schema -------------------------------------------------------------------------------------------------


def test_a_new_database_gets_its_tables_once(url: str, cli: Command) -> None:
    looked = cli("migrate", "--check")
    assert (looked.code, schemas(url)) == (1, 0) and "there is no store yet" in looked.out
    made = cli("migrate")
    assert made.code == 0 and "made with schema version 1" in made.out and schemas(url) == 1
    assert cli("migrate", "--check").code == 0
    again = cli("migrate", "--json")
    assert again.json == {
        "store": f"postgresql://surefoot@{url.partition('@')[2]} (schema surefoot)",
        "before": 1, "now": 1, "needed": 1, "granted": "",
    }  # fmt: skip


@pytest.mark.parametrize("look", [("runs",), ("doctor",), ("doubts",), ("show", "nobody")])
def test_looking_at_a_database_without_a_store_makes_none(url: str, cli: Command, look: tuple[str, ...]) -> None:
    looked = cli(*look)
    assert looked.code == 4 and "no store in that database" in looked.err and "surefoot migrate" in looked.err
    assert schemas(url) == 0


def test_an_older_store_is_named_and_brought_up_to_date(
    url: str, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("migrate")
    later = [*module.load_migrations(module.__file__), (2, "CREATE TABLE {schema}.later (x int);")]
    monkeypatch.setattr(module, "load_migrations", lambda _: later)
    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    looked = cli("migrate", "--check")
    assert looked.code == 1 and "schema version 1, and this Surefoot needs 2" in looked.out
    assert run_sql(url, "SELECT to_regclass('surefoot.later')") == [(None,)]
    assert "schema version 1 became 2" in cli("migrate").out
    assert cli("migrate", "--check").code == 0


def test_a_newer_store_is_left_alone(url: str, cli: Command) -> None:
    cli("migrate")
    run_sql(url, "INSERT INTO surefoot.migrations (number) VALUES (99)")
    for arguments in (("migrate",), ("migrate", "--check")):
        ran = cli(*arguments, "--json")
        assert ran.code == 5 and "Upgrade Surefoot" in ran.error


def test_a_migration_that_fails_leaves_the_old_schema(url: str, cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("migrate")
    broken = "CREATE TABLE {schema}.later (x int); SELECT 1/0;"
    monkeypatch.setattr(module, "load_migrations", lambda _: [(2, broken)])
    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    assert cli("migrate", "--json").code == 5
    assert run_sql(url, "SELECT to_regclass('surefoot.later'), max(number) FROM surefoot.migrations") == [(None, 1)]


def test_no_message_holds_the_password(
    url: str, postgres: PrivatePostgres, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = url.replace(postgres.password, "hunter2")
    for place in (wrong, wrong.replace(f":{postgres.port}", ":1")):
        ran = cli("migrate", "--db", place)
        assert ran.code == 5 and "127.0.0.1" in ran.err and "hunter2" not in ran.out + ran.err


# --- rights -----------------------------------------------------------------------------------------------------


def test_a_granted_role_works_and_can_neither_migrate_nor_rewrite(
    url: str, worker: tuple[str, str], cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    role, its_url = worker
    with pytest.raises(StoreRefused, match="may not create one"):
        Surefoot(its_url)
    granted = cli("migrate", "--grant", role)
    assert granted.code == 0 and f"{role} may work there" in granted.out
    with Surefoot(its_url) as sf:
        sf.queue("reviews", concurrency=2)
        sf.start(onboard_later, "acme", id="queued", queue="reviews", priority=3)
        with sf.worker([onboard_later], queues=["reviews"]):
            assert sf.run(onboard_later, "acme", id="queued") == "acme: low risk"
        assert sf.run(onboard_later, "beta", id="here") == "beta: low risk"
        sf.start(onboard_later, "gamma", id="later", queue="nobody", delay=1000)
        sf.signal("later", "hello", {"n": 1})
        sf.cancel("later")
        assert sf.store.check() == []
    for forbidden in (
        "UPDATE surefoot.entries SET value = ''",
        "DELETE FROM surefoot.entries",
        "DELETE FROM surefoot.runs",
        "DELETE FROM surefoot.effects",
        "UPDATE surefoot.mail SET record = ''",
        "INSERT INTO surefoot.migrations (number) VALUES (2)",
        "CREATE TABLE surefoot.mine (x int)",
        "TRUNCATE surefoot.queue",
    ):
        with pytest.raises(psycopg.Error) as refused:
            run_sql(its_url, forbidden)
        assert refused.value.sqlstate == NO_RIGHT, forbidden
    monkeypatch.setattr(module, "load_migrations", lambda _: [(2, "CREATE TABLE {schema}.later (x int);")])
    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    ran = cli("migrate", "--db", its_url, "--json")
    assert ran.code == 5 and "role" in ran.error
    assert run_sql(url, "SELECT to_regclass('surefoot.later')") == [(None,)]


def test_a_role_that_is_not_there_or_a_store_without_roles_is_refused(url: str, db: str, cli: Command) -> None:
    for role in ("nobody", 'surefoot" WITH GRANT OPTION; --'):
        ran = cli("migrate", "--grant", role, "--json")
        assert ran.code == 5 and f"there is no role {role!r}" in ran.error
    for arguments in (("--grant", "x", "--check"), ("--grant", "x", "--db", db), ("--grant", "")):
        assert cli("migrate", *arguments, "--json").code == 2


# --- other stores -----------------------------------------------------------------------------------------------


def test_a_sqlite_file_has_nothing_to_migrate(db: str, parked: str, cli: Command) -> None:
    ran = cli("migrate", "--db", db)
    assert ran.code == 0 and "nothing to do" in ran.out
    assert cli("migrate", "--check", "--db", db).code == 0


def test_what_is_no_store_is_refused(db: str, cli: Command) -> None:
    assert cli("migrate", "--db", f"{db}-gone", "--json").code == 4
    assert cli("migrate", "--db", "memory:", "--json").code == 2
    assert cli("migrate", "--db", "mysql://u:hunter2@h/d", "--json").code == 2
