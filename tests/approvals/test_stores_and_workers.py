"""The same on PostgreSQL, with a worker, and dead at every command; and a waiting approval holds nothing."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from surefoot import ApprovalClosed, NotApproved, Surefoot, approve, effect, keyed, workflow
from surefoot.core.run import RunStatus
from surefoot.stores.memory import MemoryStore
from surefoot.testing.crash import SimulatedCrash, abandon, count_commands, crash_at
from tests.approvals.support import WITHIN, Bystander, approve_all, pay, sent, until
from tests.runtime.support import restart, slots

keys: set[tuple[str, int]] = set()


@effect(keyed(window=3600), needs_approval=True)
def counted(attempt: Any, amount: int) -> int:
    keys.add((attempt.key, amount))
    return amount


def work() -> list[int]:
    first = approve(counted.request(10), by="cfo", within=WITHIN)
    paid = counted(10)
    try:
        counted(9999)
    except NotApproved:
        approve({"summary": first.id}, by="cfo", within=WITHIN)
    return [paid]


def test_on_postgresql_it_is_decided_from_elsewhere_and_sent_once(postgres_url: str) -> None:
    with Surefoot(postgres_url) as sf, Surefoot(postgres_url) as elsewhere:
        handle = sf.start(pay, "ch_1", 10, 10, id="r")
        view = elsewhere.approval(until(elsewhere.approvals)[0].id)
        assert view.artifact == b'{"amount":10,"charge":"ch_1"}'
        with pytest.raises(ApprovalClosed, match="asked for now"):
            elsewhere.approve(view.id, who="ann", digest="0" * 32)
        elsewhere.approve(view.id, who="ann", digest=view.digest)
        with pytest.raises(ApprovalClosed, match="ann has approved it already"):
            elsewhere.deny(view.id, who="bob", why="no")
        assert handle.result(20) == 10
        assert slots(sf, "r") == ["approval", f"approval:{view.id}", "release:refund", "refund", "refund"]
    assert sent == [{"charge": "ch_1", "amount": 10}]


def test_a_worker_gives_the_run_back_while_it_asks(tmp_path: Any) -> None:
    with Surefoot(tmp_path / "agents.db") as sf, sf.worker([pay]):
        handle = sf.start(pay, "ch_1", 10, 10, id="r", queue="default")
        until(lambda: (run := sf.store.find_run("r")) is not None and run.status is RunStatus.WAITING)
        run = sf.store.find_run("r")
        assert run is not None
        assert run.owner == 0 and [wait.kind for wait in run.waits] == ["approval"]
        approve_all(sf)
        assert handle.result(20) == 10
    assert sent == [{"charge": "ch_1", "amount": 10}]


def lives(count: int, when: Literal["before", "after"]) -> bool:
    """Die at that command, then live on; False once there is no such command any more."""
    keys.clear()
    restart()
    clock, store, pays = Bystander(), MemoryStore(), workflow(name="pays")(work)
    first = Surefoot(store, clock=clock)
    clock.acts = [lambda: approve_all(first)] * 10
    driver = crash_at(count, when=when).drive(first)
    try:
        first.run(pays, id="r")
    except SimulatedCrash:
        abandon(first)
    else:
        first.close()
        assert not driver.struck
        return False
    assert driver.struck
    with Surefoot(store, clock=clock) as sf:
        clock.acts = [lambda: approve_all(sf)] * 10
        assert sf.run(pays, id="r") == [10]
        assert slots(sf, "r").count("release:counted") == 1 and sf.approvals() == []
    assert [amount for _, amount in keys] == [10], "one key, as approved"
    return True


@pytest.mark.parametrize("when", ["before", "after"])
def test_dead_at_any_command_it_sends_what_was_approved_once(when: Literal["before", "after"]) -> None:
    number = 1
    while lives(number, when):
        number += 1
    assert number > 20


def test_an_effect_without_approval_asks_for_nothing_more(clock: Bystander) -> None:
    plain = effect(keyed(window=3600), name="plain")(counted.function)
    restart()
    with Surefoot("memory:", clock=clock) as sf:
        driver = count_commands().drive(sf)
        sf.run(workflow(name="w")(lambda: plain(1)), id="r")
        assert "Time" not in driver.commands
