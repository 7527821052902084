"""What a deliverer makes of rows: each is one effect, seen by its receiver once, and ends in a state that says why."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from surefoot import NotSent, Refused, Surefoot, UsageError, effect, keyed, opaque, outbox
from surefoot.cli.resolve import check_decision
from surefoot.core.effect import Event, Evidence, Status
from surefoot.core.ids import derive_key, render_key
from surefoot.core.writes import DecideEffect, Verdict
from surefoot.effects.effect import _effects
from surefoot.testing.clock import FakeClock
from tests.outbox.conftest import Post
from tests.outbox.world import async_mail, keyed_mail, lookup_mail, make_shop, opaque_mail, review, states

RECEIVER_LAG = 0.0
"""A clock that a test moves runs ahead of the receiver's, so that a real lag would be a promise that it breaks."""


@pytest.fixture
def sf(quick_path: Path) -> Iterator[Surefoot]:
    with Surefoot(str(quick_path / "agents.db")) as surefoot:
        yield surefoot


def put(connect: Callable[[], Any], mail: Any, *args: Any, **options: Any) -> str:
    connection = connect()
    row = outbox.put(connection, mail, *args, **options)
    connection.commit()
    connection.close()
    return row


def row_of(connect: Callable[[], Any], id: str) -> outbox.Row:
    connection = connect()
    row = outbox.find(connection, id)
    connection.close()
    assert row is not None
    return row


def decide(sf: Surefoot, key: str, **what: Any) -> None:
    given = {"happened": None, "did_not_happen": False, "abandon": False, **what}
    decision = check_decision(**given, why="looked there", who="a person")
    evidence = Evidence(at=sf.engine.clock.now(), kind="decision", found=decision.do, who="a person")
    event = Event(do=decision.do, at=sf.engine.clock.now(), receipt=decision.receipt, evidence=evidence)
    answer = sf.engine.committer.commit(DecideEffect(key=key, event=event, stamp=next(sf.engine.stamps)))
    assert answer.verdict is Verdict.DONE


# --- what a row becomes --------------------------------------------------------------------------------------------


def test_a_row_is_delivered_once_with_its_receipt(where: str, sf: Surefoot, receiver: Post) -> None:
    connect = make_shop(where)
    name = f"once-{time.time()}"
    for mail in (keyed_mail, lookup_mail, opaque_mail, async_mail):
        put(connect, mail, f"{name}-{mail.name}", id=mail.name)
    assert outbox.deliver(sf, connect) == outbox.Delivered(delivered=4)
    assert outbox.deliver(sf, connect) == outbox.Delivered()
    for mail in (keyed_mail, lookup_mail, opaque_mail, async_mail):
        assert receiver.performed(f"{name}-{mail.name}") == len(receiver.lines(f"{name}-{mail.name}")) == 1
        row = row_of(connect, mail.name)
        assert row.state is outbox.State.DELIVERED and f'"name":"{name}-{mail.name}"' in (row.receipt or "")


def test_the_key_is_made_of_database_and_row_or_of_the_business_identity(
    connect: Callable[[], Any], sf: Surefoot, receiver: Post
) -> None:
    put(connect, keyed_mail, "key-own", id="r-1")
    put(connect, review, "key-business", id="r-2")
    outbox.deliver(sf, connect)
    database = connect().execute("SELECT id FROM surefoot_outbox_database").fetchone()[0]
    for name, identity in (("key-own", f"outbox:{database}:r-1"), ("key-business", "review:key-business")):
        (line,) = receiver.lines(name)
        assert line.key == render_key(derive_key("default", identity), "uuid")


def test_two_rows_with_one_business_identity_are_one_effect_and_the_second_is_told(
    connect: Callable[[], Any], sf: Surefoot, receiver: Post
) -> None:
    put(connect, review, "acme", id="first")
    outbox.deliver(sf, connect)
    put(connect, review, "acme", id="second")
    assert outbox.deliver(sf, connect) == outbox.Delivered(delivered=1)
    first, second = row_of(connect, "first"), row_of(connect, "second")
    assert receiver.performed("acme") == len(receiver.lines("acme")) == 1
    assert first.receipt == second.receipt and first.reason == ""
    assert "asked for by 'outbox:first/outbox.review'" in second.reason and "it is one effect" in second.reason


def test_another_request_under_one_identity_is_a_disagreement_and_not_sent(
    connect: Callable[[], Any], sf: Surefoot, receiver: Post
) -> None:
    put(connect, review, "bolt", "one text", id="first")
    put(connect, review, "bolt", "another text", id="second")
    put(connect, keyed_mail, "behind", id="behind")
    assert outbox.deliver(sf, connect, workers=1) == outbox.Delivered(delivered=2, stuck=1)
    row = row_of(connect, "second")
    assert "one text" in row.reason and "another text" in row.reason and "Nothing was sent" in row.reason
    assert receiver.performed("bolt") == len(receiver.lines("bolt")) == 1
    (held,) = [e for e in sf.store.find_effects() if e.identity == "review:bolt"]
    assert [e.kind for e in held.evidence] == ["disagreement"]
    assert [row.id for row in outbox.failed(connect())] == ["second"]


def test_a_refused_effect_ends_as_refused(connect: Callable[[], Any], sf: Surefoot, receiver: Post) -> None:
    put(connect, keyed_mail, "no-such-box", fault="400", id="r")
    assert outbox.deliver(sf, connect) == outbox.Delivered(refused=1)
    row = row_of(connect, "r")
    assert "400" in row.reason and row.ended_at and receiver.performed("no-such-box") == 0
    assert [row.id for row in outbox.failed(connect())] == ["r"] and outbox.pending(connect()) == []


def test_a_parked_row_waits_for_a_person_and_others_go_on(
    connect: Callable[[], Any], virtual: Surefoot, receiver: Post
) -> None:
    for name in ("happened", "did-not", "nobody-knows"):
        put(connect, opaque_mail, f"opaque-{name}", fault="500", id=name)
    put(connect, keyed_mail, "opaque-behind", id="behind")
    assert outbox.deliver(virtual, connect, workers=1) == outbox.Delivered(delivered=1, parked=3)
    assert outbox.deliver(virtual, connect) == outbox.Delivered(parked=3)
    keys = {name: row_of(connect, name).effect_key for name in ("happened", "did-not", "nobody-knows")}
    assert f"surefoot resolve - {keys['happened'][:12]}" in row_of(connect, "happened").reason
    assert {e.key for e in virtual.store.find_effects([Status.PARKED])} == set(keys.values())
    decide(virtual, keys["happened"], happened='{"name": "seen by hand", "number": 7}')
    decide(virtual, keys["did-not"], did_not_happen=True)
    decide(virtual, keys["nobody-knows"], abandon=True)
    assert outbox.deliver(virtual, connect) == outbox.Delivered(delivered=2, abandoned=1)
    assert row_of(connect, "happened").receipt == '{"name":"seen by hand","number":7}'
    assert receiver.performed("opaque-happened") == 1 and len(receiver.lines("opaque-did-not")) == 2


def test_a_row_in_doubt_is_put_off_and_settled_by_its_contract(
    connect: Callable[[], Any], virtual: Surefoot, clock: FakeClock, receiver: Post
) -> None:
    put(connect, keyed_mail, "doubt-keyed", fault="500,reset", id="keyed")
    put(connect, lookup_mail, "doubt-lookup", fault="500", id="lookup")
    outbox.deliver(virtual, connect)
    assert "in_doubt" in row_of(connect, "keyed").reason and row_of(connect, "keyed").state is outbox.State.WAITING
    assert outbox.deliver(virtual, connect) == outbox.Delivered(), "it is not due yet"
    assert all(e.owner == 0 for e in virtual.store.find_effects()), "nobody holds what waits"
    for _ in range(5):
        clock.advance(5)
        outbox.deliver(virtual, connect)
    assert states(connect) == {"keyed": "delivered", "lookup": "delivered"}
    assert receiver.performed("doubt-keyed") == receiver.performed("doubt-lookup") == 1


def test_what_cannot_be_sent_is_tried_again_until_its_budget_ends(
    connect: Callable[[], Any], virtual: Surefoot, clock: FakeClock
) -> None:
    tries: list[float] = []

    @effect(keyed(window=600), name="outbox.unsent", budget=60)
    def unsent(attempt: Any, name: str) -> None:
        tries.append(virtual.engine.clock.now())
        raise NotSent("the server is down")

    put(connect, unsent, "short", id="short")
    for _ in range(40):
        outbox.deliver(virtual, connect)
        clock.advance(5)
    row = row_of(connect, "short")
    assert row.state is outbox.State.REFUSED and "could not be sent for 60 s" in row.reason
    assert 3 < len(tries) < 15, "it backs off"
    put(connect, unsent, "long", id="long")
    for _ in range(40):
        outbox.deliver(virtual, connect, budget=timedelta(hours=1))
        clock.advance(5)
    assert row_of(connect, "long").state is outbox.State.WAITING


def test_an_unknown_effect_is_stuck_in_sight_until_the_code_is_there(
    connect: Callable[[], Any], virtual: Surefoot, receiver: Post
) -> None:
    put(connect, keyed_mail, "unknown", id="u")
    put(connect, keyed_mail, "known", id="k")
    connection = connect()
    connection.execute("UPDATE surefoot_outbox SET effect = 'outbox.later' WHERE id = 'u'")
    connection.commit()
    assert outbox.deliver(virtual, connect) == outbox.Delivered(delivered=1, stuck=1)
    (row,) = outbox.failed(connection)
    assert row.id == "u" and "no effect has that name here" in row.reason and "Import the module" in row.reason

    @effect(keyed(window=600), name="outbox.later")
    def later(attempt: Any, name: str, text: str, fault: str) -> str:
        return keyed_mail.function(attempt, name, text, fault)["name"]

    assert outbox.deliver(virtual, connect) == outbox.Delivered(delivered=1)
    assert receiver.performed("unknown") == 1


def test_a_renamed_effect_still_delivers_its_old_rows(connect: Callable[[], Any], virtual: Surefoot) -> None:
    @effect(keyed(window=600), name="outbox.new_name", formerly="outbox.old_name")
    def new_name(attempt: Any, name: str) -> str:
        return f"to {name}"

    put(connect, new_name, "a", id="r")
    connection = connect()
    connection.execute("UPDATE surefoot_outbox SET effect = 'outbox.old_name'")
    connection.commit()
    assert outbox.deliver(virtual, connect) == outbox.Delivered(delivered=1)
    assert row_of(connect, "r").receipt == '"to a"'


def test_arguments_that_no_longer_fit_are_stuck_and_nothing_is_sent(
    connect: Callable[[], Any], virtual: Surefoot, receiver: Post
) -> None:
    put(connect, keyed_mail, "unfit", id="u")
    connection = connect()
    connection.execute("""UPDATE surefoot_outbox SET arguments = '{"name":5}'""")
    connection.commit()
    assert outbox.deliver(virtual, connect) == outbox.Delivered(stuck=1)
    assert "no longer fits the annotation" in row_of(connect, "u").reason
    assert virtual.store.find_effects() == [] and receiver.lines("unfit") == []
    outbox.retry(connection, "u")
    for wrong, words in (("u", "not stuck"), ("nobody", "no row")):
        with pytest.raises(UsageError, match=words):
            outbox.retry(connection, wrong)
    connection.rollback()
    outbox.drop(connection, "u", why="the old form is gone")
    connection.commit()
    row = row_of(connect, "u")
    assert row.state is outbox.State.ABANDONED and "the old form is gone" in row.reason


def test_a_body_that_raises_what_is_no_exception_harms_no_other_row(
    connect: Callable[[], Any], virtual: Surefoot, receiver: Post
) -> None:
    @effect(opaque(), name="outbox.exits")
    def exits(attempt: Any) -> None:
        raise SystemExit(3)

    put(connect, exits, id="e")
    put(connect, keyed_mail, "beside-exit", id="k")
    assert outbox.deliver(virtual, connect, workers=1) == outbox.Delivered(delivered=1, waiting=1)
    assert "SystemExit" in row_of(connect, "e").reason


def test_a_confirmed_effect_is_only_marked_even_where_its_code_is_gone(
    connect: Callable[[], Any], sf: Surefoot, receiver: Post
) -> None:
    put(connect, keyed_mail, "only-marked", id="r")
    outbox.deliver(sf, connect)
    receipt = row_of(connect, "r").receipt
    restore_backup(connect)
    known = _effects.pop("outbox.keyed")
    try:
        assert outbox.deliver(sf, connect) == outbox.Delivered(delivered=1)
    finally:
        _effects["outbox.keyed"] = known
    assert row_of(connect, "r").receipt == receipt and len(receiver.lines("only-marked")) == 1


def restore_backup(connect: Callable[[], Any]) -> None:
    """The user's database as it was before anything was delivered."""
    connection = connect()
    connection.execute(
        "UPDATE surefoot_outbox SET state = 'waiting', ended_at = NULL, receipt = NULL, effect_key = '', reason = '', "
        "claimed_by = '', claimed_until = 0, claims = 0, due_at = 0"
    )
    connection.commit()
    connection.close()


def test_a_database_restored_from_backup_sends_nothing_again(
    connect: Callable[[], Any], sf: Surefoot, receiver: Post
) -> None:
    for mail in (keyed_mail, lookup_mail, opaque_mail, review):
        put(connect, mail, f"backup-{mail.name}", id=mail.name)
    outbox.deliver(sf, connect)
    restore_backup(connect)
    assert outbox.deliver(sf, connect) == outbox.Delivered(delivered=4)
    for mail in (keyed_mail, lookup_mail, opaque_mail, review):
        assert len(receiver.lines(f"backup-{mail.name}")) == 1


def test_a_row_that_another_store_began_is_not_begun_anew(
    connect: Callable[[], Any], sf: Surefoot, virtual: Surefoot, receiver: Post
) -> None:
    put(connect, opaque_mail, "other-store", fault="500", id="r")
    outbox.deliver(sf, connect)
    assert outbox.deliver(virtual, connect) == outbox.Delivered(stuck=1)
    assert "another Surefoot store" in row_of(connect, "r").reason and len(receiver.lines("other-store")) == 1
    assert outbox.deliver(sf, connect) == outbox.Delivered(parked=1)


# --- order, keeping, loops -----------------------------------------------------------------------------------------


def test_rows_in_one_order_are_delivered_one_after_the_other_and_wait_for_a_parked_one(
    where: str, virtual: Surefoot, receiver: Post
) -> None:
    connect = make_shop(where)
    sent: list[str] = []

    @effect(keyed(window=600), name=f"outbox.ordered.{'pg' if '://' in where else 'lite'}")
    def ordered(attempt: Any, name: str) -> None:
        time.sleep(0.01 if name.endswith("0") else 0)
        sent.append(name)

    for number in range(6):
        put(connect, ordered, f"a{number}", ordered_by="a")
        put(connect, ordered, f"b{number}", ordered_by="b")
    put(connect, opaque_mail, f"parked-first-{where[:4]}", fault="500", id="p", ordered_by="c")
    put(connect, ordered, "c1", id="c1", ordered_by="c")
    outbox.deliver(virtual, connect)
    assert [n for n in sent if n[0] == "a"] == [f"a{n}" for n in range(6)]
    assert [n for n in sent if n[0] == "b"] == [f"b{n}" for n in range(6)]
    assert "c1" not in sent and states(connect)["c1"] == "waiting"
    decide(virtual, row_of(connect, "p").effect_key, abandon=True)
    outbox.deliver(virtual, connect)
    assert sent[-1] == "c1"


def test_delivered_rows_are_kept_as_long_as_asked(
    connect: Callable[[], Any], virtual: Surefoot, clock: FakeClock, receiver: Post
) -> None:
    put(connect, keyed_mail, "kept", id="kept")
    put(connect, keyed_mail, "kept-refused", fault="400", id="refused")
    outbox.deliver(virtual, connect, keep=timedelta(days=1))
    clock.advance(86_000)
    outbox.deliver(virtual, connect, keep=timedelta(days=1))
    assert set(states(connect)) == {"kept", "refused"}
    clock.advance(1_000)
    outbox.deliver(virtual, connect)
    assert set(states(connect)) == {"kept", "refused"}, "without keep= nothing is deleted"
    outbox.deliver(virtual, connect, keep=timedelta(days=1))
    assert set(states(connect)) == {"refused"}, "what did not happen stays in sight"


def test_a_slow_receiver_holds_up_nobody_else(connect: Callable[[], Any], sf: Surefoot) -> None:
    may_end, others = threading.Event(), threading.Barrier(4)

    @effect(keyed(window=600), name="outbox.slow")
    def slow(attempt: Any) -> None:
        assert may_end.wait(30)

    @effect(keyed(window=600), name="outbox.quick")
    def quick(attempt: Any, number: int) -> None:
        if number >= 17:  # the last three pass only while the slow one is in the air
            others.wait(30)

    put(connect, slow)
    for number in range(20):
        put(connect, quick, number)
    thread = threading.Thread(target=outbox.deliver, args=(sf, connect), kwargs={"workers": 4})
    thread.start()
    others.wait(30)
    may_end.set()
    thread.join(30)
    assert set(states(connect).values()) == {"delivered"}


def test_the_loop_delivers_after_a_nudge_and_stops_when_told(where: str, sf: Surefoot, receiver: Post) -> None:
    connect = make_shop(where)
    stop, arrived = threading.Event(), threading.Event()

    @effect(keyed(window=600), name=f"outbox.nudged.{'pg' if '://' in where else 'lite'}")
    def nudged(attempt: Any) -> None:
        arrived.set()

    options: Any = {"stop": stop, "poll_seconds": 3600, "listen": "://" in where}
    thread = threading.Thread(target=outbox.run, args=(sf, connect), kwargs=options)
    thread.start()
    put(connect, nudged)
    while not arrived.wait(0.05):
        nudge_from_elsewhere(connect) if "://" in where else outbox.nudge()
    stop.set()
    thread.join(30)
    assert not thread.is_alive() and set(states(connect).values()) == {"delivered"}


def nudge_from_elsewhere(connect: Callable[[], Any]) -> None:
    """What another process would do: only the database is told."""
    connection = connect()
    connection.execute("SELECT pg_notify('surefoot_outbox', '')")
    connection.commit()
    outbox.nudge(connection)
    connection.close()


def test_the_loop_waits_out_a_database_that_is_away(
    connect: Callable[[], Any], sf: Surefoot, receiver: Post, caplog: pytest.LogCaptureFixture
) -> None:
    stop, away = threading.Event(), [False]
    failed = threading.Event()

    def sometimes() -> Any:
        if away[0]:
            failed.set()
            raise sqlite3.OperationalError("the server is away")
        return Breaking(connect(), away)

    thread = threading.Thread(target=outbox.run, args=(sf, sometimes), kwargs={"stop": stop, "poll_seconds": 0.05})
    thread.start()
    away[0] = True
    assert failed.wait(30)
    put(connect, keyed_mail, "after-outage", id="r")
    away[0] = False
    while states(connect)["r"] != "delivered":
        assert thread.is_alive(), "the outage ended it"
        time.sleep(0.02)
    stop.set()
    thread.join(30)
    assert receiver.performed("after-outage") == 1 and "the server is away" in caplog.text


class Breaking(sqlite3.Connection):
    """A connection whose server goes away."""

    def __new__(cls, inner: Any, away: list[bool]) -> Any:
        path = inner.execute("PRAGMA database_list").fetchone()[2]
        inner.close()
        made = sqlite3.connect(path, factory=_Breaking)
        made.away = away
        return made


class _Breaking(sqlite3.Connection):
    away: list[bool]

    def cursor(self, *args: Any, **options: Any) -> Any:
        if self.away[0]:
            raise sqlite3.OperationalError("the server is away")
        return super().cursor(*args, **options)


def test_a_deliverer_may_connect_through_sqlalchemy(where: str, sf: Surefoot, receiver: Post) -> None:
    connect = make_shop(where)
    url = where.replace("postgresql", "postgresql+psycopg") if "://" in where else f"sqlite:///{where}"
    engine = sqlalchemy.create_engine(url)
    name = f"sqlalchemy-{where[:4]}"
    put(connect, keyed_mail, name, id="r")
    assert outbox.deliver(sf, engine.connect) == outbox.Delivered(delivered=1)
    engine.dispose()
    assert receiver.performed(name) == 1 and states(connect) == {"r": "delivered"}


def test_bad_options_are_refused_before_anything_is_claimed(connect: Callable[[], Any], sf: Surefoot) -> None:
    for options in ({"workers": 0}, {"keep": timedelta(-1)}, {"budget": timedelta(-1)}):
        with pytest.raises(UsageError):
            outbox.deliver(sf, connect, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="function that returns"):
        outbox.deliver(sf, connect())
    with pytest.raises(UsageError, match="poll_seconds"):
        outbox.run(sf, connect, poll_seconds=0)
    with pytest.raises(UsageError, match="listen"):
        outbox.run(sf, connect, listen=True)
    with pytest.raises(UsageError, match="PostgreSQL"):
        outbox.nudge(connect())
    with pytest.raises(UsageError, match="create_outbox_table"):
        outbox.deliver(sf, lambda: sqlite3.connect(":memory:"))


def test_a_refusal_by_code_is_told_with_its_reason(connect: Callable[[], Any], virtual: Surefoot) -> None:
    @effect(keyed(window=600), name="outbox.refuses")
    def refuses(attempt: Any) -> None:
        raise Refused("no such mailbox")

    put(connect, refuses, id="r")
    outbox.deliver(virtual, connect)
    assert replace(row_of(connect, "r"), reason="").state is outbox.State.REFUSED
    assert row_of(connect, "r").reason == "no such mailbox"
