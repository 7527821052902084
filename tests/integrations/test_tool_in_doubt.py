"""How a tool in doubt stops its run, approvals of tools, and the gate as a function."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from surefoot import (
    RunWaiting,
    Surefoot,
    UsageError,
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
)
from tests.integrations.tools import KEYED, charge, draw, lose, model_answers, sent, slots

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
        assert sent == [], "it was sent before anybody was asked"
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
