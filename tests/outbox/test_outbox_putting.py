"""`put` is part of the user's transaction, on every kind of connection, and refuses what could not be delivered."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from surefoot import UsageError, ValueRefused, effect, keyed, lookup, outbox
from tests.outbox.world import connector, keyed_mail, make_shop, order, orders, review, states

RESULTS: list[Any] = []


def test_a_row_commits_and_rolls_back_with_the_users_own_change(where: str) -> None:
    connect = make_shop(where)
    connection = connect()
    order(connection, "a", keyed_mail, id="a")
    connection.rollback()
    assert orders(connect) == [] and states(connect) == {}
    order(connection, "b", keyed_mail, id="b")
    assert states(connect) == {}, "another connection sees it before the commit"
    connection.commit()
    assert orders(connect) == ["b"] and states(connect) == {"b": "waiting"}
    row = outbox.find(connection, "b")
    assert row is not None and row.arguments == '{"fault":"","name":"b","text":"hello"}'
    connection.close()


def test_an_exception_between_change_and_commit_leaves_neither(where: str) -> None:
    connect = make_shop(where)
    connection = connect()

    def handler() -> None:
        with connection:
            order(connection, "a", keyed_mail)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        handler()
    connection.close()
    assert orders(connect) == [] and states(connect) == {}


def test_a_savepoint_takes_its_rows_back(where: str) -> None:
    connect = make_shop(where)
    connection = connect()
    order(connection, "kept", keyed_mail, id="kept")
    connection.execute("SAVEPOINT inner_one")
    order(connection, "taken", keyed_mail, id="taken")
    connection.execute("ROLLBACK TO SAVEPOINT inner_one")
    connection.commit()
    connection.close()
    assert states(connect) == {"kept": "waiting"}


def test_the_same_id_is_the_same_row_and_another_request_under_it_is_refused(where: str) -> None:
    connect = make_shop(where)
    connection = connect()
    assert outbox.put(connection, keyed_mail, "a", id="one") == "one"
    assert outbox.put(connection, keyed_mail, name="a", id="one") == "one"
    with pytest.raises(UsageError, match="row 'one' with another request"):
        outbox.put(connection, keyed_mail, "b", id="one")
    connection.commit()
    assert states(connect) == {"one": "waiting"}
    connection.close()


@pytest.mark.parametrize(
    ("args", "error"),
    [((), TypeError), (("a", 3), UsageError), (("a", float("nan")), ValueRefused), (("a", object()), ValueRefused)],
)
def test_arguments_that_the_effect_could_not_take_are_refused_before_anything_is_written(
    tmp_path: Path, args: Any, error: type[Exception]
) -> None:
    connection = make_shop(str(tmp_path / "shop.db"))()
    with pytest.raises(error):
        outbox.put(connection, keyed_mail, *args)
    assert not connection.in_transaction
    connection.close()


def test_what_cannot_be_delivered_by_name_is_refused(tmp_path: Path) -> None:
    connection = make_shop(str(tmp_path / "shop.db"))()

    @effect(lookup(lag=1))
    def asked(attempt: Any) -> None: ...

    class Shop:
        @effect(keyed(60))
        def method(self, attempt: Any) -> None: ...

    for wrong, words in ((print, "decorated with @effect"), (asked, "nothing to ask with"), (Shop.method, "a method")):
        with pytest.raises(UsageError, match=words):
            outbox.put(connection, wrong)  # type: ignore[arg-type]
    for wrong in ("", " a", "x" * 151, "a\nb"):
        with pytest.raises(UsageError, match="id"):
            outbox.put(connection, keyed_mail, "a", id=wrong)
    connection.close()


def test_a_connection_that_would_commit_the_row_alone_is_refused(where: str) -> None:
    connect = make_shop(where)
    connection = connect()
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    else:
        connection.autocommit = True
    with pytest.raises(UsageError, match="autocommit"):
        outbox.put(connection, keyed_mail, "a")
    connection.execute("BEGIN")
    outbox.put(connection, keyed_mail, "a", id="a")
    connection.execute("ROLLBACK")
    assert states(connect) == {}
    connection.close()


def test_rows_that_come_back_as_dictionaries_do_no_harm(where: str) -> None:
    connect = make_shop(where)
    connection = connect()
    if isinstance(connection, sqlite3.Connection):
        connection.row_factory = lambda cursor, row: dict(zip((c[0] for c in cursor.description), row, strict=True))
    else:
        from psycopg.rows import dict_row

        connection.row_factory = dict_row
    outbox.put(connection, keyed_mail, "a", id="a")
    outbox.put(connection, keyed_mail, "a", id="a")
    assert [row.id for row in outbox.pending(connection)] == ["a"]
    connection.close()


def test_a_missing_table_says_what_to_do(where: str) -> None:
    connection = connector(where)()
    with pytest.raises(UsageError, match="create_outbox_table"):
        outbox.put(connection, keyed_mail, "a")
    connection.close()


def test_the_tables_can_be_made_twice_and_a_newer_one_is_refused(where: str) -> None:
    connect = make_shop(where)
    connection = connect()
    name = connection.execute("SELECT id FROM surefoot_outbox_database").fetchone()
    outbox.create_outbox_table(connection)
    assert connection.execute("SELECT id FROM surefoot_outbox_database").fetchone() == name and len(name[0]) == 32
    connection.execute("UPDATE surefoot_outbox_database SET version = 99")
    connection.commit()
    with pytest.raises(UsageError, match="version 99"):
        outbox.create_outbox_table(connection)
    connection.close()


def test_the_schema_as_text_makes_the_same_tables(tmp_path: Path) -> None:
    by_hand, by_us = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    by_hand.executescript(outbox.schema("sqlite"))
    outbox.create_outbox_table(by_us)
    tables = "SELECT type, name, replace(sql, ' ', '') FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    assert [r[:2] for r in by_hand.execute(tables)] == [r[:2] for r in by_us.execute(tables)]
    assert "CREATE TABLE" in outbox.schema("postgres")
    with pytest.raises(UsageError, match="postgres"):
        outbox.schema("oracle")


def test_every_state_of_the_code_is_a_state_of_the_table_and_no_other(tmp_path: Path) -> None:
    connection = make_shop(str(tmp_path / "shop.db"))()
    for state in outbox.State:
        ended = None if state in ("waiting", "parked", "stuck") else 1.0
        values = (str(state), "x", "{}", "", str(state), 0.0, ended)
        insert = "INSERT INTO surefoot_outbox (id, effect, arguments, identity, state, created_at, ended_at)"
        connection.execute(f"{insert} VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(
                f"{insert} VALUES (?, ?, ?, ?, ?, ?, ?)", ("y", *values[1:6], 1.0 if ended is None else None)
            )
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"{insert} VALUES ('z', 'x', '{{}}', '', 'lost', 0, 1)")
    connection.close()


# --- SQLAlchemy, sync and async ------------------------------------------------------------------------------------


def engine_url(where: str, driver: str) -> str:
    return f"sqlite+{driver}:///{where}" if "://" not in where else where.replace("postgresql", "postgresql+psycopg")


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_sqlalchemys_session_and_connection_carry_the_row(where: str, kind: str) -> None:
    connect = make_shop(where)
    engine = sqlalchemy.create_engine(engine_url(where, "pysqlite"))
    with Session(engine) if kind == "session" else engine.connect() as inner:
        for name in ("lost", "kept"):
            inner.execute(sqlalchemy.text("INSERT INTO orders VALUES (:name)"), {"name": name})
            outbox.put(inner, review, name, id=name)
            inner.rollback() if name == "lost" else inner.commit()
        assert [row.identity for row in outbox.pending(inner)] == ["review:kept"]
    automatic = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with automatic, pytest.raises(UsageError, match="autocommit"):
        outbox.put(automatic, keyed_mail, "a")
    engine.dispose()
    assert orders(connect) == ["kept"] and states(connect) == {"kept": "waiting"}


def test_async_connections_carry_the_row(where: str) -> None:
    connect = make_shop(where)

    async def main() -> None:
        engine = create_async_engine(engine_url(where, "aiosqlite"))
        async with AsyncSession(engine) as session:
            for name in ("lost", "kept"):
                await session.execute(sqlalchemy.text("INSERT INTO orders VALUES (:name)"), {"name": name})
                await outbox.put_async(session, keyed_mail, name, id=name)
                await (session.rollback() if name == "lost" else session.commit())
            with pytest.raises(UsageError, match="put_async"):
                outbox.put(session, keyed_mail, "a")
        await engine.dispose()
        raw: Any = await open_async(where)
        await outbox.put_async(raw, keyed_mail, "raw", id="raw")
        await raw.commit()
        await raw.close()

    asyncio.run(main())
    assert states(connect) == {"kept": "waiting", "raw": "waiting"}
    connection = connect()
    with pytest.raises(UsageError, match="not async"):
        asyncio.run(outbox.put_async(connection, keyed_mail, "a"))
    connection.close()


async def open_async(where: str) -> Any:
    if "://" in where:
        import psycopg

        return await psycopg.AsyncConnection.connect(where)
    import aiosqlite

    return await aiosqlite.connect(where)
