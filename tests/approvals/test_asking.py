"""What is asked for is durable before it is shown, shown whole, and decided for ever; time that is over denies it."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import (
    ApprovalClosed,
    Denied,
    Diverged,
    RunCancelled,
    Surefoot,
    UsageError,
    ValueRefused,
    approve,
    step,
    workflow,
)
from surefoot.core.approval import digest_of, id_of
from surefoot.core.commands import Commit
from surefoot.core.dispatch_writes import RetryRun
from surefoot.core.run import RunStatus
from surefoot.core.writes import CancelRun
from surefoot.stores.memory import MemoryStore
from surefoot.testing.crash import SimulatedCrash, abandon, crash_at
from tests.approvals.support import WITHIN, Bystander, approve_all, mail, pay, refund, sent, ticket, until
from tests.runtime.support import Crash, live_and_replayed, restart, slots


def asks(artifact: Any, **options: Any) -> Any:
    return approve(artifact, by="cfo", within=WITHIN, **options)


def test_what_is_asked_for_is_shown_whole_and_exactly_as_digested(sf: Surefoot, clock: Bystander) -> None:
    body = {"to": "ada", "text": "x" * 100_000}
    seen: list[Any] = []

    def look() -> None:
        (listed,) = sf.approvals()
        seen.append(sf.approval(listed.id[:4]))
        approve_all(sf)

    clock.acts = [look]
    work = workflow(name="work")(lambda: asks(body).digest)
    digest = sf.run(work, id="r")
    (view,) = seen
    assert view.artifact == b'{"text":"%b","to":"ada"}' % (b"x" * 100_000)
    assert view.digest == digest == digest_of("", view.artifact) and len(digest) == 32
    assert (view.run, view.by, view.status, view.id) == ("r", "cfo", "pending", id_of("r", "approval"))
    assert view.until - view.asked_at == WITHIN and len(view.text) < 300


def test_it_is_to_be_seen_and_decided_while_other_branches_move(sf: Surefoot) -> None:
    """The person is a step of another branch, so the run never stood still."""

    @step
    def stand_by() -> str:
        until(sf.approvals)
        assert _status(sf) is RunStatus.RUNNING
        approve_all(sf)
        return "decided while it ran"

    @workflow
    def both() -> list[Any]:
        return surefoot.gather(lambda: asks("x").who, stand_by)

    restart()
    assert sf.run(both, id="r")[1] == "decided while it ran"
    assert sf.approvals() == []


def test_a_dead_owner_takes_no_request_with_it(clock: Bystander) -> None:
    """Killed right after it asked, it is still RUNNING: what it asked for can be decided, and its next owner hears."""
    store = MemoryStore()
    first = Surefoot(store, clock=clock)
    work = workflow(name="work")(lambda: asks("x").who)
    crash = crash_at(2, when="after", kind=Commit).drive(first)
    with pytest.raises(SimulatedCrash):
        first.run(work, id="r")
    assert crash.struck == "Commit" and slots(first, "r") == ["approval"]
    abandon(first)
    with Surefoot(store, clock=clock) as sf:
        assert _status(sf) is RunStatus.RUNNING
        approve_all(sf, "bob")
        assert sf.run(work, id="r") == "bob"


def test_a_run_that_was_claimed_again_still_asks(sf: Surefoot, clock: Bystander) -> None:
    """Between the claim and the line that asks, a person may see and decide it as well."""
    seen: list[int] = []

    def work() -> str:
        seen.append(len(sf.approvals()))
        if len(seen) == 2:
            person = threading.Thread(target=approve_all, args=(sf,))
            person.start()
            person.join()
        return asks("x").who

    def look_again() -> None:
        sf.engine.committer.commit(RetryRun(run_id="r", at=1.0, why="look again", stamp=next(sf.engine.stamps)))

    clock.acts = [look_again]
    assert sf.run(workflow(name="work")(work), id="r") == "ann" and seen == [0, 1]


def _status(sf: Surefoot) -> RunStatus | None:
    run = sf.store.find_run("r")
    return run.status if run is not None else None


@pytest.mark.parametrize("case", ["artifact", "by", "kind"])
def test_another_artifact_or_another_person_on_replay_diverges(case: str, tmp_path: Path, clock: Bystander) -> None:
    replayed: list[bool] = []

    def work() -> None:
        changed = bool(replayed)
        replayed.append(True)
        artifact: Any = refund.request("ch_1", amount=11 if changed and case == "artifact" else 10)
        if changed and case == "kind":
            artifact = {"charge": "ch_1", "amount": 10}
        approve(artifact, by="ceo" if changed and case == "by" else "cfo", within=WITHIN)
        raise Crash

    with Surefoot(tmp_path / "agents.db", clock=clock) as sf:
        clock.acts = [lambda: approve_all(sf)]
        with pytest.raises(Diverged) as diverged:
            sf.run(workflow(name="work")(work), id="r")
        assert 'refund({"amount":10' in str(diverged.value)


def test_time_that_is_over_denies_and_the_store_says_so(sf: Surefoot, clock: Bystander) -> None:
    caught: list[Denied] = []

    @workflow
    def work() -> str:
        try:
            asks("x")
        except Denied as denied:
            caught.append(denied)
        return "went on"

    assert sf.run(work, id="r") == "went on" and clock.time >= 1_800_000_000 + WITHIN
    (denied,) = caught
    assert (denied.who, denied.why) == ("", "nobody decided in time")
    assert str(denied).endswith("was denied since nobody decided in time")
    view = sf.approval(denied.id)
    assert view.status == "expired" and view.decision is not None and view.decision.decision == "expired"
    with pytest.raises(ApprovalClosed, match=r"it expired at 2027-01-15 .* UTC, undecided"):
        sf.approve(view.id, who="ann", digest=view.digest)


def test_a_late_approval_is_refused_also_before_the_run_has_noticed(sf: Surefoot, clock: Bystander) -> None:
    def too_late() -> None:
        clock.time += WITHIN
        (view,) = sf.approvals()
        assert view.status == "expired"
        with pytest.raises(ApprovalClosed, match="its run goes on as denied"):
            sf.approve(view.id, who="ann", digest=view.digest)

    clock.acts = [too_late]
    with pytest.raises(Denied):
        sf.run(pay, "ch_1", 10, 10, id="r")
    assert sent == []


def test_a_denial_is_told_with_who_and_why_live_and_replayed(tmp_path: Path) -> None:
    def people() -> None:
        with Surefoot(tmp_path / "agents.db") as other:
            other.deny(until(other.approvals)[0].id, who="bob", why="too much")

    person = threading.Thread(target=people)
    person.start()
    live, replayed = live_and_replayed(tmp_path / "agents.db", lambda: asks("x"))
    person.join()
    assert isinstance(live, Denied) and isinstance(replayed, Denied)
    assert (live.who, live.why, live.at, live.id) == (replayed.who, replayed.why, replayed.at, replayed.id)
    assert (live.who, live.why) == ("bob", "too much")


def test_a_denial_that_ends_a_run_comes_back_as_itself(sf: Surefoot, clock: Bystander) -> None:
    clock.acts = [lambda: sf.deny(sf.approvals()[0].id, who="bob", why="no")]
    for _ in range(2):
        with pytest.raises(Denied) as denied:
            sf.run(pay, "ch_1", 10, 10, id="r")
        assert (denied.value.who, denied.value.why) == ("bob", "no")


def test_each_place_that_asks_has_its_own_id_and_is_asked_once(sf: Surefoot, clock: Bystander) -> None:
    @workflow
    def work() -> list[str]:
        return [asks("x").id for _ in range(3)]

    clock.acts = [lambda: approve_all(sf)] * 3
    ids = sf.run(work, id="r")
    assert ids == [id_of("r", slot) for slot in ("approval", "approval#1", "approval#2")]
    assert len(slots(sf, "r")) == 6, "one request and one decision each"


@pytest.mark.parametrize("side_by_side", [surefoot.gather, asyncio.gather])
def test_several_are_asked_for_side_by_side_in_one_async_workflow(side_by_side: Any, tmp_path: Path) -> None:
    """Each in the branch that its task is, so that neither stands in the other's place."""

    @workflow
    async def both() -> list[str]:
        return [each.who for each in await side_by_side(asks("x"), asks("y"))]

    with Surefoot(tmp_path / "agents.db") as sf, sf.worker([both]):
        sf.start(both, id="r", queue="default")
        for view in until(lambda: len(sf.approvals()) == 2 and sf.approvals()):
            sf.approve(view.id, who=f"who saw {view.text}", digest=view.digest)
        assert sorted(until(lambda: sf.get("r").result)) == ['who saw "x"', 'who saw "y"']


def test_the_ids_of_approvals_never_change() -> None:
    assert id_of("order-1", "approval") == "rf3hfv4ezsym"
    assert digest_of("refund", b'{"amount":10}') == "9c3d9be463b488def5fc6b04dc62e231"


def test_a_branch_that_gave_up_waiting_asks_nobody_any_more(tmp_path: Path) -> None:
    @step
    def look() -> int:
        return len(sf.approvals())

    async def asks_too() -> Any:
        return await asks("x")

    @workflow
    async def work() -> list[int]:
        winner, _ = await surefoot.first(asks_too(), surefoot.sleep(0.2))
        look()  # what the branch has withdrawn is durable no later than this step's record
        return [winner, look()]

    async def main() -> list[int]:
        return await sf.run(work, id="r")

    with Surefoot(tmp_path / "agents.db") as sf:
        assert asyncio.run(main()) == [1, 0]
        (asked,) = [slot for slot in slots(sf, "r") if slot.endswith("/approval")]
        with pytest.raises(ApprovalClosed, match="has succeeded"):
            sf.deny(id_of("r", asked), who="ann", why="late")


def test_a_cancelled_run_asks_for_nothing(sf: Surefoot, clock: Bystander) -> None:
    ids: list[str] = []

    def cancel() -> None:
        ids.append(sf.approvals()[0].id)
        write = CancelRun(run_id="r", vantage=sf.engine.look(0), reason="enough", stamp=next(sf.engine.stamps))
        sf.engine.committer.commit(write)

    clock.acts = [cancel]
    with pytest.raises(RunCancelled):
        sf.run(pay, "ch_1", 10, 10, id="r")
    view = sf.approval(ids[0])
    assert view.status == "ended"
    with pytest.raises(ApprovalClosed, match="its run 'r' was cancelled"):
        sf.approve(view.id, who="ann", digest=view.digest)


def test_a_workflow_cannot_decide_for_itself(sf: Surefoot) -> None:
    def work() -> None:
        sf.approve("any", who="me", digest="x")

    with pytest.raises(UsageError, match=r"sf.approve\(\) was called in a workflow"):
        sf.run(workflow(name="work")(work), id="r")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"within": 0}, "more than 0 to 100 years"),
        ({"within": -1}, "more than 0 to 100 years"),
        ({"within": timedelta(0)}, "more than 0 to 100 years"),
        ({"within": None}, "needs within="),
        ({"by": ""}, "1 to 200 characters"),
        ({"by": "a\nb"}, "control character"),
        ({"artifact": object()}, "cannot be stored"),
        ({"artifact": float("nan")}, "cannot be stored"),
        ({"artifact": refund}, r"give it refund.request\(...\)"),
        ({"artifact": ticket.request("x")}, "does not need approval"),
        ({"releases": refund}, "no effect that an approved value could release"),
        ({"releases": ticket}, "no effect that an approved value could release"),
        ({"releases": "mail"}, "no effect that an approved value could release"),
        ({"artifact": refund.request("c", amount=1), "releases": mail}, "that effect only"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    arguments: dict[str, Any], match: str, clock: Bystander
) -> None:
    options = {"artifact": "x", "by": "cfo", "within": 5.0, **arguments}

    @workflow
    def work() -> None:
        approve(options.pop("artifact"), **options)

    restart()
    with Surefoot("memory:", clock=clock) as sf:
        with pytest.raises((UsageError, ValueRefused), match=match):
            sf.run(work, id="r")
        assert sf.approvals() == [] and slots(sf, "r") == []


def test_outside_a_workflow_nothing_is_asked() -> None:
    with pytest.raises(UsageError, match="call it inside a workflow"):
        approve("x", by="cfo", within=5)
