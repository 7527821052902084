"""Tools that any framework calls: what it sees, under which identity it is recorded, and how doubt stops a run."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pydantic
import pytest

from surefoot import (
    Diverged,
    Refused,
    RunWaiting,
    Surefoot,
    UsageError,
    keyed,
    opaque,
    step,
    tool,
    workflow,
)
from surefoot.core.journal import EntryKind
from surefoot.effects import effect as effects
from surefoot.integrations.tool import (
    Asks,
    StatusUnknown,
    ToolInDoubt,
    attempt,
    gate,
    gate_async,
    scope,
    tool_call_id,
)
from surefoot.runtime import calls

KEYED = keyed(timedelta(hours=24))
sent: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@pytest.fixture
def sf(tmp_path: Path) -> Iterator[Surefoot]:
    with Surefoot(str(tmp_path / "agents.db")) as opened:
        yield opened


@tool(KEYED)
def charge(attempt: Any, order: str, cents: int = 100) -> dict[str, str]:
    """Charge an order."""
    sent.append((order, cents, attempt.key))
    return {"charged": order}


@tool(opaque())
def lose(what: str) -> str:
    """Send something whose answer never comes."""
    sent.append(what)
    raise TimeoutError("no answer")


@tool(read_only=True)
def draw() -> int:
    """Another number each time."""
    sent.append("draw")
    return len(sent)


def model_answers(*ids: str, asked: str = "") -> None:
    """The model's recorded answer, which asks for tool calls of these ids."""
    place = calls.place("the model")
    assert place is not None
    answer = json.dumps({"tool_calls": [{"id": id} for id in ids]}).encode()
    calls.record(place, kind="model", name="m", fingerprint=asked.encode(), preview="", body=lambda: answer)


def slots(sf: Surefoot, run: str = "run") -> list[str]:
    """The journal's slots of effects and steps, without model calls."""
    read = sf.engine.store.read_run(run)
    assert read is not None
    return list(dict.fromkeys(e.slot for e in read[1] if "/call:" not in e.slot))


# --- what is seen -------------------------------------------------------------------------------------------------


def test_a_framework_sees_the_users_parameters_and_neither_attempt_nor_a_way_behind_the_gate() -> None:
    assert str(inspect.signature(charge)) == "(order: str, cents: int = 100) -> dict[str, str]"
    assert (charge.__name__, charge.__doc__, inspect.isfunction(charge)) == ("charge", "Charge an order.", True)
    assert inspect.unwrap(charge) is charge
    schema = pydantic.TypeAdapter(pydantic.validate_call(charge)).json_schema()
    assert set(schema["properties"]) == {"order", "cents"}
    assert "attempt" not in charge.__annotations__


def test_an_async_tool_is_an_async_function() -> None:
    @tool(read_only=True)
    async def look(article: str) -> int:
        return 1

    assert inspect.iscoroutinefunction(look)
    assert list(inspect.signature(look).parameters) == ["article"]


@pytest.mark.parametrize("options", [{}, {"contract": KEYED, "read_only": True}])
def test_a_tool_must_say_what_a_repeat_of_it_does(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="say what a repeat does"):
        tool(**options)(lambda order: None)


def test_a_tool_without_attempt_asks_for_the_key_where_it_needs_it(sf: Surefoot) -> None:
    @tool(KEYED)
    def pay(order: str) -> str:
        return attempt().key

    @workflow
    def run() -> str:
        return pay("7")

    assert len(sf.run(run, id="run")) == 36
    with pytest.raises(UsageError, match="outside a tool's body"):
        attempt()


# --- under which identity -----------------------------------------------------------------------------------------


def test_a_call_is_known_by_the_id_that_a_recorded_answer_of_the_model_holds(sf: Surefoot) -> None:
    @workflow
    def run() -> None:
        with scope("agent"):
            model_answers("call_1", "call_2")
            for id in ("call_2", "call_1"):
                with tool_call_id(id):
                    charge("7")

    sf.run(run, id="run")
    assert slots(sf) == ["@/agent[call_2]/charge", "@/agent[call_1]/charge"]
    assert len({key for _, _, key in sent}) == 2


def test_an_id_that_no_recorded_answer_holds_is_not_relied_on(sf: Surefoot) -> None:
    ids = iter(["random_1", "random_2"])

    @workflow
    def run() -> None:
        with tool_call_id(next(ids)):
            charge("7")
        if len(sent) == 1:
            sent.append("died")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run(run, id="run")
    sf.run(run, id="run")
    assert [entry for entry in sent if entry != "died"] == sent[:1]
    assert "random" not in "".join(slots(sf))


def test_a_call_that_was_recorded_by_its_arguments_stays_so_when_its_id_is_known_later(sf: Surefoot) -> None:
    lives: list[int] = []

    @workflow
    def run() -> None:
        lives.append(1)
        if len(lives) > 1:
            model_answers("call_1")
        with tool_call_id("call_1"):
            charge("7")
        if len(lives) == 1:
            model_answers("call_1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run(run, id="run")
    sf.run(run, id="run")
    assert len(sent) == 1


def test_equal_calls_without_ids_are_as_many_effects_as_were_asked_for(sf: Surefoot) -> None:
    @workflow
    def run() -> None:
        charge("7")
        charge("7")
        charge("8")

    sf.run(run, id="run")
    assert len({key for _, _, key in sent}) == 3


def test_one_call_of_the_model_that_is_run_again_gets_the_outcome_that_it_had(sf: Surefoot) -> None:
    @tool(KEYED)
    def refuse(order: str) -> None:
        sent.append(order)
        raise Refused("card declined")

    @workflow
    def run() -> list[Any]:
        model_answers("call_1", "call_2")
        seen: list[Any] = []
        for _ in range(2):
            with tool_call_id("call_1"):
                seen.append(charge("7"))
            with tool_call_id("call_2"), pytest.raises(Refused, match="card declined"):
                refuse("8")
        return seen

    assert sf.run(run, id="run") == [{"charged": "7"}] * 2
    assert len(sent) == 2


def test_one_call_of_the_model_with_other_arguments_diverges(sf: Surefoot) -> None:
    @workflow
    def run() -> None:
        model_answers("call_1")
        for order in ("7", "8"):
            with tool_call_id("call_1"):
                charge(order)

    with pytest.raises(Diverged):
        sf.run(run, id="run")
    assert [order for order, _, _ in sent] == ["7"]


def test_a_tool_that_one_call_of_the_model_uses_twice_acts_twice(sf: Surefoot) -> None:
    @workflow
    def run() -> None:
        model_answers("call_1")
        with tool_call_id("call_1"):
            charge("7")
            charge("8")

    sf.run(run, id="run")
    assert [order for order, _, _ in sent] == ["7", "8"]


def test_a_business_identity_is_one_effect_in_the_whole_store(sf: Surefoot) -> None:
    @tool(KEYED, identity="order:{order}")
    def pay(order: str) -> str:
        sent.append(order)
        return "paid"

    @workflow
    def run(number: int) -> str:
        model_answers(f"call_{number}")
        with tool_call_id(f"call_{number}"):
            return pay("7")

    assert [sf.run(run, n, id=f"run-{n}") for n in range(2)] == ["paid", "paid"]
    assert pay("7") == "paid"
    assert sent == ["7"]


def test_outside_a_run_a_tool_that_acts_needs_an_identity_and_one_that_reads_is_a_plain_call(sf: Surefoot) -> None:
    assert draw() == 1
    with pytest.raises(UsageError, match="identity"):
        charge("7")


def test_arguments_that_changed_before_their_turn_send_nothing(sf: Surefoot) -> None:
    """Without a recorded answer of the model nothing tells a changed call from a new one: the run stops."""
    orders = iter(["7", "8"])

    @workflow
    def run() -> None:
        charge(next(orders))
        if len(sent) == 1:
            sent.append("died")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run(run, id="run")
    with pytest.raises(Diverged):
        sf.run(run, id="run")
    assert len(sent) == 2


# --- what is recorded ---------------------------------------------------------------------------------------------


def test_a_read_only_tool_shows_the_same_on_replay(sf: Surefoot) -> None:
    seen: list[list[int]] = []

    @workflow
    def run() -> None:
        seen.append([draw(), draw()])
        if len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sf.run(run, id="run")
    sf.run(run, id="run")
    assert seen == [[1, 2], [1, 2]]


def test_parallel_tools_may_finish_and_be_asked_for_in_any_order(tmp_path: Path) -> None:
    order = ["a", "b", "c"]

    @workflow
    async def run() -> list[str]:
        model_answers(*order)

        async def one(id: str) -> str:
            with tool_call_id(id):
                return await gate_async("act", KEYED, {"id": id}, lambda: act(id))

        async def act(id: str) -> str:
            sent.append(id)
            await asyncio.sleep(0.01 * (3 - order.index(id)))
            return id

        async with scope("tools"):
            done = await asyncio.gather(*(one(id) for id in order))
        if len(sent) == 3:
            sent.append("died")
            raise KeyboardInterrupt
        return done

    async def main() -> list[str]:
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            with pytest.raises(KeyboardInterrupt):
                await sf.run(run, id="run")
            order.reverse()
            return await sf.run(run, id="run")

    assert asyncio.run(main()) == ["c", "b", "a"]
    assert sent == ["a", "b", "c", "died"]


# --- in doubt -----------------------------------------------------------------------------------------------------


def test_a_tool_in_doubt_raises_what_no_except_exception_catches_and_says_what_a_model_may_be_told(
    sf: Surefoot,
) -> None:
    caught: list[BaseException] = []

    @workflow
    def run() -> None:
        try:
            lose("letter")
        except BaseException as error:
            caught.append(error)
            raise

    with pytest.raises(RunWaiting, match="surefoot resolve"):
        sf.run(run, id="run")
    (error,) = caught
    assert isinstance(error, ToolInDoubt)
    assert not isinstance(error, Exception)
    assert str(error).startswith("status unknown; do not retry. effect 'lose' is in doubt")


def test_a_framework_that_swallows_the_stop_makes_no_further_call_and_the_run_still_waits(sf: Surefoot) -> None:
    reached: list[str] = []

    @workflow
    def run() -> str:
        with scope("agent"):
            model_answers(asked="first")
            try:
                lose("letter")
            except BaseException:
                reached.append("told the model of it")
            for act in (lambda: model_answers(asked="second"), lambda: charge("7"), draw):
                with pytest.raises(ToolInDoubt):
                    act()
                reached.append("refused")
        return "done"

    for _ in range(2):
        with pytest.raises(RunWaiting):
            sf.run(run, id="run")
    assert sent == ["letter"]
    assert reached == ["told the model of it", *["refused"] * 3] * 2
    assert sf.get("run").status == "waiting"


def test_a_soft_tool_raises_an_ordinary_exception_and_the_next_call_is_refused_all_the_same(sf: Surefoot) -> None:
    @tool(opaque(), soft=True)
    def vanish() -> None:
        raise TimeoutError("no answer")

    @workflow
    def run() -> None:
        with pytest.raises(StatusUnknown, match=r"^status unknown; do not retry"):
            vanish()
        model_answers()

    with pytest.raises(RunWaiting):
        sf.run(run, id="run")


def test_a_person_ends_the_doubt_and_the_agent_goes_on_with_the_receipt(sf: Surefoot, tmp_path: Path) -> None:
    @workflow
    def run() -> str:
        return lose("letter")

    with pytest.raises(RunWaiting):
        sf.run(run, id="run")
    command = [
        str(Path(sys.executable).parent / "surefoot"),
        "--db",
        str(tmp_path / "agents.db"),
        "resolve",
        "run",
        "lose",
    ]
    subprocess.run([*command, "--happened", '"arrived"', "--why", "seen"], check=True, capture_output=True)
    assert sf.run(run, id="run") == "arrived"
    assert sent == ["letter"]


def test_calls_beside_one_in_doubt_finish_before_the_run_stops(tmp_path: Path) -> None:
    """A framework's task group would cancel them, and what is cancelled while it is sent is in doubt too."""

    @workflow
    async def run() -> None:
        losing, began = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            began.set()
            await losing.wait()
            await asyncio.sleep(0.2)
            return "arrived"

        async def fail() -> str:
            await began.wait()
            losing.set()
            raise TimeoutError("no answer")

        async with scope("agent"), asyncio.TaskGroup() as group:
            group.create_task(gate_async("slow", opaque(), {}, slow))
            group.create_task(gate_async("fail", opaque(), {}, fail))

    async def main() -> list[str]:
        async with Surefoot(str(tmp_path / "a.db")) as sf:
            with pytest.raises(RunWaiting, match="'fail' is in doubt"):
                await sf.run(run, id="run")
            read = sf.engine.store.read_run("run")
            assert read is not None
            return [entry.slot.rpartition("/")[2] for entry in read[1] if entry.kind == EntryKind.OUTCOME]

    assert asyncio.run(main()) == ["slow"]


# --- approvals ----------------------------------------------------------------------------------------------------


def test_a_tool_that_needs_approval_is_sent_once_somebody_has_approved_exactly_this_request(sf: Surefoot) -> None:
    @tool(KEYED, approval=Asks(by="finance", within=timedelta(days=1)))
    def pay(attempt: Any, order: str) -> str:
        sent.append(order)
        return "paid"

    @workflow
    def run() -> str:
        return pay("7")

    handle = sf.start(run, id="run")
    waiting: list[Any] = []
    while not waiting:
        threading.Event().wait(0.01)
        waiting = sf.approvals()
    assert sent == []
    assert waiting[0].text.endswith('pay({"order":"7"})')
    sf.approve(waiting[0].id, who="mary", digest=waiting[0].digest)
    assert handle.result(timeout=60) == "paid"
    assert sent == ["7"]


# --- the functional form ------------------------------------------------------------------------------------------


def test_the_gate_runs_a_call_once_under_its_id_and_shares_no_code_with_the_next_of_its_name(sf: Surefoot) -> None:
    @workflow
    def run() -> list[Any]:
        model_answers("call_1", "call_2")
        for number in (1, 2):
            gate(
                "pay",
                KEYED,
                {"n": number},
                lambda n=number: sent.append((n, attempt().key)),
                tool_call_id=f"call_{number}",
            )
        return [gate("look", None, {}, lambda: len(sent)), gate("look", None, {}, lambda: len(sent))]

    assert sf.run(run, id="run") == [2, 2]
    assert [number for number, _ in sent] == [1, 2]
    assert slots(sf) == ["@[call_1]/pay", "@[call_2]/pay", *[s for s in slots(sf) if s.endswith("/look")]]


def test_a_gated_call_is_found_by_nobody_under_its_name_later(sf: Surefoot) -> None:
    """Its body belongs to one call of the model: a cancelled branch must not send another's request with it."""

    @workflow
    def run() -> None:
        gate("pay-once", KEYED, {"n": 1}, lambda: "paid")

    sf.run(run, id="run")
    assert "pay-once" not in effects._effects  # pyright: ignore[reportPrivateUsage]


def test_a_gate_in_a_body_is_a_plain_call_that_needs_an_identity_if_it_acts(sf: Surefoot) -> None:
    @step
    def work() -> list[Any]:
        looked = gate("look", None, {}, lambda: "seen")
        paid = gate("pay", KEYED, {"n": 1}, lambda: "paid", identity="order:1")
        with pytest.raises(UsageError, match="identity"):
            gate("pay", KEYED, {"n": 2}, lambda: "paid")
        return [looked, paid]

    @workflow
    def run() -> list[Any]:
        return work()

    assert sf.run(run, id="run") == ["seen", "paid"]


def test_an_async_tool_of_a_loop_that_is_gone_is_settled_by_its_contract(sf: Surefoot) -> None:
    """A def workflow runs an agent in an event loop of its own; what that loop left open is not lost with it."""
    began = asyncio.Event()

    @tool(KEYED)
    async def pay(order: str) -> str:
        sent.append(order)
        began.set()
        if len(sent) == 1:
            await asyncio.sleep(60)
        return "paid"

    async def agent() -> None:
        task = asyncio.ensure_future(pay("7"))
        await began.wait()
        task.cancel()

    @workflow
    def run() -> str:
        asyncio.run(agent())
        return "done"

    assert sf.run(run, id="run") == "done"
    assert sent == ["7", "7"]
    read = sf.engine.store.read_run("run")
    assert read is not None
    assert [entry.kind for entry in read[1]] == [EntryKind.INTENT, EntryKind.OUTCOME]
