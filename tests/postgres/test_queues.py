"""Queues and mail on PostgreSQL: workers on several connections take each run once, within the limits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from surefoot.core.dispatch import Limits, Served
from surefoot.core.dispatch_writes import ClaimReady, Leave, SendMail, SetQueue
from surefoot.core.mail import Mail
from surefoot.core.run import RunDo, RunStatus
from surefoot.core.writes import StartRun, Verdict
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.place import AT, Place, one, seen_by

SERVED = Served(queues=("mails", "other"), workflows=(("w", ""),))
WORKERS, RUNS = 4, 60


@pytest.fixture
def place(postgres_url: str) -> Place:
    return Place(lambda: PostgresStore(postgres_url), fresh=lambda: place)


@pytest.fixture
def store(place: Place) -> Iterator[PostgresStore]:
    with place.open() as opened:
        assert isinstance(opened, PostgresStore)
        yield opened


def pending(place: Place, run_id: str, *, key: str = "", at: float = AT, priority: int = 0) -> StartRun:
    begun = place.start(run_id, created_at=at)
    run = replace(begun.run, status=RunStatus.PENDING, owner=0, queue="mails", key=key, priority=priority)
    return replace(begun, run=run)


def claim(place: Place, owner: int, slots: int) -> ClaimReady:
    vantage = replace(seen_by(owner), at=AT + 1000)
    return ClaimReady(served=SERVED, slots=slots, vantage=vantage, stamp=next(place.stamps))


def test_the_foremost_runs_are_taken_and_no_others(store: PostgresStore, place: Place) -> None:
    runs = [pending(place, f"r{n}", at=AT + n, priority=int(n == 3)) for n in range(5)]
    elsewhere = pending(place, "x")
    store.transact([*runs, replace(elsewhere, run=replace(elsewhere.run, workflow="other"))])
    assert [run.id for run in one(store, claim(place, 11, 3)).runs] == ["r3", "r0", "r1"]
    assert {row.run_id for row in store.board.backlog() if row.owner == 11} == {"r3", "r0", "r1"}
    assert {run.id for run in one(store, claim(place, 12, 9)).runs} == {"r2", "r4"}
    assert one(store, claim(place, 12, 9)).verdict is Verdict.ABSENT
    one(store, place.end(run_id="r3"))
    assert "r3" in {row.run_id for row in store.board.backlog()}, "a stale fence token ends nothing"
    one(store, place.end(run_id="r3", fence=2))
    assert "r3" not in {row.run_id for row in store.board.backlog()}


def test_a_sleeping_run_is_taken_when_it_is_due_and_its_instant_is_told(store: PostgresStore, place: Place) -> None:
    begun = place.start("r")
    store.transact([replace(begun, run=replace(begun.run, queue="mails"))])
    store.transact([replace(place.end(RunDo.SUSPEND), wake_at=AT + 5000)])
    assert store.board.next_due(SERVED) == AT + 5000
    assert one(store, claim(place, 12, 1)).verdict is Verdict.ABSENT
    late = claim(place, 12, 1)
    answer = one(store, replace(late, vantage=replace(late.vantage, at=AT + 5000)))
    assert [run.id for run in answer.runs] == ["r"] and store.board.next_due(SERVED) is None


@pytest.mark.parametrize("limit", [0, 7])
def test_workers_that_compete_take_each_run_once_and_keep_the_limit(
    limit: int, store: PostgresStore, place: Place
) -> None:
    store.transact([pending(place, f"r{n:02}", key=f"k{n % 3}", at=AT + n) for n in range(RUNS)])
    if limit:
        one(store, SetQueue(name="mails", limits=Limits(concurrency=limit), at=AT, stamp=next(place.stamps)))
    taken: Counter[str] = Counter()
    most, problems = [0], list[BaseException]()
    ended = threading.Event()

    def work(owner: int) -> None:
        try:
            with place.open() as mine:
                while not ended.is_set():
                    runs = one(mine, claim(place, owner, 3)).runs
                    for run in runs:
                        taken[run.id] += 1
                    for run in runs:
                        assert one(mine, place.append("a", run_id=run.id, fence=run.fence)).verdict is Verdict.DONE
                        assert one(mine, place.end(run_id=run.id, fence=run.fence)).verdict is Verdict.DONE
                    if sum(taken.values()) >= RUNS:
                        ended.set()
        except BaseException as error:
            problems.append(error)
            ended.set()

    threads = [threading.Thread(target=work, args=(owner,)) for owner in range(100, 100 + WORKERS)]
    for thread in threads:
        thread.start()
    while not ended.is_set():
        most[0] = max(most[0], sum(row.owner != 0 for row in store.board.backlog()))
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert len(taken) == RUNS and set(taken.values()) == {1}
    assert store.board.backlog() == [] and (not limit or most[0] <= limit)
    assert {run.status for run in store.find_runs()} == {RunStatus.SUCCEEDED}


def test_one_busy_key_does_not_hide_the_others(store: PostgresStore, place: Place) -> None:
    runs = [pending(place, f"busy{n:03}", key="busy", at=AT + n) for n in range(100)]
    store.transact([*runs, pending(place, "quiet", key="quiet", at=AT + 500)])
    one(store, SetQueue(name="mails", limits=Limits(per_key=1), at=AT, stamp=next(place.stamps)))
    assert {run.id for run in one(store, claim(place, 11, 2)).runs} == {"busy000", "quiet"}


def test_mail_is_kept_in_order_and_once(store: PostgresStore, place: Place) -> None:
    store.transact([place.start(), place.join()])

    def letter(name: str) -> SendMail:
        mail = Mail(run_id="r", number=0, id=name, name="go", at=AT)
        return SendMail(run_id="r", mail=mail, stamp=next(place.stamps))

    store.transact([letter("a"), letter("b")])
    with place.open() as other:
        assert one(other, letter("c")).verdict is Verdict.DONE and one(other, letter("a")).verdict is Verdict.DONE
    one(store, letter("d"))
    assert [(mail.number, mail.id) for mail in store.board.read_mail("r")] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    run = store.find_run("r")
    assert run is not None and run.mail == 4


def test_limits_and_owners_can_be_listed_and_left(store: PostgresStore, place: Place) -> None:
    one(store, SetQueue(name="mails", limits=Limits(rate=5), at=AT, stamp=next(place.stamps)))
    store.transact([place.join(11), place.join(22)])
    assert [queue.limits.rate for queue in store.board.find_queues()] == [5]
    one(store, Leave(owner_id=11, stamp=next(place.stamps)))
    assert [owner.id for owner in store.board.find_owners()] == [22]
    one(store, place.join(11))
    assert len(store.board.find_owners()) == 2
