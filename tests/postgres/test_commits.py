"""A commit has three outcomes, whatever the network and the server do (R10), and a lost connection is replaced."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from surefoot.core.digest import blob_hash
from surefoot.core.effect import Do
from surefoot.core.errors import CommitUnknown, NotCommitted
from surefoot.core.run import RunDo
from surefoot.core.schedule import Schedule, SetSchedule
from surefoot.core.writes import Answer, Verdict, Write
from surefoot.runtime.committer import Committer, Pending
from surefoot.stores.postgres.store import ATTEMPTS_MAX, PostgresStore
from surefoot.testing.contract_desk import letter, limit, queued, rows
from surefoot.testing.place import Place, slots
from surefoot.testing.postgres import PrivatePostgres
from tests.postgres.proxy import Proxy

CUTS = 210
SEED = 20261201

# Raises an error of the wanted code as often as wanted; a sequence keeps counting when a transaction is rolled back.
FAULTS = """
CREATE SEQUENCE $schema.fault_count;
CREATE TABLE $schema.fault (code text, times int);
CREATE FUNCTION $schema.raise_fault() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE f $schema.fault;
BEGIN
    SELECT * INTO f FROM $schema.fault;
    IF nextval('$schema.fault_count') <= f.times THEN
        RAISE EXCEPTION 'planned' USING ERRCODE = f.code;
    END IF;
    RETURN NEW;
END $$;
"""
TABLES = ("runs", "entries", "effects", "owners", "blobs")
FLEET_TABLES = ("queue", "queues", "schedules", "mail")


def run_sql(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(statement.encode())


def until_known(store: PostgresStore, batch: Sequence[Write]) -> tuple[list[Answer], int]:
    """As the committer does it, without giving up: the answers, and how often the outcome was unknown."""
    unknown = 0
    while True:
        try:
            return store.transact(batch, again=unknown > 0), unknown
        except CommitUnknown:
            unknown += 1
        except NotCommitted:
            assert unknown == 0, "after an unknown commit nothing may be said to be certain"


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def place(postgres_url: str) -> Place:
    return Place(lambda: PostgresStore(postgres_url), fresh=lambda: place)


# --- errors that the server itself reports ------------------------------------------------------------------------


def everything(place: Place) -> list[Write]:
    """A batch that writes into every table."""
    big = b"x" * 70_000
    blob = replace(place.append("big", b"\0" + blob_hash(big)), blobs=((blob_hash(big), big),))
    return [place.join(), place.start(), place.append("a"), place.take(), blob, place.append("b")]


def plant(url: str, schema: str, table: str, moment: str, code: str, times: int) -> None:
    """From now on so many inserts into the table fail with this code."""
    deferred = "CONSTRAINT TRIGGER" if moment == "at commit" else "TRIGGER"
    when = "AFTER INSERT" if moment == "at commit" else "BEFORE INSERT"
    rest = "DEFERRABLE INITIALLY DEFERRED" if moment == "at commit" else ""
    run_sql(url, FAULTS.replace("$schema", schema))
    run_sql(url, f"INSERT INTO {schema}.fault VALUES ('{code}', {times})")
    trigger = f"CREATE {deferred} planted {when} ON {schema}.{table} {rest}"
    run_sql(url, f"{trigger} FOR EACH ROW EXECUTE FUNCTION {schema}.raise_fault()")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("moment", ["in the statement", "at commit"])
def test_an_error_at_any_statement_leaves_the_batch_once_or_not_at_all(
    table: str, moment: str, postgres_url: str
) -> None:
    for number, code in enumerate(("40001", "40P01", "57014", "57P01", "23514")):
        schema = f"s{number}"
        url = f"{postgres_url}?surefoot_schema={schema}"
        place = Place(lambda: PostgresStore(url), fresh=lambda: place)  # noqa: B023
        store = PostgresStore(url)
        plant(postgres_url, schema, table, moment, code, 2)
        batch = everything(place)
        for tries in range(1, 5):
            try:
                answers = store.transact(batch, again=tries > 1)
                break
            except CommitUnknown:
                assert code in ("57014", "57P01") or tries > 1
            except NotCommitted:
                assert code == "23514" and tries == 1 and store.find_run("r") is None
        assert tries == {"40001": 1, "40P01": 1}.get(code, 3)
        assert [answer.verdict for answer in answers] == [Verdict.DONE] * 6
        assert slots(store) == ["a", "pay", "big", "b"] and store.check() == []
        store.close()


@pytest.mark.parametrize("table", FLEET_TABLES)
@pytest.mark.parametrize("moment", ["in the statement", "at commit"])
def test_an_error_at_a_fleet_s_statement_leaves_its_batch_once_or_not_at_all(
    table: str, moment: str, postgres_url: str
) -> None:
    for number, code in enumerate(("40001", "40P01", "57014", "57P01", "23514")):
        url = f"{postgres_url}?surefoot_schema=s{number}"
        place = Place(lambda: PostgresStore(url), fresh=lambda: place)  # noqa: B023
        store = PostgresStore(url)
        plant(postgres_url, f"s{number}", table, moment, code, 2)
        nightly = Schedule(
            name="nightly", workflow="w", version="", arguments=b"{}", args_digest=b"", queue="mails", every=60.0
        )
        batch = [
            place.join(),
            queued(place, "r"),
            letter(place, "m1"),
            limit(place, concurrency=2),
            SetSchedule(schedule=nightly, stamp=next(place.stamps)),
        ]
        for tries in range(1, 5):
            try:
                answers = store.transact(batch, again=tries > 1)
                break
            except CommitUnknown:
                assert code in ("57014", "57P01") or tries > 1
            except NotCommitted:
                assert code == "23514" and tries == 1 and store.find_run("r") is None and rows(store) == {}
        assert tries == {"40001": 1, "40P01": 1}.get(code, 3)
        assert [answer.verdict for answer in answers] == [Verdict.DONE] * 5
        assert set(rows(store)) == {"r"} and [mail.id for mail in store.board.read_mail("r")] == ["m1"]
        assert [queue.name for queue in store.board.find_queues()] == ["mails"]
        assert [schedule.name for schedule in store.board.find_schedules()] == ["nightly"]
        assert store.check() == []
        store.close()


def test_a_conflict_that_never_ends_is_not_committed_and_says_so(
    store: PostgresStore, place: Place, postgres_url: str
) -> None:
    store.transact([place.start()])
    plant(postgres_url, "surefoot", "entries", "in the statement", "40001", ATTEMPTS_MAX)
    with pytest.raises(NotCommitted, match="planned"):
        store.transact([place.append("a")])
    assert slots(store) == []
    store.transact([place.append("b")])
    assert slots(store) == ["b"]


def test_a_real_deadlock_and_a_real_lock_wait_are_survived(
    store: PostgresStore, place: Place, postgres_url: str
) -> None:
    """Somebody's own transaction holds a row that the batch needs, and wants another that the batch has."""
    store.transact([place.start("r"), place.start("s")])
    batch: list[Write] = [place.append("a", run_id=run) for run in ("r", "s")]
    batch += [place.end(RunDo.RELEASE, run_id=run) for run in ("r", "s")]
    with psycopg.connect(postgres_url) as theirs:
        theirs.execute(b"SELECT FROM surefoot.runs WHERE id = 's' FOR UPDATE")
        thread = threading.Thread(target=lambda: until_known(store, batch))
        thread.start()
        waiting = b"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with psycopg.connect(postgres_url, autocommit=True) as db:
            while db.execute(waiting).fetchone() == (0,):
                pass
        try:
            theirs.execute(b"SELECT FROM surefoot.runs WHERE id = 'r' FOR UPDATE")
        except psycopg.errors.DeadlockDetected:
            pass  # either side may be chosen
        theirs.rollback()
        thread.join()
    assert slots(store, "r") == slots(store, "s") == ["a"]


def test_a_warning_at_commit_is_an_unknown_outcome(store: PostgresStore, place: Place, postgres_url: str) -> None:
    """As "canceling wait for synchronous replication" is: committed here, and perhaps nowhere else."""
    store.transact([place.start()])
    body = "BEGIN RAISE WARNING 'canceling'; RETURN NEW; END"
    run_sql(postgres_url, f"CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    run_sql(postgres_url, "CREATE TRIGGER w BEFORE INSERT ON surefoot.entries FOR EACH ROW EXECUTE FUNCTION warn()")
    batch = [place.append("a")]
    with pytest.raises(CommitUnknown, match="canceling"):
        store.transact(batch)
    assert store.transact(batch, again=True)[0].verdict is Verdict.DONE
    assert slots(store) == ["a"]


def cancelling_waits(url: str, act: Callable[[], object]) -> None:
    """Do it on another thread, while whoever waits for a standby is told to give up."""
    thread = threading.Thread(target=act)
    thread.start()
    cancel = b"SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with psycopg.connect(url, autocommit=True) as db:
        while thread.is_alive():
            db.execute(cancel)


def commit_until_one_waits(url: str) -> None:
    """Settings that are read anew count from some moment on; here they do."""
    warned: list[str] = []
    with psycopg.connect(url, autocommit=True) as db:
        db.add_notice_handler(lambda notice: warned.append(notice.message_primary or ""))
        while not any("synchronous replication" in said for said in warned):
            db.execute("SELECT pg_logical_emit_message(true, 'probe', '')")


def test_a_commit_that_waits_for_a_standby_in_vain_is_not_acknowledged() -> None:
    """Real synchronous replication with nobody there: the server warns, and a second look waits again."""
    with PrivatePostgres(fsync=False) as server:
        place = Place(lambda: PostgresStore(server.url), fresh=lambda: place)
        store = PostgresStore(server.url)
        store.transact([place.start()])
        batch = [place.append("a")]
        run_sql(server.url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        run_sql(server.url, "SELECT pg_reload_conf()")
        cancelling_waits(server.url, lambda: commit_until_one_waits(server.url))
        outcomes: list[str] = []

        def commit() -> None:
            for again in (False, True):
                try:
                    store.transact(batch, again=again)
                    outcomes.append("acknowledged")
                except CommitUnknown:
                    outcomes.append("unknown")

        cancelling_waits(server.url, commit)
        assert outcomes == ["unknown", "unknown"] and slots(store) == ["a"]
        run_sql(server.url, "ALTER SYSTEM RESET synchronous_standby_names")
        run_sql(server.url, "SELECT pg_reload_conf()")
        assert store.transact(batch, again=True)[0].verdict is Verdict.DONE and slots(store) == ["a"]
        store.close()


# --- connections that are lost ------------------------------------------------------------------------------------


def test_terminated_connections_are_replaced_at_every_call(
    store: PostgresStore, place: Place, postgres_url: str
) -> None:
    batch = [place.join(), place.start(), place.take()]
    store.appear(11)
    store.transact(batch)
    key = store.find_effects()[0].key
    calls: list[Any] = [
        lambda: until_known(store, [place.append("a")]),
        lambda: until_known(store, [place.join()]),
        lambda: until_known(store, [place.record(key, Do.CONFIRM)]),
        lambda: store.read_run("r"),
        lambda: store.find_run("r"),
        lambda: store.read_effect(key),
        lambda: store.read_owner(11),
        lambda: store.find_runs(),
        lambda: store.find_effects(),
        lambda: store.is_gone(12),
        lambda: store.tell_time(),
        lambda: store.check(),
        lambda: store.appear(11),
    ]
    terminate = (
        b"SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
    )
    terminate += b"datname = current_database()"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for call in calls:
            killed = db.execute(terminate).fetchone()
            assert killed is not None and killed[0] >= 1
            found = call()
            assert not (isinstance(found, tuple) and found[-1] == 1), "an idle cut is noticed before anything is sent"
    assert slots(store) == ["pay", "a", "pay"]


def test_a_lost_mark_is_made_again_with_the_next_heartbeat(
    store: PostgresStore, place: Place, postgres_url: str
) -> None:
    other = PostgresStore(postgres_url)
    store.appear(11)
    store.transact([place.join()])
    assert not other.is_gone(11)
    locks = b"SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_locks WHERE locktype = 'advisory'"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        assert db.execute(locks).fetchone() == (1,)
    assert other.is_gone(11), "a hint may be wrong; the fence protects"
    store.transact([place.join()])
    assert not other.is_gone(11)
    other.close()


def test_a_restarted_server_is_found_again_and_its_lost_marks_say_nothing() -> None:
    with PrivatePostgres(fsync=False) as server:
        place = Place(lambda: PostgresStore(server.url), fresh=lambda: place)
        store, other = PostgresStore(server.url), PostgresStore(server.url)
        store.appear(11)
        store.transact([place.join(), place.start()])
        for end in (server.stop, server.kill):
            end()
            with pytest.raises(psycopg.Error):
                psycopg.connect(server.url, connect_timeout=5)
            threading.Timer(0.3, server.start).start()
            assert until_known(store, [place.append(f"a{end.__name__}")])[0][0].verdict is Verdict.DONE
            assert not other.is_gone(11), "every mark was lost with the server, so none may be believed"
            store.transact([place.join()])
            assert not other.is_gone(11)
        assert slots(store) == ["astop", "akill"]
        store.close()
        assert other.is_gone(11)
        other.close()


def test_two_hundred_cuts_around_a_commit_duplicate_and_lose_nothing(postgres: PrivatePostgres) -> None:
    dice = random.Random(SEED)
    database = postgres.create_database().rpartition("/")[2]
    proxy = Proxy(postgres.port)
    store = PostgresStore(f"postgresql://surefoot:{postgres.password}@127.0.0.1:{proxy.port}/{database}")
    place = Place(lambda: store, fresh=lambda: place)
    store.transact([place.start(), place.start("s")])
    wanted: dict[str, list[str]] = {"r": [], "s": []}
    seen: Counter[str] = Counter()
    try:
        while proxy.cuts < CUTS:
            direction = dice.choice(("request", "answer", "answer"))
            proxy.arm(direction, dice.choice((0, 0, 1, 40, 200, 10_000)))
            batch: list[Write] = []
            for _ in range(dice.choice((1, 1, 3))):
                run_id = dice.choice(("r", "s"))
                slot = f"{len(wanted['r']) + len(wanted['s'])}"
                wanted[run_id].append(slot)
                batch.append(place.append(slot, run_id=run_id))
            answers, unknown = until_known(store, batch)
            seen[f"{direction}, {'unknown' if unknown else 'known'}"] += 1
            assert {answer.verdict for answer in answers} == {Verdict.DONE}
        proxy.disarm()
        assert {run_id: slots(store, run_id) for run_id in wanted} == wanted and store.check() == []
    finally:
        store.close()
        proxy.close()
    assert proxy.cuts >= CUTS and seen["request, unknown"] > 20 and seen["answer, unknown"] > 20, seen


def test_the_committer_decides_what_a_cut_left_open(postgres: PrivatePostgres) -> None:
    database = postgres.create_database().rpartition("/")[2]
    proxy = Proxy(postgres.port)
    store = PostgresStore(f"postgresql://surefoot:{postgres.password}@127.0.0.1:{proxy.port}/{database}")
    place = Place(lambda: store, fresh=lambda: place)
    committer = Committer(store)
    try:
        committer.commit(place.start())
        for number in range(20):
            for write in (place.append(f"a{number}"), place.append(f"b{number}")):
                committer.enqueue(Pending(write))
            proxy.arm("answer", 0)
            assert committer.commit(place.append(f"c{number}")).verdict is Verdict.DONE
        assert proxy.cuts == 20
        assert slots(store) == [f"{letter}{number}" for number in range(20) for letter in "abc"]
    finally:
        committer.close()
        store.close()
        proxy.close()
