"""Opening a store: what is made, what is refused and in which words, and what the server's settings could lose."""

from __future__ import annotations

import builtins
import itertools
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from surefoot import Surefoot, UsageError, step, workflow
from surefoot.core.errors import StoreRefused
from surefoot.stores.postgres.place import read_url
from surefoot.stores.postgres.report import Promise
from surefoot.stores.postgres.rights import grant_worker
from surefoot.stores.postgres.schema import migrate
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.place import Place
from surefoot.testing.postgres import PrivatePostgres

NUMBERS = itertools.count()
SOUND = Promise(
    version=150004,
    version_text="15.4",
    encoding="UTF8",
    in_recovery=False,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    synchronous_standby_names="",
    data_checksums=True,
    standby_count=0,
    pooled=False,
)


@pytest.fixture
def schema() -> str:
    return f"open_{next(NUMBERS)}"


def run_sql(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            last = db.execute(statement.encode())
        return last.fetchall() if last.description else []


def refusal(open_it: Callable[[], Any]) -> str:
    with pytest.raises(StoreRefused) as refused:
        open_it()
    return str(refused.value)


# --- the URL ------------------------------------------------------------------------------------------------------


@step
def count(so_far: int) -> int:
    return so_far + 1


@workflow
def twice() -> int:
    return count(count(0))


def test_a_url_is_all_that_a_program_needs(postgres_url: str) -> None:
    with Surefoot(postgres_url) as first:
        assert first.run(twice, id="r") == 2
    with Surefoot(postgres_url) as second:
        assert second.run(twice, id="r") == 2
        assert [run.claims for run in second.list()] == [1]


def test_two_schemas_of_a_database_are_two_stores(postgres_url: str) -> None:
    one_url, other_url = f"{postgres_url}?surefoot_schema=one", f"{postgres_url}?surefoot_schema=other"
    with Surefoot(one_url) as sf:
        sf.run(twice, id="r")
    with Surefoot(other_url) as sf:
        assert sf.list() == []


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_psycopg(name: str, *rest: Any) -> Any:
        if name == "psycopg":
            raise ImportError("no psycopg")
        return real(name, *rest)

    for name in [name for name in sys.modules if name.startswith("surefoot.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_psycopg)
    assert "pip install 'surefoot[postgres]'" in refusal(lambda: Surefoot("postgresql://localhost/x"))


@pytest.mark.parametrize("schema", ["", "Big", "a-b", "pg_x", "x; drop", "a" * 64])
def test_a_schema_name_that_would_have_to_be_quoted_is_refused(schema: str) -> None:
    expected = "cannot be a store's schema" if schema else "surefoot"
    if schema:
        assert expected in refusal(lambda: read_url("postgresql://h/d", schema))
    else:
        assert read_url("postgresql://h/d", schema).schema == "surefoot"


def test_another_scheme_is_refused_without_its_password() -> None:
    with pytest.raises(UsageError) as refused:
        Surefoot("mysql://u:hunter2@h/d")
    assert "hunter2" not in str(refused.value) and "postgresql://" in str(refused.value)


# --- what is refused ----------------------------------------------------------------------------------------------


def test_every_refusal_names_the_place_and_none_the_password(postgres: PrivatePostgres) -> None:
    good, secret = postgres.url, "se%cret" + postgres.password
    escaped = secret.replace("%", "%25")
    wrong = {
        "password": good.replace(postgres.password, escaped),
        "database": good.replace("/postgres", "/nowhere"),
        "port": good.replace(f":{postgres.port}", ":1"),
        "unescaped": good.replace(postgres.password, secret),
        "option": f"{good}?no_such_option={escaped}&password={escaped}",
    }
    for what, url in wrong.items():
        said = refusal(lambda: PostgresStore(url))  # noqa: B023
        assert secret not in said and escaped not in said and postgres.password not in said, what
        assert "127.0.0.1" in said and ("check" in said or "grant" in said), what


def test_a_role_without_rights_is_told_which(postgres: PrivatePostgres, postgres_url: str, schema: str) -> None:
    role = f"weak_{schema}"
    run_sql(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD 'weak'")
    weak = postgres_url.replace(f"surefoot:{postgres.password}", f"{role}:weak")
    assert "GRANT CREATE in that database" in refusal(lambda: PostgresStore(weak))
    PostgresStore(postgres_url).close()
    assert "GRANT USAGE" in refusal(lambda: PostgresStore(weak))
    run_sql(
        postgres_url,
        f"GRANT USAGE ON SCHEMA surefoot TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA surefoot TO {role}",
    )
    said = refusal(lambda: PostgresStore(weak))
    assert "INSERT, UPDATE on runs; INSERT on entries; " in said and "surefoot migrate --grant" in said
    tables = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA surefoot TO {role}"
    run_sql(postgres_url, tables, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA surefoot FROM PUBLIC")
    said = refusal(lambda: PostgresStore(weak))
    functions = "; ".join(f"EXECUTE on function {name}" for name in ("await_end", "save"))
    assert f"needs: USAGE on sequence runs_num_seq; {functions}." in said
    run_sql(postgres_url, f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA surefoot TO {role}")
    assert "needs: EXECUTE on function await_end" in refusal(lambda: PostgresStore(weak))
    run_sql(postgres_url, f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA surefoot TO {role}")
    with Surefoot(weak) as sf:
        assert sf.run(twice, id="r") == 2


@pytest.mark.parametrize("right", ["DELETE ON {s}.schedules", "USAGE ON SEQUENCE {s}.runs_num_seq"])
def test_each_right_that_a_worker_needs_is_looked_for(postgres: PrivatePostgres, postgres_url: str, right: str) -> None:
    """What `surefoot migrate --grant` gives is enough; without any one of them a worker would fail at its first use."""
    role = f"worker_{next(NUMBERS)}"
    run_sql(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD 'weak'")
    PostgresStore(postgres_url).close()
    grant_worker(postgres_url, role)
    weak = postgres_url.replace(f"surefoot:{postgres.password}", f"{role}:weak")
    PostgresStore(weak).close()
    run_sql(postgres_url, f"REVOKE {right.format(s='surefoot')} FROM {role}")
    kind, _, place = right.partition(" ON ")
    said = refusal(lambda: PostgresStore(weak))
    assert kind in said and place.rpartition(".")[2] in said


def test_another_applications_schema_is_left_alone(postgres_url: str) -> None:
    run_sql(postgres_url, "CREATE SCHEMA surefoot", "CREATE TABLE surefoot.theirs (x int)")
    assert "another application's tables" in refusal(lambda: PostgresStore(postgres_url))
    assert run_sql(postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'surefoot'") == [(1,)]


def test_a_newer_schema_is_refused(postgres_url: str) -> None:
    PostgresStore(postgres_url).close()
    run_sql(postgres_url, "INSERT INTO surefoot.migrations (number) VALUES (99)")
    assert "Upgrade Surefoot" in refusal(lambda: PostgresStore(postgres_url))
    assert "Upgrade Surefoot" in refusal(lambda: migrate(postgres_url))


def test_an_older_schema_is_not_migrated_by_opening_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.stores.postgres import schema as module

    PostgresStore(postgres_url).close()
    later = [*module.load_migrations(module.__file__), (2, "CREATE TABLE {schema}.later (x int);")]
    monkeypatch.setattr(module, "load_migrations", lambda _: later)
    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    said = refusal(lambda: PostgresStore(postgres_url))
    assert "schema version 1" in said and "`surefoot migrate`" in said
    assert migrate(postgres_url) == (1, 2) and migrate(postgres_url) == (2, 2)
    PostgresStore(postgres_url).close()


def test_many_processes_may_open_a_new_store_at_once(postgres_url: str) -> None:
    import threading

    opened: list[PostgresStore] = []
    threads = [threading.Thread(target=lambda: opened.append(PostgresStore(postgres_url))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    for store in opened:
        store.close()


# --- what the server promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": 120010, "version_text": "12.10"}, "12.10 is too old"),
        ({"encoding": "SQL_ASCII"}, "expected a database in UTF8, found SQL_ASCII"),
        ({"in_recovery": True}, "is a standby"),
    ],
)
def test_a_server_that_cannot_keep_a_store_is_refused(changed: dict[str, Any], words: str) -> None:
    assert [words in reason for reason in replace(SOUND, **changed).refusals()] == [True]
    assert SOUND.refusals() == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fsync": False}, "can lose or damage everything"),
        ({"full_page_writes": False}, "can damage pages"),
        ({"standby_count": 2}, "a failover to one loses the last transactions"),
    ],
)
def test_what_could_be_lost_is_said(changed: dict[str, Any], words: str) -> None:
    assert [words in loss for loss in replace(SOUND, **changed).losses()] == [True]
    assert any(words in line for line in replace(SOUND, **changed).lines())
    assert SOUND.losses() == [] and replace(SOUND, standby_count=2, synchronous_standby_names="any").losses() == []


def test_a_server_without_fsync_is_warned_about_at_open(caplog: pytest.LogCaptureFixture) -> None:
    with PrivatePostgres(fsync=False) as server:
        PostgresStore(server.url).close()
    assert "fsync is off" in caplog.text and server.password not in caplog.text


def test_a_commit_is_on_disk_even_where_the_default_is_that_it_need_not_be() -> None:
    with PrivatePostgres(fsync=False, settings={"synchronous_commit": "off", "wal_writer_delay": "10s"}) as server:
        run_sql(server.url, "CREATE TABLE lazy (x int)", "CHECKPOINT")
        for tries in range(1, 20):  # first that the default really is as lazy as it says
            run_sql(server.url, "INSERT INTO lazy VALUES (1)")
            server.kill()
            server.restart()
            if run_sql(server.url, "SELECT count(*) FROM lazy") < [(tries,)]:
                break
        else:
            raise AssertionError("nothing was lost without us, so this proves nothing about us")
        place = Place(lambda: PostgresStore(server.url), fresh=lambda: place)
        for number, batch in enumerate([[place.start()], [place.append("a")], [place.append("b"), place.append("c")]]):
            with place.open() as store:
                assert isinstance(store, PostgresStore) and "overrides" in " ".join(store.describe())
                store.transact(batch)
                server.kill()
                server.restart()
                read = store.read_run("r")
                assert read is not None and len(read[1]) == (0, 1, 3)[number]
