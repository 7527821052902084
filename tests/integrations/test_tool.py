"""Tools that any framework calls: what it sees, and under which identity a call is recorded."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pydantic
import pytest

from surefoot import (
    Diverged,
    Refused,
    Surefoot,
    UsageError,
    tool,
    workflow,
)
from surefoot.integrations.tool import (
    attempt,
    gate_async,
    scope,
    tool_call_id,
)
from tests.integrations.tools import KEYED, charge, draw, model_answers, sent, slots

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
        model_answers("call_1", "call_2", "call_3")
        seen: list[Any] = []
        for _ in range(2):
            with tool_call_id("call_1"):
                seen.append(charge("7"))
            with tool_call_id("call_2"), pytest.raises(Refused, match="card declined"):
                refuse("8")
            with tool_call_id("call_3"):
                seen.append(draw())
        return seen

    assert sf.run(run, id="run") == [{"charged": "7"}, 3] * 2
    assert len(sent) == 3


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
