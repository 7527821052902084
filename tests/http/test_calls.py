"""Calls recorded by what is asked: read again in any order, never made twice, and never made off the recorded path."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import (
    Budget,
    BudgetExceeded,
    Diverged,
    RunWaiting,
    Surefoot,
    UsageError,
    effect,
    keyed,
    opaque,
    step,
    workflow,
)
from surefoot.core.calls import Usage
from surefoot.runtime import calls
from surefoot.runtime.calls import Failed, Recorded, Slot, scope
from tests.runtime.support import Crash, Ledger, restart, slots


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    restart()


class Model:
    """Answers each question with a number of its own; what it answered was paid for."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def answer(self, question: str) -> bytes:
        self.paid.append(question)
        return f"{question} {len(self.paid)}".encode()


def ask(model: Model, question: str) -> str:
    place = calls.place("a model call")
    assert place is not None
    asked = {"kind": "model", "name": "gpt/4", "fingerprint": question.encode(), "preview": question}
    return calls.record(place, **asked, body=lambda: model.answer(question)).decode()


async def ask_async(model: Model, question: str) -> str:
    place = calls.place("a model call")
    assert place is not None

    async def body() -> bytes:
        await asyncio.sleep(0)
        return model.answer(question)

    name, fingerprint = "gpt/4", question.encode()
    got = await calls.record_async(place, kind="model", name=name, fingerprint=fingerprint, preview=question, body=body)
    return got.decode()


def twice(db: Path, make: Callable[[bool], Any]) -> list[Any]:
    """Run what `make(replayed)` gives, as it happens and again after a crash at its end."""
    seen: list[Any] = []

    def run(body: Callable[[], Any], replayed: bool) -> None:
        restart()

        @workflow(name="agent")
        def agent() -> None:
            seen.append(body())
            if not replayed:
                raise Crash

        with Surefoot(db) as sf:
            try:
                sf.run(agent, id="r")
            except Crash:
                pass

    run(make(False), False)
    run(make(True), True)
    return seen


def test_an_answer_is_paid_for_once_and_found_again_in_any_order(db: Path) -> None:
    model = Model()

    def make(replayed: bool) -> Callable[[], Any]:
        questions = ["a", "b", "a", "c"]
        return lambda: sorted(ask(model, q) for q in (questions[::-1] if replayed else questions))

    first, again = twice(db, make)
    assert first == again
    assert model.paid == ["a", "b", "a", "c"]


def test_slots_are_scope_name_digest_and_occurrence(db: Path) -> None:
    model = Model()

    @workflow
    def agent() -> None:
        ask(model, "a")
        for _ in range(2):
            with scope("planner"):
                ask(model, "a")
                ask(model, "a")

    with Surefoot(db) as sf:
        sf.run(agent, id="r")
        found = slots(sf, "r")
    digest = found[0].rpartition(":")[2]
    name = f"call:gpt∕4:{digest}"
    assert found == [
        f"@/{name}",
        f"@/planner/{name}",
        f"@/planner/{name}#1",
        f"@/planner#1/{name}",
        f"@/planner#1/{name}#1",
    ]


def test_a_call_off_the_recorded_path_is_not_made(db: Path) -> None:
    model = Model()

    def make(replayed: bool) -> Callable[[], Any]:
        return lambda: [ask(model, q) for q in (["a", "x", "b"] if replayed else ["a", "b"])]

    with pytest.raises(Diverged, match=r"call @/call:gpt∕4:\w+\(x\)"):
        twice(db, make)
    assert model.paid == ["a", "b"]


def test_an_effect_is_not_sent_while_a_recorded_call_is_unread(db: Path) -> None:
    model, ledger = Model(), Ledger()

    @effect(keyed(timedelta(hours=1)), identity="mail:1", name="mail")
    def mail(attempt: Any) -> None:
        ledger.post(attempt.key, "mail")

    def make(replayed: bool) -> Callable[[], Any]:
        def body() -> None:
            ask(model, "a")
            if replayed:
                mail()
            else:
                ask(model, "b")

        return body

    with pytest.raises(Diverged, match="an effect would be sent"):
        twice(db, make)
    assert ledger.things == []


def test_a_swallowed_divergence_stops_every_later_call(db: Path) -> None:
    model = Model()

    def make(replayed: bool) -> Callable[[], Any]:
        def body() -> None:
            ask(model, "a")
            ask(model, "b")

        def changed() -> None:
            for question in ("x", "y"):
                try:
                    ask(model, question)
                except BaseException:
                    pass

        return changed if replayed else body

    with pytest.raises(Diverged):
        twice(db, make)
    assert model.paid == ["a", "b"]


async def test_tasks_of_a_framework_may_finish_in_any_order(db: Path) -> None:
    """Sixty-four calls in flight in one scope, started in another order on replay, with waits that a run refuses."""
    model, got = Model(), []

    def agent_of(order: list[int], crash: bool) -> Any:
        restart()

        @workflow(name="agent")
        async def agent() -> None:
            async with scope("crew"):
                tasks = [asyncio.ensure_future(ask_async(model, f"q{n}")) for n in order]
                pending = set(tasks)
                while pending:
                    _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                got.append(sorted(task.result() for task in tasks))
            if crash:
                raise Crash

        return agent

    with Surefoot(db) as sf, pytest.raises(Crash):
        await sf.run(agent_of(list(range(64)), True), id="r")
    with Surefoot(db) as sf:
        await sf.run(agent_of(list(range(64))[::-1], False), id="r")
    assert got[0] == got[1] and len(model.paid) == 64


async def test_a_new_call_waits_until_those_beside_it_have_read_theirs(db: Path) -> None:
    model = Model()

    def agent_of(replayed: bool) -> Any:
        restart()

        @workflow(name="agent")
        async def agent() -> None:
            async def slow() -> None:
                if replayed:
                    await asyncio.sleep(0.1)
                for n in range(3):
                    await ask_async(model, f"slow{n}")

            async def quick() -> None:
                if not replayed:
                    await asyncio.sleep(60)
                await ask_async(model, "quick")

            async with scope("crew"):
                tasks = [asyncio.ensure_future(quick()), asyncio.ensure_future(slow())]
                await tasks[1]
                if not replayed:
                    raise Crash
                await tasks[0]

        return agent

    with Surefoot(db) as sf, pytest.raises(Crash):
        await sf.run(agent_of(False), id="r")
    with Surefoot(db) as sf:
        await sf.run(agent_of(True), id="r")
    assert model.paid == ["slow0", "slow1", "slow2", "quick"]


def test_threads_of_a_framework_stay_in_its_call_scope(db: Path) -> None:
    import contextvars

    model = Model()

    def body() -> Any:
        got: list[str] = []
        with scope("crew"):
            threads = [
                threading.Thread(
                    target=contextvars.copy_context().run, args=(lambda n=n: got.append(ask(model, f"q{n % 4}")),)
                )
                for n in range(16)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return sorted(got)

    first, again = twice(db, lambda replayed: body)
    assert first == again and len(model.paid) == 16


def test_a_thread_that_lost_its_run_is_told(db: Path) -> None:
    seen: list[Any] = []

    @workflow
    def agent() -> None:
        def work() -> None:
            try:
                calls.place("a model call")
            except UsageError as error:
                seen.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    with Surefoot(db) as sf:
        sf.run(agent, id="r")
    assert "does not know of any run" in seen[0]
    assert calls.place("a model call") is None


def test_a_call_in_a_body_is_plain_but_counted(db: Path) -> None:
    model = Model()

    @step
    def assess() -> str:
        place = calls.place("a model call")
        assert place is not None and place.plain
        found = calls.begin(place, kind="model", name="m", fingerprint=b"q", preview="q")
        assert isinstance(found, Slot)
        found.commit(model.answer("q"), usage=Usage(input_tokens=6, output_tokens=5))
        return "done"

    @workflow(budget=Budget(tokens=10))
    def agent() -> None:
        assess()
        assess()

    with Surefoot(db) as sf, pytest.raises(BudgetExceeded):
        sf.run(agent, id="r")
    assert model.paid == ["q"]


def test_tokens_and_money_of_calls_count_against_the_budget_over_restarts(db: Path) -> None:
    model = Model()

    def agent_of(crash: bool) -> Any:
        restart()

        @workflow(name="agent", budget=Budget(money=Decimal("0.25")))
        def agent() -> None:
            for n in range(9):
                place = calls.place("a model call")
                assert place is not None
                found = calls.begin(place, kind="model", name="m", fingerprint=b"%d" % n, preview="")
                if isinstance(found, Slot):
                    found.commit(
                        model.answer(f"q{n}"), usage=Usage(input_tokens=1, output_tokens=1), money=Decimal("0.1")
                    )
                if n == 1 and crash:
                    raise Crash

        return agent

    with Surefoot(db) as sf, pytest.raises(Crash):
        sf.run(agent_of(True), id="r")
    with Surefoot(db) as sf, pytest.raises(BudgetExceeded, match="money"):
        sf.run(agent_of(False), id="r")
    assert model.paid == ["q0", "q1", "q2"]


def test_what_waits_for_a_person_stops_later_calls_and_the_run_even_if_it_was_swallowed(db: Path) -> None:
    model = Model()

    @effect(opaque(), identity="pay:1")
    def pay(attempt: Any) -> None:
        raise OSError("reset")

    @workflow
    def agent() -> str:
        with scope("crew"):
            for act in (lambda: ask(model, "a"), pay, lambda: ask(model, "b")):
                try:
                    act()
                except BaseException:
                    pass  # as frameworks do, which turn it into an answer of the tool
        return "finished"

    with Surefoot(db) as sf, pytest.raises(RunWaiting, match="in doubt"):
        sf.run(agent, id="r")
    assert model.paid == ["a"]


def fail(model: Model, question: str) -> bytes:
    """Ask once: what is recorded, or an error, which is noted."""
    place = calls.place("a model call")
    assert place is not None
    found = calls.begin(place, kind="http", name="m", fingerprint=question.encode(), preview=question, tries=True)
    match found:
        case Slot():
            model.answer(question)
            found.fail(b"503")
            return b"live 503"
        case Failed(answer):
            return b"replayed " + answer
        case Recorded(answer, _):
            return answer


@pytest.mark.parametrize("went_on", [True, False])
def test_errors_are_replayed_behind_the_frontier_and_asked_anew_at_it(db: Path, went_on: bool) -> None:
    model = Model()

    def body() -> Any:
        errors = [fail(model, "primary"), fail(model, "primary")]
        return errors, ask(model, "backup") if went_on else None

    first, again = twice(db, lambda replayed: body)
    assert first[0] == [b"live 503", b"live 503"]
    if went_on:
        assert again == ([b"replayed 503", b"replayed 503"], first[1])
        assert model.paid == ["primary", "primary", "backup"]
    else:
        assert again[0] == [b"live 503", b"live 503"]
        assert model.paid == ["primary"] * 4


def test_the_ids_of_recorded_answers_are_known(db: Path) -> None:
    def make(replayed: bool) -> Callable[[], Any]:
        def body() -> Any:
            place = calls.place("a model call")
            assert place is not None
            found = calls.begin(place, kind="http", name="m", fingerprint=b"q", preview="")
            if isinstance(found, Slot):
                found.commit(b'{"tool_calls": [{"id": "call_1"}]}')
            return calls.knows(place, "call_1"), calls.knows(place, "call_2")

        return body

    assert twice(db, make) == [(True, False)] * 2


async def test_calls_of_a_branch_that_lost_are_not_missed(db: Path) -> None:
    """On replay the loser is cancelled before it has asked again for all that it had asked for."""
    model, ledger = Model(), Ledger()
    attempts: list[str] = []

    @effect(keyed(timedelta(hours=1)), identity="mail:2", name="mail2")
    def mail(attempt: Any) -> None:
        ledger.post(attempt.key, "mail")

    def agent_of(crashes: bool) -> Any:
        restart()

        @workflow(name="agent")
        async def agent() -> int:
            async def quick() -> str:
                await ask_async(model, "quick")
                if crashes:
                    await asyncio.sleep(0.3)  # live, the other asks first
                return "quick"

            async def slow() -> str:
                if not crashes:
                    await asyncio.sleep(0.01)
                await ask_async(model, "slow")
                await surefoot.sleep(60)
                return "slow"

            winner, _ = await surefoot.first(quick(), slow())
            attempts.append("crash" if crashes else "again")
            if crashes:
                raise Crash
            mail()
            return winner

        return agent

    with Surefoot(db) as sf, pytest.raises(Crash):
        await sf.run(agent_of(True), id="r")
    assert model.paid == ["quick", "slow"]
    with Surefoot(db) as sf:
        assert await sf.run(agent_of(False), id="r") == 0
    assert model.paid == ["quick", "slow"] and ledger.things == ["mail"]


async def test_a_call_that_a_recorded_timeout_ended_is_not_made_on_replay(db: Path) -> None:
    model = Model()
    began: list[str] = []

    def agent_of(crashes: bool) -> Any:
        restart()

        @workflow(name="agent")
        async def agent() -> str:
            async def body() -> bytes:
                began.append("slow")
                await asyncio.sleep(30)
                return b"late"

            place = calls.place("a model call")
            assert place is not None
            try:
                async with surefoot.timeout(0.05):
                    await calls.record_async(
                        place, kind="model", name="m", fingerprint=b"slow", preview="slow", body=body
                    )
            except TimeoutError:
                pass
            answer = await ask_async(model, "next")
            if crashes:
                raise Crash
            return answer

        return agent

    with Surefoot(db) as sf, pytest.raises(Crash):
        await sf.run(agent_of(True), id="r")
    with Surefoot(db) as sf:
        assert await sf.run(agent_of(False), id="r") == "next 1"
    assert began == ["slow"] and model.paid == ["next"]
