"""What every store must do with queues and mail, as tests that ship; see `contract` for how to run them.

Which run may be taken is decided by `core.dispatch`. These checks are about what a store adds: that a queue row follows
its run in the same commit, that competing claims of many processes give each run to one and keep the limits, that a
busy key hides no other, and that mail is kept in order, each message once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from msgspec.structs import replace

from ..core.dispatch import PROBATION_PAUSE_SECONDS, WAKE_NOW, Limits, Ready, Served
from ..core.dispatch_writes import ClaimReady, FreeRun, Leave, RetryRun, SendMail, SetQueue
from ..core.mail import Mail
from ..core.run import Run, RunDo, RunStatus, Waits
from ..core.writes import Answer, StartRun, Verdict
from ..stores.base import Store
from .contract import Check
from .place import ALIVE, AT, STRANGER, Place, in_threads, one, seen_by

SERVED = Served(queues=("mails", "other"), workflows=(("w", ""), ("w", "2")))


def queued(place: Place, run_id: str, **changes: Any) -> StartRun:
    """A run that is put into the queue "mails"."""
    begun = place.start(run_id, created_at=changes.pop("at", AT))
    run = replace(begun.run, status=RunStatus.PENDING, owner=0, fence=0, queue="mails")
    return replace(begun, run=replace(run, **changes))


def claim(place: Place, owner: int = ALIVE, *, slots: int = 1, at: float = AT + 10, **options: Any) -> ClaimReady:
    """A worker takes what is ready."""
    vantage = replace(seen_by(owner), at=at)
    return ClaimReady(served=SERVED, slots=slots, vantage=vantage, stamp=next(place.stamps), **options)


def names(answer: Answer) -> list[str]:
    """The runs that a claim took, in order."""
    return [run.id for run in answer.runs]


def limit(place: Place, name: str = "mails", **limits: Any) -> SetQueue:
    """Give a queue its limits."""
    return SetQueue(name=name, limits=Limits(**limits), at=AT, stamp=next(place.stamps))


def rows(store: Store) -> dict[str, Ready]:
    """The queue's rows, by run."""
    return {row.run_id: row for row in store.board.backlog()}


def found(store: Store, run_id: str = "r") -> Run:
    """A run that is there."""
    run = store.find_run(run_id)
    assert run is not None
    return run


# --- rows ---------------------------------------------------------------------------------------------------------


def a_queued_run_has_a_row_until_it_ends(place: Place) -> None:
    """Ready, taken, released, taken, ended: the row is saved in the commit that moves the run."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "r", key="k", version="2", priority=3)])
        row = rows(store)["r"]
        assert (row.queue, row.workflow, row.version, row.key, row.priority) == ("mails", "w", "2", "k", 3)
        assert (row.owner, row.due_at) == (0, 0.0)
        taken = one(store, claim(place)).runs[0]
        assert (taken.fence, taken.owner, taken.status) == (1, ALIVE, RunStatus.RUNNING)
        assert found(store) == taken and rows(store)["r"].owner == ALIVE
        one(store, place.end(RunDo.RELEASE))
        assert rows(store)["r"].owner == 0
        assert one(store, claim(place, STRANGER)).runs[0].fence == 2
        one(store, place.end(RunDo.SUCCEED, fence=2))
        assert rows(store) == {} and one(store, claim(place)).verdict is Verdict.ABSENT


def a_run_that_no_queue_started_has_a_row_only_while_nobody_has_it(place: Place) -> None:
    """It counts in no limit; once it is released, workers of the default queue may go on with it."""
    with place.open() as store:
        store.transact([place.join(), place.start()])
        assert rows(store) == {}
        one(store, place.end(RunDo.RELEASE))
        assert rows(store)["r"].queue == "default"


def a_batch_that_is_taken_and_ended_at_once_leaves_no_row(place: Place) -> None:
    """Rows follow runs inside one commit too."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "r"), queued(place, "s")])
        answers = store.transact([claim(place, slots=2), place.end(run_id="r"), queued(place, "t"), claim(place)])
        assert set(names(answers[0])) == {"r", "s"} and names(answers[3]) == ["t"]
        assert set(rows(store)) == {"s", "t"}


def what_a_worker_cannot_run_is_left(place: Place) -> None:
    """Another queue, another workflow, another version."""
    with place.open() as store:
        others = [
            queued(place, "q", queue="elsewhere"),
            queued(place, "w", workflow="v"),
            queued(place, "v", version="1"),
        ]
        store.transact([place.join(), *others])
        assert one(store, claim(place, slots=9)).verdict is Verdict.ABSENT
        one(store, queued(place, "r", version="2"))
        assert names(one(store, claim(place, slots=9))) == ["r"]
        assert {row.owner for row in rows(store).values() if row.run_id != "r"} == {0}


def a_sleeping_run_is_not_taken_before_its_time(place: Place) -> None:
    """Nor hidden after it; `next_due` tells when to look."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "later", wake_at=AT + 60), queued(place, "soon", wake_at=AT + 30)])
        assert store.board.next_due(SERVED) == AT + 30
        assert store.board.next_due(Served(queues=("other",), workflows=SERVED.workflows)) is None
        assert one(store, claim(place, at=AT + 29.999)).verdict is Verdict.ABSENT
        assert names(one(store, claim(place, slots=2, at=AT + 30))) == ["soon"]
        assert store.board.next_due(SERVED) == AT + 60
        assert names(one(store, claim(place, slots=2, at=AT + 61))) == ["later"]
        assert store.board.next_due(SERVED) is None


def a_run_that_waits_for_somebody_has_no_row(place: Place) -> None:
    """It costs a claim nothing; what wakes it makes it ready again."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "r")])
        one(store, claim(place))
        waits = (Waits(kind="signal", name="go"),)
        one(store, replace(place.end(RunDo.SUSPEND), result=b"", waits=waits))
        assert rows(store) == {} and found(store).waits == waits
        one(store, letter(place, "a", "other"))
        assert rows(store) == {}, "a message that it does not wait for"
        one(store, letter(place, "b", "go"))
        assert rows(store)["r"].due_at == WAKE_NOW
        assert one(store, claim(place)).runs[0].fence == 2


# --- claims -------------------------------------------------------------------------------------------------------


def the_foremost_runs_are_taken(place: Place) -> None:
    """By priority, then by age."""
    with place.open() as store:
        runs = [queued(place, f"r{n}", at=AT + n, priority=int(n == 4)) for n in range(6)]
        store.transact([place.join(), *reversed(runs)])
        assert names(one(store, claim(place, slots=3))) == ["r4", "r0", "r1"]
        assert names(one(store, claim(place, slots=9))) == ["r2", "r3", "r5"]


def competing_workers_take_each_run_once(place: Place) -> None:
    """Four at a time, over connections of their own; every run is taken with fence token 1."""
    with place.open() as store:
        store.transact([place.join(owner) for owner in range(100, 104)])
        store.transact([queued(place, f"r{n}", key=f"k{n % 5}") for n in range(60)])
        taken: list[Run] = []

        def take_all(owner: int) -> None:
            with place.open() as mine:
                misses = 0
                while misses < 20:
                    runs = one(mine, claim(place, owner, slots=3)).runs
                    misses = 0 if runs else misses + 1
                    taken.extend(runs)

        in_threads(take_all, range(100, 104))
        assert Counter(run.id for run in taken) == {f"r{n}": 1 for n in range(60)}
        assert {run.fence for run in taken} == {1} and {row.owner > 0 for row in rows(store).values()} == {True}


def limits_hold_for_competing_workers(place: Place) -> None:
    """Together they never have more than the queue, the worker and the key may."""
    cases: list[tuple[dict[str, Any], int]] = [
        ({"concurrency": 3}, 3),
        ({"per_worker": 1}, 4),
        ({"per_key": 1}, 2),
        ({"rate": 5}, 5),
    ]
    for limits, most in cases:
        here = place.fresh()
        with here.open() as store:
            store.transact([here.join(owner) for owner in range(100, 104)])
            store.transact([limit(here, **limits), *(queued(here, f"r{n}", key=f"k{n % 2}") for n in range(30))])
            took: list[str] = []

            def take(owner: int, here: Place = here, took: list[str] = took) -> None:
                with here.open() as mine:
                    for _ in range(8):
                        took.extend(names(one(mine, claim(here, owner, slots=2))))

            in_threads(take, range(100, 104))
            assert len(took) == len(set(took)) == most, f"{limits}: {len(took)} were taken"


def an_ended_run_makes_room(place: Place) -> None:
    """Limits count what is under way, and nothing else."""
    with place.open() as store:
        store.transact([place.join(), limit(place, concurrency=1), queued(place, "r"), queued(place, "s", at=AT + 1)])
        first = names(one(store, claim(place, slots=2)))
        assert len(first) == 1 and one(store, claim(place, STRANGER)).verdict is Verdict.ABSENT
        one(store, place.end(RunDo.SUCCEED, run_id=first[0]))
        assert len(names(one(store, claim(place, STRANGER)))) == 1


def a_rate_holds_for_every_span(place: Place) -> None:
    """Five starts in 60 s: also around the moment at which the first of them no longer count."""
    with place.open() as store:
        store.transact([place.join(), limit(place, rate=5, period_seconds=60.0)])
        store.transact([queued(place, f"r{n:02}", at=AT + n) for n in range(20)])
        took = [(at, len(names(one(store, claim(place, slots=9, at=AT + at))))) for at in (0, 1, 59, 60, 61, 119, 120)]
        assert took == [(0, 5), (1, 0), (59, 0), (60, 5), (61, 0), (119, 0), (120, 5)]


def limits_can_be_changed_and_listed(place: Place) -> None:
    """They hold from the next claim on; the same again changes nothing."""
    with place.open() as store:
        store.transact([place.join(), limit(place, rate=2), *(queued(place, f"r{n}") for n in range(9))])
        assert len(names(one(store, claim(place, slots=9)))) == 2
        one(store, limit(place, rate=2))
        assert one(store, claim(place, slots=9)).verdict is Verdict.ABSENT
        one(store, limit(place, rate=3))
        assert len(names(one(store, claim(place, slots=9)))) == 1, "what was started counts under the new limits too"
        one(store, limit(place, "other"))
        assert [(q.name, q.limits.rate) for q in store.board.find_queues()] == [("mails", 3), ("other", 0)]
        one(store, limit(place))
        assert len(names(one(store, claim(place, slots=9)))) == 6


def a_busy_key_hides_no_other(place: Place) -> None:
    """500 rows of one customer before the first of another."""
    with place.open() as store:
        busy = [
            queued(place, f"busy{n:03}", key="busy", at=AT + n / 1000, updated_at=AT + n / 1000) for n in range(500)
        ]
        store.transact([place.join(), *busy, queued(place, "quiet", key="quiet", at=AT + 5, updated_at=AT + 5)])
        assert set(names(one(store, claim(place, slots=2)))) == {"busy000", "quiet"}


def a_worker_with_one_slot_takes_keys_in_turn(place: Place) -> None:
    """What it took last is remembered by the worker, and tells whose turn it is."""
    with place.open() as store:
        store.transact([place.join(), *(queued(place, f"busy{n}", key="busy", at=AT + n) for n in range(9))])
        one(store, queued(place, "quiet", key="quiet", at=AT + 100))
        first = one(store, claim(place))
        one(store, place.end(run_id=names(first)[0]))
        second = one(store, claim(place, turns={("mails", first.runs[0].key): 1}))
        assert {run.key for run in (*first.runs, *second.runs)} == {"busy", "quiet"}


def a_claim_that_comes_again_is_made_once(place: Place) -> None:
    """After a commit of unknown outcome the same claim finds what it took, and takes no more."""
    with place.open() as store:
        store.transact([place.join(), *(queued(place, f"r{n}") for n in range(5))])
        write = claim(place, slots=2)
        took = set(names(one(store, write)))
        assert set(names(one(store, write, again=True))) == took
        assert sum(row.owner == ALIVE for row in rows(store).values()) == 2
        fresh = claim(place, slots=2)
        assert len(names(one(store, fresh, again=True))) == 2, "one that never arrived is made now"


# --- death, retries, leaving --------------------------------------------------------------------------------------


def a_dead_owners_run_is_freed_and_a_live_ones_is_not(place: Place) -> None:
    """Lapsed, or gone; then anybody may take it."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "r")])
        one(store, claim(place))
        free = FreeRun(run_id="r", vantage=seen_by(STRANGER), stamp=next(place.stamps))
        assert one(store, free).verdict is Verdict.BUSY and found(store).status is RunStatus.RUNNING
        gone = replace(free, vantage=seen_by(STRANGER, gone=[ALIVE]), stamp=next(place.stamps))
        assert one(store, gone).verdict is Verdict.DONE
        run = found(store)
        assert run.status is RunStatus.PENDING and (run.deaths, run.owner) == (1, 0) and rows(store)["r"].owner == 0
        assert one(store, place.append("late")).verdict is Verdict.FENCED
        assert one(store, claim(place, STRANGER)).runs[0].fence == 2


def a_run_that_keeps_killing_its_owners_is_quarantined(place: Place) -> None:
    """Three deaths in a row with nothing recorded between; a retry forgets them."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "r")])
        for fence in (1, 2, 3, 4):
            one(store, claim(place))
            if fence == 1:
                one(store, place.append("a"))
            if fence == 2:
                one(store, place.append("b", fence=2))
            write = FreeRun(run_id="r", vantage=seen_by(STRANGER, lease_now=500.0), stamp=next(place.stamps))
            one(store, write)
            deaths = found(store).deaths
            assert deaths == {1: 1, 2: 1, 3: 2, 4: 3}[fence], f"{deaths} after the {fence}. death"
        assert found(store).status is RunStatus.QUARANTINED and rows(store) == {}
        assert one(store, claim(place)).verdict is Verdict.ABSENT
        again = RetryRun(run_id="r", at=AT + 20, why="fixed", stamp=next(place.stamps))
        assert [one(store, again).verdict for _ in range(2)] == [Verdict.DONE, Verdict.DONE]
        assert found(store).deaths == 0 and names(one(store, claim(place))) == ["r"]
        assert one(store, replace(again, stamp=next(place.stamps))).verdict is Verdict.ILLEGAL


def of_runs_on_probation_one_is_taken_at_a_time(place: Place) -> None:
    """From the second death in a row on, beside any others, until its journal grows; the rest wait for a while."""
    with place.open() as store:
        store.transact([place.join(), *(queued(place, run_id, at=AT + n) for n, run_id in enumerate("abc"))])
        for _ in range(2):
            one(store, claim(place, slots=3))
            gone = seen_by(STRANGER, lease_now=500.0)
            frees = [FreeRun(run_id=r, vantage=gone, beside=2, stamp=next(place.stamps)) for r in "abc"]
            store.transact(frees)
        assert [found(store, run_id).deaths for run_id in "abc"] == [2, 2, 2]
        one(store, queued(place, "fresh", at=AT + 9))
        write = claim(place, slots=10)
        assert sorted(names(one(store, write))) == ["a", "fresh"], "one of them, and whatever else is ready"
        assert len(names(one(store, write, again=True))) == 2, "the same answer when it is asked again"
        assert names(one(store, claim(place, slots=10))) == [], "the others are out of the way for a while"
        later = AT + 10 + PROBATION_PAUSE_SECONDS
        assert names(one(store, claim(place, slots=10, at=later))) == [], "the first has not got further yet"
        assert names(one(store, claim(place, STRANGER, slots=10, at=later + 1))) == ["b"], "another worker takes one"
        assert one(store, place.append("s", run_id="a", fence=3)).verdict is Verdict.DONE
        assert names(one(store, claim(place, slots=10, at=later + 2))) == ["c"], "the first has got further"


def an_owner_leaves_unless_it_lives(place: Place) -> None:
    """A row that renewed its lease since it was looked at stays."""
    with place.open() as store:
        joined = place.join()
        store.transact([joined, place.join(STRANGER)])
        held = store.read_owner(ALIVE)
        assert held is not None
        renewed = place.join(lease_until=200.0)
        one(store, replace(renewed, owner=replace(renewed.owner, stamp=renewed.stamp)))
        seen = held.stamp or 999_999
        assert one(store, Leave(owner_id=ALIVE, seen=seen, stamp=next(place.stamps))).verdict is Verdict.BUSY
        assert {owner.id for owner in store.board.find_owners()} == {ALIVE, STRANGER}
        one(store, Leave(owner_id=ALIVE, stamp=next(place.stamps)))
        assert [owner.id for owner in store.board.find_owners()] == [STRANGER]


def what_a_worker_serves_is_told(place: Place) -> None:
    """So that others can tell what nobody does."""
    with place.open() as store:
        join = place.join()
        one(store, replace(join, owner=replace(join.owner, serves=SERVED)))
        owner = store.read_owner(ALIVE)
        assert owner is not None and owner.serves == SERVED
        assert [each.serves for each in store.board.find_owners()] == [SERVED]


# --- mail ---------------------------------------------------------------------------------------------------------


def letter(place: Place, message: str, name: str = "go", *, first: bool = False, run_id: str = "r") -> SendMail:
    """One message to a run."""
    mail = Mail(run_id=run_id, number=0, id=message, name=name, at=AT, value=b'"v"', who="ann")
    return SendMail(run_id=run_id, mail=mail, first_only=first, stamp=next(place.stamps))


def mail_is_kept_in_order_and_once(place: Place) -> None:
    """From several processes; the same id again is the same message; of `first_only` the first one counts."""
    with place.open() as store, place.open() as other:
        store.transact([place.join(), place.start()])
        store.transact([letter(place, "a"), letter(place, "b", "stop")])
        assert one(other, letter(place, "c")).verdict is Verdict.DONE
        assert one(other, letter(place, "a")).verdict is Verdict.DONE
        assert one(store, letter(place, "d", first=True)).verdict is Verdict.EXISTS
        assert one(store, letter(place, "d", "once", first=True)).verdict is Verdict.DONE
        numbers = [(m.number, m.id, m.name) for m in store.board.read_mail("r")]
        assert numbers == [(1, "a", "go"), (2, "b", "stop"), (3, "c", "go"), (4, "d", "once")]
        assert store.board.read_mail("r")[0].value == b'"v"' and found(store).mail == 4


def mail_to_nobody_is_refused(place: Place) -> None:
    """A run that is not there, or has ended."""
    with place.open() as store:
        store.transact([place.join(), place.start(), place.end()])
        assert one(store, letter(place, "a")).verdict is Verdict.ENDED
        assert one(store, letter(place, "a", run_id="no")).verdict is Verdict.MISSING
        assert store.board.read_mail("r") == store.board.read_mail("no") == []


def mail_that_came_meanwhile_wakes_the_run_as_it_suspends(place: Place) -> None:
    """No message falls between a run's last look and its end."""
    with place.open() as store:
        store.transact([place.join(), queued(place, "r")])
        one(store, claim(place))
        one(store, letter(place, "a"))
        waits = (Waits(kind="signal", name="go"),)
        one(store, replace(place.end(RunDo.SUSPEND), result=b"", waits=waits, mail_seen=0))
        assert found(store).status is RunStatus.WAITING and rows(store)["r"].due_at == WAKE_NOW
        one(store, claim(place))
        one(store, replace(place.end(RunDo.SUSPEND, fence=2), result=b"", waits=waits, mail_seen=1))
        assert rows(store) == {}


def _checks() -> Iterator[Check]:
    for name, value in globals().items():
        if callable(value) and getattr(value, "__annotations__", {}) == {"place": "Place", "return": "None"}:
            assert value.__doc__, name
            yield cast("Check", value)


DESK_CHECKS: tuple[Check, ...] = tuple(_checks())
"""Every check of this module, in order."""
