"""What was approved and what is sent cannot come apart, and an approval is used once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Denied, Disagreement, NotApproved, Surefoot, UsageError, approve, effect, keyed, step, workflow
from surefoot.core.approval import Grant, Grants, digest_of, wanted_digests
from tests.approvals.support import (
    WITHIN,
    Bystander,
    approve_all,
    mail,
    pay,
    pay_async,
    payout,
    refund,
    refused,
    sent,
    ticket,
    until,
)
from tests.runtime.support import Crash, restart, slots


def run(sf: Surefoot, clock: Bystander, work: Callable[[], Any], run_id: str = "r", people: int = 1) -> Any:
    """Run `work` as a workflow while people approve whatever they are shown."""
    clock.acts += [lambda: approve_all(sf)] * people
    restart()
    return sf.run(workflow(name="work")(work), id=run_id)


def asks(artifact: Any, **options: Any) -> Any:
    return approve(artifact, by="cfo", within=WITHIN, **options)


def test_approved_10_and_executed_10_is_sent_once(sf: Surefoot, clock: Bystander) -> None:
    clock.acts = [lambda: approve_all(sf)]
    assert sf.run(pay, "ch_1", 10, 10, id="r") == 10
    assert sf.run(pay, "ch_1", 10, 10, id="r") == 10
    assert sent == [{"charge": "ch_1", "amount": 10}]


def test_approved_10_and_executed_9999_is_impossible(sf: Surefoot, clock: Bystander) -> None:
    def work() -> list[str]:
        asks(refund.request("ch_1", amount=10))
        told = refused(lambda: refund("ch_1", 9999))
        assert refund("ch_1", amount=10) == 10, "the refusal used nothing up"
        return [told.asked, *told.why]

    asked, *why = run(sf, clock, work)
    assert asked == 'refund({"amount":9999,"charge":"ch_1"})'
    assert len(why) == 1 and 'approved was refund({"amount":10,"charge":"ch_1"}), by ann' in why[0]
    assert sent == [{"charge": "ch_1", "amount": 10}]


def test_a_refused_effect_leaves_nothing_in_the_store(sf: Surefoot, clock: Bystander) -> None:
    clock.acts = [lambda: approve_all(sf)]
    for _ in range(2):
        with pytest.raises(NotApproved, match="9999") as failed:
            sf.run(pay, "ch_1", 10, 9999, id="r")
        assert "Nothing was written or sent" in str(failed.value)
    assert sf.store.find_effects() == [] and sent == []
    assert [slot.partition(":")[0] for slot in slots(sf, "r")] == ["approval", "approval"]


def test_without_any_approval_nothing_is_sent(sf: Surefoot, clock: Bystander) -> None:
    told: list[NotApproved] = []
    run(sf, clock, lambda: told.append(refused(lambda: refund("ch_1", 10))))
    assert told[0].why == () and "surefoot.approve(refund.request(...)" in str(told[0]) and sent == []


def test_an_approval_is_used_once(sf: Surefoot, clock: Bystander) -> None:
    def work() -> str:
        asks(refund.request("ch_1", amount=10))
        refund("ch_1", 10)
        return str(refused(lambda: refund("ch_1", 10)))

    assert "used already, by 'release:refund'" in run(sf, clock, work)
    assert len(sent) == 1


def test_two_approvals_of_one_request_are_two_uses(sf: Surefoot, clock: Bystander) -> None:
    def work() -> None:
        for _ in range(2):
            asks(refund.request("ch_1", amount=10))
        refund("ch_1", 10)
        refund("ch_1", 10)
        refused(lambda: refund("ch_1", 10))

    run(sf, clock, work, people=2)
    assert len(sent) == 2


def test_an_approval_releases_its_own_effect_only(sf: Surefoot, clock: Bystander) -> None:
    def work() -> None:
        asks(refund.request("ch_1", amount=10))
        refused(lambda: payout("ch_1", 10))

    run(sf, clock, work)
    assert sent == []


def test_a_value_that_looks_like_a_request_releases_nothing(sf: Surefoot, clock: Bystander) -> None:
    def work() -> None:
        asks({"charge": "ch_1", "amount": 10})
        refused(lambda: refund("ch_1", 10))

    run(sf, clock, work)
    assert sent == []


def test_an_approved_value_releases_the_effect_that_gets_exactly_it(sf: Surefoot, clock: Bystander) -> None:
    def work() -> None:
        body = {"z": "last", "a": "first"}
        asks(body)
        assert "asked for: mail(" in str(refused(lambda: mail("a@x", {**body, "a": "other"})))
        mail("a@x", {"a": "first", "z": "last"})
        refused(lambda: mail("b@x", body))
        asks(mail.request("c@x", body))
        mail("c@x", body)

    run(sf, clock, work, people=2)
    assert [each["to"] for each in sent] == ["a@x", "c@x"]


def test_an_approved_value_may_be_bound_to_one_effect(sf: Surefoot, clock: Bystander) -> None:
    @effect(keyed(window=3600), needs_approval="body", name="letter")
    def letter(attempt: Any, body: dict[str, str]) -> None:
        sent.append({"letter": body})

    def work() -> str:
        body = {"text": "hello"}
        asks(body, releases=letter)
        told = str(refused(lambda: mail("a@x", body)))
        letter(body)
        return told

    assert "releases 'letter' and nothing else" in run(sf, clock, work)
    assert sent == [{"letter": {"text": "hello"}}]


def test_an_approval_that_expired_before_its_use_releases_nothing(sf: Surefoot, clock: Bystander) -> None:
    def work() -> str:
        asks(refund.request("ch_1", amount=10))
        clock.time += WITHIN
        return str(refused(lambda: refund("ch_1", 10)))

    assert "has expired" in run(sf, clock, work)
    assert sent == [] and sf.store.find_effects() == []


def test_an_approval_belongs_to_its_run(sf: Surefoot, clock: Bystander) -> None:
    run(sf, clock, lambda: asks(refund.request("ch_1", amount=10)) and None, "one")
    run(sf, clock, lambda: refused(lambda: refund("ch_1", 10)) and None, "two")
    assert sent == []


def test_a_denied_request_is_not_released(sf: Surefoot, clock: Bystander) -> None:
    def work() -> None:
        with pytest.raises(Denied, match="too much"):
            asks(refund.request("ch_1", amount=10))
        refused(lambda: refund("ch_1", 10))

    clock.acts = [lambda: sf.deny(sf.approvals()[0].id, who="bob", why="too much")]
    run(sf, clock, work, people=0)
    assert sent == []


def test_outside_a_run_and_inside_a_step_such_an_effect_is_refused(sf: Surefoot, clock: Bystander) -> None:
    named = effect(keyed(window=3600), identity="x:{amount}", needs_approval=True, name="named")(refund.function)

    @step
    def sneak() -> None:
        named("ch_1", 10)

    def work() -> None:
        asks(named.request("ch_1", amount=10))
        sneak()

    with pytest.raises(UsageError, match="belongs to a run"):
        named("ch_1", 10)
    with pytest.raises(UsageError, match="belongs to a run"):
        run(sf, clock, work)
    assert sent == [] and sf.store.find_effects() == []


def test_the_same_use_is_gone_on_with_after_a_crash_and_no_second_one(tmp_path: Path, clock: Bystander) -> None:
    lives: list[str] = []

    def work() -> int:
        asks(refund.request("ch_1", amount=10))
        paid = refund("ch_1", 10)
        lives.append(str(refused(lambda: refund("ch_1", 10))))
        if len(lives) == 1:
            raise Crash
        ticket("done")
        return paid

    for _ in range(2):
        with Surefoot(tmp_path / "agents.db", clock=clock) as sf:
            if not lives:
                with pytest.raises(Crash):
                    run(sf, clock, work)
                continue
            assert run(sf, clock, work, people=0) == 10
            assert slots(sf, "r").count("release:refund") == 1
    assert lives[0] == lives[1], "live equals replay"
    assert sent == [{"charge": "ch_1", "amount": 10}, {"title": "done"}]


def test_a_refusal_that_the_workflow_caught_is_refused_again_on_replay(tmp_path: Path, clock: Bystander) -> None:
    """What follows it is recorded, so replay has to come through it without diverging."""
    crashed: list[bool] = []

    def work() -> int:
        refused(lambda: refund("ch_1", 10))
        asks(refund.request("ch_1", amount=10))
        if not crashed:
            crashed.append(True)
            raise Crash
        return refund("ch_1", 10)

    with Surefoot(tmp_path / "agents.db", clock=clock) as sf:
        with pytest.raises(Crash):
            run(sf, clock, work)
        assert run(sf, clock, work, people=0) == 10
    assert len(sent) == 1


def test_an_effect_that_was_renamed_while_a_person_thought_is_still_the_one(sf: Surefoot, clock: Bystander) -> None:
    new = effect(keyed(window=3600), name="repay", formerly="refund", needs_approval=True)(refund.function)
    code: list[Any] = [refund]

    def change() -> None:
        approve_all(sf)
        code[0] = new

    def work() -> int:
        asks(code[0].request("ch_1", amount=10))
        return code[0]("ch_1", 10)

    clock.acts = [change]
    assert run(sf, clock, work, people=0) == 10 and len(sent) == 1


def test_side_by_side_only_one_of_two_branches_gets_the_approval(sf: Surefoot, clock: Bystander) -> None:
    def work() -> list[Any]:
        asks(refund.request("ch_1", amount=10))

        def one() -> Any:
            try:
                return refund("ch_1", 10)
            except NotApproved:
                return "refused"

        return surefoot.gather(*[one] * 8)

    assert sorted(map(str, run(sf, clock, work))) == ["10", *["refused"] * 7]
    assert len(sent) == 1


def test_on_replay_the_branch_that_used_it_keeps_it_whoever_is_faster(tmp_path: Path, clock: Bystander) -> None:
    lives: list[list[Any]] = []

    @step
    def dawdle() -> None:
        until(lambda: sent)

    def loser() -> str:
        dawdle()  # recorded, so this branch is the faster one on replay
        why = str(refused(lambda: refund("ch_1", 10)))
        tried.set()
        return why

    def winner() -> int:
        if lives:
            tried.wait(10)
        return refund("ch_1", 10)

    def work() -> None:
        asks(refund.request("ch_1", amount=10))
        lives.append(surefoot.gather(loser, winner))
        if len(lives) == 1:
            raise Crash

    with Surefoot(tmp_path / "agents.db", clock=clock) as sf:
        for people in (1, 0):
            tried = threading.Event()
            with contextlib.suppress(Crash):
                run(sf, clock, work, people=people)
    assert lives[0] == lives[1] and lives[1][1] == 10 and len(sent) == 1


def test_branches_that_each_ask_are_each_released(sf: Surefoot, clock: Bystander) -> None:
    def branch(amount: int) -> int:
        asks(refund.request("ch_1", amount=amount))
        return refund("ch_1", amount)

    def work() -> list[int]:
        return surefoot.gather(*(lambda n=n: branch(n) for n in range(3)))

    assert run(sf, clock, work) == [0, 1, 2]
    assert sorted(each["amount"] for each in sent) == [0, 1, 2]


def test_async_workflows_are_held_to_the_same(sf: Surefoot, clock: Bystander) -> None:
    async def main() -> None:
        clock.acts = [lambda: approve_all(sf)]
        assert await sf.run(pay_async, "ch_1", 10, 10, id="good") == 10
        clock.acts = [lambda: approve_all(sf)]
        with pytest.raises(NotApproved):
            await sf.run(pay_async, "ch_1", 10, 9999, id="bad")

    asyncio.run(main())
    assert sent == [{"charge": "ch_1", "amount": 10}]


def test_a_disagreement_gives_the_approval_back(sf: Surefoot, clock: Bystander) -> None:
    order = effect(keyed(window=3600), identity="{place}", needs_approval="amount", name="order")
    held = order(lambda attempt, place, amount: sent.append({place: amount}))

    def work() -> None:
        asks(7)
        with pytest.raises(Disagreement):
            held("taken", 7)
        held("free", 7)

    def other() -> None:
        asks(5)
        held("taken", 5)

    run(sf, clock, other, "other")
    run(sf, clock, work)
    assert sent == [{"taken": 5}, {"free": 7}]


# --- what makes no sense ----------------------------------------------------------------------------------------


def test_only_true_or_a_parameter_can_be_needed() -> None:
    odd: tuple[Any, ...] = ("amuont", 1, None, "")
    for needs in odd:
        with pytest.raises(UsageError, match=r"name of a parameter \(charge, amount\)"):
            effect(keyed(window=3600), needs_approval=needs, name="odd")(refund.function)


def test_a_compensation_cannot_need_approval() -> None:
    charged = effect(keyed(window=3600), name="charged")(refund.function)
    with pytest.raises(UsageError, match="cannot need approval"):
        charged.compensate(needs_approval=True)(lambda attempt, receipt: None)


def test_a_request_cannot_be_stored_inside_another_value(sf: Surefoot, clock: Bystander) -> None:
    with pytest.raises(surefoot.ValueRefused):
        run(sf, clock, lambda: asks([refund.request("ch_1", amount=10)]), people=0)
    assert sf.approvals() == []


def test_the_digest_names_effect_and_bytes_apart() -> None:
    assert len({digest_of("refund", b"1"), digest_of("refund1", b""), digest_of("", b"refund1")}) == 3
    assert wanted_digests(["new", "old"], "b", b'{"a":1,"b":[2]}') == [
        digest_of("new", b'{"a":1,"b":[2]}'),
        digest_of("old", b'{"a":1,"b":[2]}'),
        digest_of("", b"[2]"),
    ]


def test_a_use_that_the_journal_holds_is_used() -> None:
    grants = Grants()
    grants.note_use("a", "release:x")
    grants.add(Grant(id="a", digest="d", until=10.0, releases="", text="t", who="ann"))
    for _ in range(2):
        assert grants.use("release:x", ["x"], ["d"], "x()", 9.0).id == "a"
    with pytest.raises(NotApproved, match="used already"):
        grants.use("release:x#1", ["x"], ["d"], "x()", 9.0)
