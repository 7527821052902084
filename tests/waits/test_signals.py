"""Messages: kept when they are early, each read once, in the order sent, whoever else reads or sends meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import surefoot
from surefoot import Surefoot, UsageError, ValueRefused, step, workflow
from surefoot.core.errors import Diverged, RunEnded, RunNotFound
from surefoot.core.run import RunStatus
from surefoot.runtime.session import Session
from tests.runtime.support import restart
from tests.waits.support import GIVE_UP_SECONDS, closed_after, read_messages, until, waits, worker


@workflow
def nothing() -> None:
    return None


@step
def note(value: Any) -> Any:
    return value


def define() -> Any:
    @workflow(name="listener")
    def listener(count: int) -> list[Any]:
        return [note(surefoot.wait_for("go")) for _ in range(count)]

    return listener


def test_early_messages_are_kept_and_read_in_the_order_sent(url: str) -> None:
    listener = define()
    with Surefoot(url) as sf:
        sf.start(listener, 3, id="r", queue="default")
        for number in range(3):
            assert sf.signal("r", "go", number)
        sf.signal("r", "other", "never read")
    with worker(url) as sf:
        assert sf.start(listener, 3, id="r", queue="default").result(30) == [0, 1, 2]
        assert read_messages(sf, "r") == [0, 1, 2]


def test_each_wait_takes_the_next_message_while_they_come_one_by_one(url: str) -> None:
    listener = define()
    with worker(url) as sf:
        handle = sf.start(listener, 3, id="r", queue="default")
        for number in range(3):
            until(lambda: waits(sf, "r"), "the wait")
            sf.signal("r", "go", {"n": number})
        assert handle.result(30) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert read_messages(sf, "r") == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_branches_that_wait_for_one_name_get_a_message_each(url: str) -> None:
    @workflow
    def threads() -> list[int]:
        return surefoot.gather(*[lambda: surefoot.wait_for("go", int) for _ in range(4)])

    @workflow
    async def tasks() -> list[int]:
        return list(await surefoot.gather(*[surefoot.wait_for("go", int) for _ in range(4)]))

    with worker(url) as sf:

        def check(flow: Any, run_id: str) -> None:
            handle = sf.start(flow, id=run_id, queue="default")
            for number in range(4):
                until(lambda: waits(sf, run_id), "the wait")
                sf.signal(run_id, "go", number)
            assert sorted(handle.result(30)) == [0, 1, 2, 3]
            assert sorted(read_messages(sf, run_id)) == [0, 1, 2, 3]

        check(threads, "threads")
        check(tasks, "tasks")


def test_a_branch_that_got_its_message_does_not_hide_the_other_that_waits_for_the_same_name(db: str) -> None:
    """Both wait for one name; one gets its message and waits for another name: the first name is still waited for."""

    @workflow
    async def flow() -> list[Any]:
        async def twice() -> list[Any]:
            return [await surefoot.wait_for("go"), await surefoot.wait_for("never")]

        return [await surefoot.gather(twice(), surefoot.wait_for("go"))]

    with worker(db) as sf:
        sf.start(flow, id="r", queue="default")
        until(lambda: waits(sf, "r"))
        sf.signal("r", "go", 1)
        run = until(lambda: (run := waits(sf, "r")) and len(run.waits) == 2 and run.mail and run)
        assert sorted(wait.name for wait in run.waits) == ["go", "never"]
        sf.signal("r", "go", 2)
        until(lambda: read_messages(sf, "r") == [1, 2])


def test_a_message_that_a_later_branch_has_read_is_not_read_again_by_an_earlier_one(db: str) -> None:
    """On replay the earlier branch comes first, and the other's record is yet to be reached."""

    @workflow
    async def flow() -> list[Any]:
        async def after_start() -> Any:
            await surefoot.wait_for("start")
            return await surefoot.wait_for("go")

        return list(await surefoot.gather(after_start(), surefoot.wait_for("go")))

    with worker(db) as sf:
        handle = sf.start(flow, id="r", queue="default")
        sf.signal("r", "go", 1)
        until(lambda: (run := waits(sf, "r")) and [wait.name for wait in run.waits] == ["start"])
        sf.signal("r", "start")
        until(lambda: (run := waits(sf, "r")) and [wait.name for wait in run.waits] == ["go"])
        sf.signal("r", "go", 2)
        assert handle.result(30) == [2, 1]


def test_a_thread_that_gets_the_message_leaves_the_other_waiting_for_the_next(db: str) -> None:
    """One thread has looked in vain and stopped; the other then reads a message of that name: the first still waits."""
    with Surefoot(db) as sf:

        @step
        def send() -> None:
            (session,) = sf._runner._sessions
            until(lambda: session.waits, "the other's wait")
            sf.signal("r", "go", 1, message="m")

        def send_and_wait() -> Any:
            send()
            return surefoot.wait_for("go")

        @workflow
        def flow() -> list[Any]:
            return surefoot.gather(lambda: surefoot.wait_for("go"), send_and_wait)

        with sf.worker([flow]):
            handle = sf.start(flow, id="r", queue="default")
            run = until(lambda: (run := waits(sf, "r")) and read_messages(sf, "r") == [1] and run)
            assert [wait.name for wait in run.waits] == ["go"]
            sf.signal("r", "go", 2)
            assert handle.result(30) == [2, 1]


def test_the_same_message_id_is_one_message_and_another_value_under_it_is_refused(url: str) -> None:
    listener = define()
    with worker(url) as sf:
        handle = sf.start(listener, 2, id="r", queue="default")
        assert sf.signal("r", "go", 1, message="m") and sf.signal("r", "go", 1, message="m")
        with pytest.raises(UsageError, match="was sent to run 'r' before, with another name or value"):
            sf.signal("r", "go", 2, message="m")
        until(lambda: waits(sf, "r"))
        sf.signal("r", "go", 3, message="n")
        assert handle.result(30) == [1, 3]
        assert sf.signal("r", "go", 1, message="m"), "also after the end it is the message that was sent"


def test_of_64_threads_on_two_stores_the_first_wins_and_knows_it(url: str) -> None:
    listener = define()
    with Surefoot(url) as one, Surefoot(url) as two:
        one.start(listener, 1, id="r", queue="default")
        won: list[int] = []
        gate = threading.Barrier(64)

        def send(number: int) -> None:
            gate.wait()
            if (one, two)[number % 2].signal("r", "go", number, first=True):
                won.append(number)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert [mail.value for mail in one.store.board.read_mail("r")] == [str(won[0]).encode()]
    with worker(url) as sf:
        assert sf.start(listener, 1, id="r", queue="default").result(30) == won
        assert not sf.store.board.read_mail("r")[1:]


def test_a_message_that_comes_between_the_last_look_and_the_giving_back_wakes_the_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = define()
    missed: list[int] = []
    with Surefoot(url) as sender, worker(url) as sf:
        stop = Session.stop

        def late(session: Session, error: BaseException, branch: Any) -> BaseException:
            if type(error).__name__ == "Suspend":
                contextvars.Context().run(sender.signal, "r", "go", len(missed))
                missed.append(1)
            return stop(session, error, branch)

        monkeypatch.setattr(Session, "stop", late)
        assert sf.start(listener, 5, id="r", queue="default").result(30) == [0, 1, 2, 3, 4]
        assert len(missed) == 5


def test_a_message_for_an_unknown_or_ended_run_is_a_clear_error_and_is_not_kept(url: str) -> None:
    with Surefoot(url) as sf:
        with pytest.raises(RunNotFound, match="no run 'r' in this store"):
            sf.signal("r", "go")
        sf.run(nothing, id="r")
        with pytest.raises(RunEnded, match="run 'r' has succeeded; it reads no message any more"):
            sf.signal("r", "go")
        assert sf.store.board.read_mail("r") == []
        for name in ("approval:x", "a/b", "", "x\n"):
            with pytest.raises(UsageError):
                sf.signal("r", name)


def test_what_cannot_be_sent_is_refused_and_leaves_the_run_alive(db: str) -> None:
    listener = define()
    with worker(db) as sf:
        handle = sf.start(listener, 1, id="r", queue="default")
        until(lambda: waits(sf, "r"))
        for value in (object(), float("nan"), {"a": {1, 2}}, b"bytes"):
            with pytest.raises(ValueRefused, match=r"signal 'go'.*send JSON's own types"):
                sf.signal("r", "go", value)
        assert sf.store.board.read_mail("r") == [] and sf.get("r").status == "waiting"
        sf.signal("r", "go", "fine")
        assert handle.result(30) == ["fine"]


def test_a_message_that_does_not_fit_the_type_stays_unread_and_the_run_says_so(url: str) -> None:
    @workflow
    def typed() -> list[int]:
        return [surefoot.wait_for("go", int), surefoot.wait_for("go", int)]

    with worker(url) as sf:
        handle = sf.start(typed, id="r", queue="default")
        sf.signal("r", "go", "seven", message="wrong")
        run = until(lambda: (run := waits(sf, "r")) and "wrong" in run.reason and run)
        assert "message 'wrong' does not fit" in run.reason and "`int`" in run.waits[0].detail
        sf.signal("r", "go", 7)
        sf.signal("r", "go", 8)
        assert handle.result(30) == [7, 8]
        assert read_messages(sf, "r") == [7, 8]


@dataclass
class Order:
    number: str
    amount: Decimal


class Answer(msgspec.Struct):
    yes: bool


def test_an_object_is_sent_as_its_fields_and_read_back_by_the_type_of_the_wait(url: str) -> None:
    @workflow
    def typed() -> str:
        return f"{surefoot.wait_for('order', Order)} {surefoot.wait_for('order', Answer)} {surefoot.wait_for('order')}"

    sent = Order("o-1", Decimal("1.50")), Answer(yes=True), Order("o-2", Decimal(2))
    with worker(url) as sf:
        handle = sf.start(typed, id="r", queue="default")
        for number, value in enumerate((*sent, *sent)):
            assert sf.signal("r", "order", value, message=f"m{number % len(sent)}")
        assert handle.result(30) == f"{sent[0]} {sent[1]} {{'number': 'o-2', 'amount': '2'}}"


def test_code_that_can_read_it_gets_the_message_that_did_not_fit(db: str) -> None:
    @workflow(name="typed")
    def typed() -> int:
        return surefoot.wait_for("go", int)

    with worker(db) as sf:
        sf.start(typed, id="r", queue="default")
        sf.signal("r", "go", "seven")
        until(lambda: (run := waits(sf, "r")) and "does not fit" in run.reason)
    restart()

    @workflow(name="typed")
    def wider() -> int | str:
        return surefoot.wait_for("go", int | str)

    with Surefoot(db) as sf:
        assert sf.run(wider, id="r") == "seven"


def test_a_timeout_is_recorded_so_that_a_later_message_changes_nothing(url: str) -> None:
    @workflow
    def flow() -> list[str]:
        told: list[str] = []
        try:
            surefoot.wait_for("go", within=0.05)
        except TimeoutError as late:
            told.append(str(late))
        note("timed out")
        told.append(surefoot.wait_for("go"))
        return told

    with worker(url) as sf:
        handle = sf.start(flow, id="r", queue="default")
        until(lambda: (run := waits(sf, "r")) and not run.waits[0].until, "the second wait")
        sf.signal("r", "go", "late")
        assert handle.result(30) == ["no signal 'go' came in time, within 0.05 s", "late"]


def test_a_renamed_wait_diverges_instead_of_waiting_for_ever(db: str) -> None:
    def define(name: str, *, patched: bool = False) -> Any:
        @workflow(name="renamed")
        def flow() -> Any:
            if patched and not surefoot.patched("new name"):
                first = surefoot.wait_for("go")
            else:
                first = surefoot.wait_for(name)
            return [first, surefoot.wait_for("end")]

        return flow

    old = define("go")
    with worker(db) as sf:
        sf.start(old, id="r", queue="default")
        sf.signal("r", "go", 1)
        until(lambda: (run := waits(sf, "r")) and run.waits[0].name == "end")
    restart()
    with Surefoot(db) as sf, closed_after(sf):
        with pytest.raises(Diverged, match="a message would be waited for while recorded entries"):
            sf.run(define("went"), id="r")
        assert sf.get("r").status == "diverged"
    restart()
    with Surefoot(db) as sf:
        sf.signal("r", "end", 2)
        assert sf.run(define("went", patched=True), id="r") == [1, 2]


def test_a_workflow_cannot_send_where_a_replay_would_send_again(db: str) -> None:
    with Surefoot(db) as sf:

        @workflow
        def flow() -> None:
            sf.signal("other", "go")

        with pytest.raises(UsageError, match="call it inside a step"):
            sf.run(flow, id="r")


def test_sending_needs_no_lease_and_leaves_no_owner(db: str) -> None:
    listener = define()
    with Surefoot(db) as sf:
        sf.start(listener, 1, id="r", queue="default")
        sf.signal("r", "go", 1)
        assert sf.store.board.find_owners() == []


async def test_first_of_several_waits_reads_one_message_and_leaves_the_others(db: str) -> None:
    @workflow
    async def flow(count: int) -> list[Any]:
        return [
            list(await surefoot.first(surefoot.wait_for("a"), surefoot.wait_for("b"), surefoot.wait_for("c")))
            for _ in range(count)
        ]

    async with Surefoot(db) as sf:
        sf.start(flow, 4, id="r", queue="default")
        for name, value in (("c", 3), ("b", 2), ("a", 1), ("a", 4)):
            sf.signal("r", name, value)
        assert await asyncio.wait_for(sf.run(flow, 4, id="r"), GIVE_UP_SECONDS) == [[0, 1], [0, 4], [1, 2], [2, 3]]
        assert sorted(read_messages(sf, "r")) == [1, 2, 3, 4]


async def test_a_wait_that_had_read_before_a_crash_wins_over_one_whose_message_came_later(db: str) -> None:
    """The message was recorded, the winner was not: on replay it must not be lost to a branch that stands before it."""
    from surefoot.core.commands import Record
    from surefoot.testing.crash import SimulatedCrash, abandon, crash_at

    @workflow
    async def flow() -> Any:
        one = await surefoot.first(surefoot.wait_for("a"), surefoot.wait_for("b"))
        return [list(one), await surefoot.wait_for("a")]

    sf = Surefoot(db)
    sf.start(flow, id="r", queue="default")
    sf.signal("r", "b", 2)
    driver = crash_at(2, kind=Record).drive(sf)
    with pytest.raises(SimulatedCrash):
        await sf.run(flow, id="r")
    assert driver.struck == "Record"
    sf.engine.committer.flush()
    assert read_messages(sf, "r") == [2]
    abandon(sf)
    async with Surefoot(db) as sf:
        sf.signal("r", "a", 1)
        assert await asyncio.wait_for(sf.run(flow, id="r"), GIVE_UP_SECONDS) == [[1, 2], 1]


async def test_a_loser_of_first_has_read_nothing_after_a_replay(db: str) -> None:
    """A sleep won; the message of the wait that lost comes later, while the run is replayed again and again."""

    @workflow
    async def flow() -> Any:
        index, _ = await surefoot.first(surefoot.sleep(0.01), surefoot.wait_for("go"))
        return [index, await surefoot.wait_for("go"), await surefoot.wait_for("end")]

    async with Surefoot(db) as sf, sf.worker():
        handle = sf.start(flow, id="r", queue="default")
        await asyncio.to_thread(until, lambda: (run := waits(sf, "r")) and [w.name for w in run.waits] == ["go"])
        sf.signal("r", "go", 1)
        await asyncio.to_thread(until, lambda: (run := waits(sf, "r")) and [w.name for w in run.waits] == ["end"])
        sf.signal("r", "end", 2)
        assert await handle == [0, 1, 2]
        assert sf.store.find_run("r").status is RunStatus.SUCCEEDED  # type: ignore[union-attr]


async def test_who_came_first_stays_so_although_another_would_be_first_on_replay(db: str) -> None:
    """The sleep won; on replay a message lies there that the other wait, which stands before it, would read at once."""

    @workflow
    async def flow() -> Any:
        index, _ = await surefoot.first(surefoot.wait_for("go"), surefoot.sleep(0.01))
        return [index, await surefoot.wait_for("go")]

    async with Surefoot(db) as sf, sf.worker():
        handle = sf.start(flow, id="r", queue="default")
        await asyncio.to_thread(until, lambda: (run := waits(sf, "r")) and not run.wake_at and run)
        sf.signal("r", "go", 1)
        assert await asyncio.wait_for(handle, GIVE_UP_SECONDS) == [1, 1]
