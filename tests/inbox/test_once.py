"""`once`: the change, its key, its request and its result commit together, on every kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from surefoot import SurefootError, UsageError, ValueRefused
from surefoot.inbox import InProgress, KeyReused, create_inbox_table, once, purge_inbox
from surefoot.testing.postgres import PrivatePostgres
from tests.inbox.shops import (
    POSTGRES_KINDS,
    SQLITE_KINDS,
    Shop,
    open_postgres_shop,
    open_sqlite_shop,
    sqlalchemy_url,
)

ORDER = {"item": "lamp", "count": 2}
KINDS = [*(f"sqlite/{kind}" for kind in SQLITE_KINDS), *(f"postgres/{kind}" for kind in POSTGRES_KINDS)]


@pytest.fixture(scope="module")
def database_url(postgres: PrivatePostgres) -> str:
    return postgres.create_database()


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    database, _, kind = request.param.partition("/")
    if database == "sqlite":
        with open_sqlite_shop(kind, tmp_path / "shop.db") as opened:
            yield opened
    else:
        with open_postgres_shop(kind, request.getfixturevalue("database_url")) as opened:
            yield opened


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> Iterator[Shop]:
    with open_sqlite_shop("sqlite3", tmp_path / "shop.db") as opened:
        yield opened


@pytest.fixture
def postgres_shop(database_url: str) -> Iterator[Shop]:
    with open_postgres_shop("psycopg", database_url) as opened:
        yield opened


def sell(shop: Shop, key: str = "A-1", order: object = ORDER, **options: Any) -> tuple[bool, Any]:
    with closing(shop.connect()) as connection:
        with once(connection, key, order, **options) as call:
            if call.first:
                call.result = {"left": shop.take(connection, 2), "sizes": (1, 2)}
        return call.first, call.result


def within(connection: Any, do: Any) -> None:
    """A call whose block does just that."""
    with once(connection, "A-1", ORDER) as call:
        do(call)


def fail(shop: Shop, connection: Any) -> Any:
    def do(call: Any) -> None:
        shop.take(connection, 2)
        raise ZeroDivisionError

    return do


# --- every kind of connection ---------------------------------------------------------------------------------------


def test_the_first_call_changes_and_every_repeat_gets_its_result(shop: Shop) -> None:
    results = [sell(shop) for _ in range(3)]
    assert results == [(first, {"left": 8, "sizes": [1, 2]}) for first in (True, False, False)]
    assert shop.left() == 8 and shop.rows() == 1
    assert sell(shop, "A-2")[1]["left"] == 6


def test_an_exception_leaves_neither_the_change_nor_the_key(shop: Shop) -> None:
    with closing(shop.connect()) as connection, pytest.raises(ZeroDivisionError):
        within(connection, fail(shop, connection))
    assert shop.left() == 10 and shop.rows() == 0
    assert sell(shop) == (True, {"left": 8, "sizes": [1, 2]})


def test_another_request_under_the_key_is_refused_and_changes_nothing(shop: Shop) -> None:
    sell(shop)
    with pytest.raises(KeyReused, match="key 'A-1' belongs to another request"):
        sell(shop, order={"item": "lamp", "count": 3})
    assert shop.left() == 8
    assert sell(shop, scope="another client", order={"item": "lamp", "count": 3})[0]


def test_of_eight_calls_at_once_one_changes_and_all_get_its_result(shop: Shop) -> None:
    gate, results = threading.Barrier(8), []

    def call() -> None:
        gate.wait()
        while True:
            try:
                results.append(sell(shop))
                return
            except InProgress:
                continue  # the database gave up waiting; nothing was done

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(first for first, _ in results) == [False] * 7 + [True]
    assert {result["left"] for _, result in results} == {8} and shop.left() == 8


def test_an_expired_result_makes_room_once(shop: Shop) -> None:
    sell(shop, expires=timedelta(hours=1))
    age(shop)
    assert sell(shop, expires=timedelta(hours=1))[1]["left"] == 6
    assert sell(shop)[1]["left"] == 6
    age(shop)
    with closing(shop.connect()) as connection:
        assert purge_inbox(connection) == 1
    assert shop.rows() == 0


def age(shop: Shop) -> None:
    with closing(shop.connect()) as connection:
        shop._run(connection, "UPDATE surefoot_inbox SET expires_at = 1")
        connection.commit()


def test_without_commit_the_callers_transaction_decides(shop: Shop) -> None:
    for keep in (False, True):
        with closing(shop.connect()) as connection:
            if getattr(connection, "autocommit", None) is True or getattr(connection, "isolation_level", "") is None:
                shop._run(connection, "BEGIN")
            with once(connection, "A-1", ORDER, commit=False) as call:
                assert call.first
                call.result = shop.take(connection, 2)
            end(shop, connection, "COMMIT" if keep else "ROLLBACK")
        assert shop.left() == (8 if keep else 10)
    assert sell(shop) == (False, 8)


def end(shop: Shop, connection: Any, how: str) -> None:
    if isinstance(connection, sqlite3.Connection) and getattr(connection, "autocommit", None) is True:
        shop._run(connection, how)  # there, commit() does nothing
    else:
        getattr(connection, how.lower())()


# --- asynchronous connections ----------------------------------------------------------------------------------------


async def sell_async(connection: Any, execute: Any) -> tuple[bool, Any]:
    async with once(connection, "A-1", ORDER) as call:
        if call.first:
            await execute("UPDATE stock SET lamps = lamps - 2")
            call.result = {"left": 8}
    return call.first, call.result


EXPECTED = [(True, {"left": 8}), (False, {"left": 8})]


async def test_aiosqlite(sqlite_shop: Shop, tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "shop.db") as connection:
        await create_inbox_table(connection)
        assert [await sell_async(connection, connection.execute) for _ in range(2)] == EXPECTED
        with pytest.raises(UsageError, match="write `async with once"), once(connection, "A-2", ORDER):
            pass
        assert await purge_inbox(connection) == 0
    assert sqlite_shop.left() == 8


async def test_async_psycopg(postgres_shop: Shop, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await create_inbox_table(connection)
        assert [await sell_async(connection, connection.execute) for _ in range(2)] == EXPECTED
    assert postgres_shop.left() == 8


@pytest.mark.parametrize("database", ["sqlite+aiosqlite", "postgresql+psycopg"])
async def test_sqlalchemys_async_session(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if database.startswith("sqlite"):
        shop = request.getfixturevalue("sqlite_shop")
        engine = create_async_engine(f"{database}:///{tmp_path / 'shop.db'}")
    else:
        shop = request.getfixturevalue("postgres_shop")
        engine = create_async_engine(sqlalchemy_url(request.getfixturevalue("database_url")))
    for _ in range(2):  # a session each time, as in a request
        async with AsyncSession(engine) as session:
            await sell_async(session, lambda text, session=session: session.execute(sqlalchemy.text(text)))
    async with engine.connect() as connection:
        assert await sell_async(connection, None) == EXPECTED[1]
    await engine.dispose()
    assert shop.left() == 8 and shop.rows() == 1


async def test_a_cancelled_call_leaves_nothing(postgres_shop: Shop, database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        inside = asyncio.Event()

        async def call() -> None:
            async with once(connection, "A-1", ORDER):
                await connection.execute("UPDATE stock SET lamps = lamps - 2")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(call())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert postgres_shop.left() == 10 and postgres_shop.rows() == 0


# --- what a rival sees -----------------------------------------------------------------------------------------------


def test_a_rival_waits_for_the_first_and_gets_its_result(postgres_shop: Shop, database_url: str) -> None:
    results: list[Any] = []
    with closing(postgres_shop.connect()) as connection:
        with once(connection, "A-1", ORDER) as call:
            rival = threading.Thread(target=lambda: results.append(sell(postgres_shop)))
            rival.start()
            wait_until_blocked(database_url)
            assert results == []
            call.result = {"left": postgres_shop.take(connection, 2)}
        rival.join()
    assert results == [(False, {"left": 8})]


def test_a_rival_of_a_call_that_rolled_back_runs_instead(postgres_shop: Shop, database_url: str) -> None:
    results: list[Any] = []
    rival = threading.Thread(target=lambda: results.append(sell(postgres_shop)))
    with closing(postgres_shop.connect()) as connection:

        def wait_and_fail(call: Any) -> None:
            rival.start()
            wait_until_blocked(database_url)
            fail(postgres_shop, connection)(call)

        with pytest.raises(ZeroDivisionError):
            within(connection, wait_and_fail)
    rival.join()
    assert results == [(True, {"left": 8, "sizes": [1, 2]})]


def wait_until_blocked(url: str) -> None:
    """Returns once some transaction waits for another's lock."""
    with psycopg.connect(url, autocommit=True) as looker:
        question = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while not looker.execute(question).fetchone()[0]:
            pass


def test_a_rival_that_may_not_wait_is_told_that_it_is_in_progress(postgres_shop: Shop) -> None:
    with closing(postgres_shop.connect()) as connection, closing(postgres_shop.connect()) as rival:
        rival.execute("SET lock_timeout = '20ms'")
        rival.commit()
        with once(connection, "A-1", ORDER) as call:
            call.result = 1
            with pytest.raises(InProgress, match="locked by another transaction"), once(rival, "A-1", ORDER):
                pass


def test_sqlites_timeout_is_told_as_in_progress(sqlite_shop: Shop, tmp_path: Path) -> None:
    hasty = sqlite3.connect(tmp_path / "shop.db", timeout=0)
    told = pytest.raises(InProgress, match="call again later")
    with closing(sqlite_shop.connect()) as connection, closing(hasty), once(connection, "A-1", ORDER), told:
        within(hasty, id)


# --- bad input, and blocks that do what they must not ---------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no key", {"key": ""}, "1 to 255 characters, found 0"),
    ("a long key", {"key": "k" * 256}, "1 to 255 characters, found 256"),
    ("a key that is no text", {"key": 7}, "must be a string, found int"),
    ("a key with a line break", {"key": "a\nb"}, "printable text"),
    ("a key with a surrogate", {"key": "a\ud800"}, "printable text"),
    ("a scope that is no text", {"scope": None}, "scope= must be a string"),
    ("a long scope", {"scope": "s" * 201}, "at most 200"),
    ("the middleware's scope", {"scope": "http:x"}, "may not begin with 'http:'"),
    ("a request that JSON cannot hold", {"request": {"x": float("nan")}}, "the request at"),
    ("a request of another kind", {"request": object()}, "the request"),
    ("seconds for a duration", {"expires": 60}, "positive timedelta"),
    ("no time at all", {"expires": timedelta()}, "positive timedelta"),
    ("an engine", {"connection": sqlalchemy.create_engine("sqlite://")}, "not an engine, a pool"),
    ("a path", {"connection": "shop.db"}, "found str"),
    ("nothing", {"connection": None}, "found NoneType"),
]


@pytest.mark.parametrize(("what", "given", "said"), BAD, ids=[what for what, _, _ in BAD])
def test_bad_input_is_refused_before_anything_is_written(
    sqlite_shop: Shop, what: str, given: dict[str, Any], said: str
) -> None:
    with closing(sqlite_shop.connect()) as connection:
        arguments: dict[str, Any] = {"connection": connection, "key": "A-1", "request": ORDER, **given}
        with pytest.raises(SurefootError, match=said) as caught:
            once(arguments.pop("connection"), arguments.pop("key"), arguments.pop("request"), **arguments)
        assert isinstance(caught.value, UsageError)
        assert not connection.in_transaction
    assert sqlite_shop.rows() == 0


def test_a_result_that_json_cannot_hold_takes_the_change_back(shop: Shop) -> None:
    with closing(shop.connect()) as connection:

        def give(call: Any) -> None:
            shop.take(connection, 2)
            call.result = {1, 2, object()}

        with pytest.raises(ValueRefused, match=r"call\.result"):
            within(connection, give)
    assert shop.left() == 10 and shop.rows() == 0


def test_if_the_result_cannot_be_written_the_change_is_taken_back(sqlite_shop: Shop) -> None:
    with closing(sqlite_shop.connect()) as connection:
        connection.execute(
            "CREATE TRIGGER full AFTER UPDATE ON surefoot_inbox BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        with pytest.raises(sqlite3.IntegrityError, match="no room"):
            within(connection, lambda call: sqlite_shop.take(connection, 2))
    assert sqlite_shop.left() == 10 and sqlite_shop.rows() == 0


def test_an_open_transaction_is_not_committed_by_once(postgres_shop: Shop) -> None:
    with closing(postgres_shop.connect()) as connection:
        postgres_shop.take(connection, 1)
        with pytest.raises(UsageError, match=r"a transaction is open .* commit=False"), once(connection, "A-1", ORDER):
            pass
    assert postgres_shop.left() == 10 and postgres_shop.rows() == 0


def test_a_block_that_commits_by_itself_is_noticed_and_never_repeated(sqlite_shop: Shop) -> None:
    with closing(sqlite_shop.connect()) as connection:

        def commit(call: Any) -> None:
            sqlite_shop.take(connection, 2)
            connection.commit()

        with pytest.raises(UsageError, match="leave that to once"):
            within(connection, commit)
    with pytest.raises(UsageError, match="committed without a result"):
        sell(sqlite_shop)
    assert sqlite_shop.left() == 8


def test_a_block_that_rolls_back_by_itself_is_noticed(sqlite_shop: Shop) -> None:
    with closing(sqlite_shop.connect()) as connection, pytest.raises(UsageError, match="leave that to once"):
        within(connection, lambda call: connection.rollback())
    assert sell(sqlite_shop)[0]


def test_an_engine_in_autocommit_mode_is_refused(postgres_shop: Shop, database_url: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(database_url), isolation_level="AUTOCOMMIT")
    with sqlalchemy.orm.Session(engine) as session, pytest.raises(UsageError, match="autocommit"):
        within(session, id)
    engine.dispose()
    assert postgres_shop.rows() == 0


def test_one_once_is_one_call(sqlite_shop: Shop) -> None:
    with closing(sqlite_shop.connect()) as connection:
        call = once(connection, "A-1", ORDER)
        with call:
            pass
        with pytest.raises(UsageError, match="used already"), call:
            pass


def test_a_missing_table_says_so(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        with pytest.raises(UsageError, match="create_inbox_table"):
            within(connection, id)
        assert not connection.in_transaction


def test_two_that_create_the_table_at_once_both_succeed(database_url: str) -> None:
    failures: list[BaseException] = []

    def create() -> None:
        try:
            with psycopg.connect(database_url) as connection:
                create_inbox_table(connection)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
