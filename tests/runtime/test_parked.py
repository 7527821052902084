"""Parked effects: the run suspends whatever the workflow catches, only its branch waits, a decision lets it go on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import (
    Abandoned,
    Attempt,
    Confirmed,
    InDoubt,
    Refused,
    RunCancelled,
    RunWaiting,
    Surefoot,
    effect,
    lookup,
    opaque,
    step,
    workflow,
)
from surefoot.core.effect import Do, Status
from surefoot.core.writes import Verdict
from tests.runtime.support import Crash, FakeClock, Ledger, decide, slots, the_effect

LEDGER = Ledger()


@effect(opaque(), name="mail")
def mail(attempt: Attempt, to: str) -> dict[str, str]:
    """The receiver acts, and its answer is lost."""
    LEDGER.post(attempt.key + to, to)
    raise ConnectionResetError("after the receiver acted")


@effect(opaque(), name="mail async")
async def mail_async(attempt: Attempt, to: str) -> dict[str, str]:
    LEDGER.post(attempt.key + to, to)
    raise ConnectionResetError("after the receiver acted")


@step(name="work")
def work(n: int) -> int:
    return n


@step(name="work async")
async def work_async(n: int) -> int:
    await asyncio.sleep(0)
    return n


@pytest.fixture(autouse=True)
def _an_empty_ledger() -> None:
    LEDGER.requests.clear()
    LEDGER.done.clear()


def test_an_effect_in_doubt_suspends_the_run_and_says_how_to_end_it(db: Path) -> None:
    @workflow
    def flow() -> Any:
        return mail("ada")

    with Surefoot(db) as sf:
        for _ in range(3):
            with pytest.raises(RunWaiting) as caught:
                sf.run(flow, id="r")
        told, record = str(caught.value), the_effect(sf, Status.PARKED)
        assert f"surefoot resolve r {record.key[:12]} --happened JSON | --did-not-happen | --abandon --why TEXT" in told
        assert "mail" in told and "promises nothing" in told
        view = sf.get("r")
        assert view.status == "waiting" and not view.finished and record.key[:12] in view.reason
    assert len(LEDGER.requests) == 1, "never again by itself"


@pytest.mark.parametrize("net", ["except Exception", "except:", "finally", "except BaseException, then return"])
def test_no_except_clause_of_the_workflow_can_swallow_the_suspension(db: Path, net: str) -> None:
    reached: list[str] = []

    @workflow
    def flow() -> str:
        if net == "except Exception":
            try:
                mail("ada")
            except Exception:
                reached.append("handler")
        elif net == "finally":
            try:
                mail("ada")
            finally:
                reached.append("finally")
        else:
            try:
                mail("ada")
            except:  # noqa: E722
                if net == "except:":
                    work(1)
        return "swallowed"

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        assert sf.get("r").status == "waiting"
        assert slots(sf, "r") == ["mail"], "nothing was recorded behind it"
    assert "handler" not in reached


@pytest.mark.parametrize("net", ["except Exception", "bare"])
async def test_nor_can_an_async_workflow(db: Path, net: str) -> None:
    @workflow
    async def flow() -> str:
        try:
            await mail_async("ada")
        except Exception:
            return "swallowed"
        except BaseException:
            if net == "bare":
                await work_async(1)
                return "swallowed"
            raise
        return "never"

    async with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            await sf.run(flow, id="r")
        assert sf.get("r").status == "waiting" and slots(sf, "r") == ["mail async"]


def test_a_person_says_that_it_happened(db: Path) -> None:
    @workflow
    def flow() -> Any:
        return {**mail("ada"), "n": work(1)}

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        answer = decide(sf, the_effect(sf), Do.HAPPENED, receipt=b'{"id": "m-1"}')
        assert answer.verdict is Verdict.DONE
        assert sf.run(flow, id="r") == {"id": "m-1", "n": 1}
        assert sf.run(flow, id="r") == {"id": "m-1", "n": 1}
        record = the_effect(sf, Status.CONFIRMED)
        assert [e.who for e in record.evidence if e.kind == "decision"] == ["tester"]
    assert len(LEDGER.requests) == 1


def test_a_person_says_that_it_did_not_happen_and_it_is_sent_again(db: Path) -> None:
    tries: list[int] = []

    @effect(opaque(), name="flaky mail")
    def flaky(attempt: Attempt) -> str:
        tries.append(attempt.number)
        if len(tries) == 1:
            raise TimeoutError
        return "sent"

    @workflow
    def flow() -> str:
        return flaky()

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        decide(sf, the_effect(sf), Do.DID_NOT_HAPPEN)
        assert sf.run(flow, id="r") == "sent"
    assert tries == [1, 2]


def test_a_person_gives_it_up_and_the_workflow_is_told(db: Path) -> None:
    @workflow
    def flow() -> str:
        try:
            mail("ada")
        except Abandoned as error:
            return str(error)
        return "never"

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        decide(sf, the_effect(sf), Do.ABANDON, why="the customer is gone")
        for _ in range(2):
            assert "the customer is gone" in sf.run(flow, id="r")
    assert len(LEDGER.requests) == 1


@pytest.mark.parametrize("status", ["confirmed", "refused"])
def test_a_decision_about_what_is_not_parked_changes_nothing(db: Path, status: str) -> None:
    @effect(opaque(), name="plain")
    def plain(attempt: Attempt) -> int:
        if status == "refused":
            raise Refused("no")
        return 1

    @workflow
    def flow() -> str:
        return type(plain.outcome()).__name__

    with Surefoot(db) as sf:
        sf.run(flow, id="r")
        before = the_effect(sf)
        for do in (Do.HAPPENED, Do.DID_NOT_HAPPEN, Do.ABANDON):
            assert decide(sf, before, do, receipt=b"2").verdict is Verdict.ILLEGAL
        assert the_effect(sf) == before


# --- only its branch waits --------------------------------------------------------------------------------------------


def test_in_gather_the_other_branches_finish_first(db: Path) -> None:
    def other(n: int) -> int:
        total = 0
        for i in range(5):
            surefoot.sleep(0.01)
            total += work(10 * n + i)
        return total

    @workflow
    def flow() -> Any:
        return surefoot.gather(lambda: mail("ada"), lambda: other(1), lambda: other(2))

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        assert sum("work" in slot for slot in slots(sf, "r")) == 10
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b"{}")
        assert sf.run(flow, id="r") == [{}, 60, 110]


@pytest.mark.parametrize("shape", ["asyncio.gather", "TaskGroup", "surefoot.gather", "surefoot.map"])
@pytest.mark.parametrize("pause", ["asyncio.sleep", "surefoot.sleep"])
async def test_in_async_branches_the_others_finish_first(db: Path, shape: str, pause: str) -> None:
    async def branch(n: int) -> Any:
        if n == 0:
            return await mail_async("ada")
        total = 0
        for i in range(3):
            await (asyncio.sleep(0.02) if pause == "asyncio.sleep" else surefoot.sleep(0.12))
            total += await work_async(10 * n + i)
        return total

    @workflow
    async def flow() -> Any:
        if shape == "asyncio.gather":
            return list(await asyncio.gather(*(branch(n) for n in range(3))))
        if shape == "surefoot.gather":
            return await surefoot.gather(*(branch(n) for n in range(3)))
        if shape == "surefoot.map":
            return await surefoot.map(branch, range(3))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(n)) for n in range(3)]
        return [task.result() for task in tasks]

    async with Surefoot(db) as sf:
        with pytest.raises(RunWaiting, match="surefoot resolve r"):
            await sf.run(flow, id="r")
        assert sf.get("r").status == "waiting"
        assert sum("work" in slot for slot in slots(sf, "r")) == 6
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b"{}")
        assert await sf.run(flow, id="r") == [{}, 33, 63]
    assert len(LEDGER.requests) == 1


async def test_a_branch_that_waits_does_not_cancel_what_another_is_doing(db: Path) -> None:
    ended: list[str] = []

    @step(name="long")
    async def long() -> None:
        try:
            await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("done")

    @workflow
    async def flow() -> None:
        await asyncio.gather(mail_async("ada"), long())

    async with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            await sf.run(flow, id="r")
    assert ended == ["done"]


async def test_two_parked_branches_are_both_named_sooner_or_later(db: Path) -> None:
    @workflow
    async def flow() -> Any:
        return list(await asyncio.gather(mail_async("ada"), mail_async("bob")))

    async with Surefoot(db) as sf:
        for number in range(2):
            with pytest.raises(RunWaiting):
                await sf.run(flow, id="r")
            parked = sf.store.find_effects([Status.PARKED])
            assert len(parked) == 2 - number
            decide(sf, parked[0], Do.HAPPENED, receipt=b"{}")
        assert await sf.run(flow, id="r") == [{}, {}]
    assert len(LEDGER.requests) == 2


# --- outcome() --------------------------------------------------------------------------------------------------------


def test_outcome_gives_in_doubt_as_a_value_and_the_run_goes_on(db: Path) -> None:
    seen: list[Any] = []

    @workflow
    def flow() -> int:
        seen.append(mail.outcome("ada"))
        return work(7)

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting, match="parked effects"):
            sf.run(flow, id="r")
        assert isinstance(seen[0], InDoubt) and seen[0].run == "r" and "resolve r" in seen[0].how()
        assert slots(sf, "r")[-1] == "work", "it went on with care"
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b"{}")
        assert sf.run(flow, id="r") == 7


async def test_outcome_gives_in_doubt_in_an_async_branch_too(db: Path) -> None:
    @workflow
    async def flow() -> list[str]:
        got = await asyncio.gather(mail_async.outcome("ada"), work_async(1))
        return [type(value).__name__ for value in got]

    async with Surefoot(db) as sf:
        with pytest.raises(RunWaiting, match="parked effects"):
            await sf.run(flow, id="r")


def test_what_outcome_said_live_it_says_on_replay(db: Path) -> None:
    """R9: the workflow acted on InDoubt; a decision made meanwhile must not send it down another path."""
    sent: list[str] = []
    seen: list[str] = []

    @effect(opaque(), name="tell")
    def tell(attempt: Attempt) -> None:
        sent.append("told")

    @workflow
    def flow() -> None:
        seen.append(type(mail.outcome("ada")).__name__)
        if seen[-1] == "InDoubt":
            work(1)
        if len(seen) == 1:
            raise Crash
        tell()

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b"{}")
        sf.run(flow, id="r")
    assert seen == ["InDoubt", "InDoubt"] and sent == ["told"]


def test_outcome_gives_confirmed_and_refused_as_values_live_and_on_replay(db: Path) -> None:
    @effect(opaque(), name="choosy")
    def choosy(attempt: Attempt, n: int) -> dict[str, int]:
        if n:
            raise Refused("not today", code=422)
        return {"n": n}

    seen: list[Any] = []

    @workflow
    def flow() -> None:
        seen.append((choosy.outcome(0), choosy.outcome(1)))
        if len(seen) == 1:
            raise Crash

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        sf.run(flow, id="r")
    (yes, no), (yes_again, no_again) = seen
    assert isinstance(yes, Confirmed) and yes.receipt == {"n": 0} and yes == yes_again
    assert isinstance(no, Refused) and isinstance(no_again, Refused)
    assert (no.reason, no.code, no.effect) == (no_again.reason, no_again.code, no_again.effect)
    assert "not today" in no.reason


def test_a_cancelled_run_with_a_parked_effect_waits_for_the_decision_and_then_ends(db: Path) -> None:
    @workflow
    def flow() -> Any:
        return mail("ada"), work(1)

    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        assert sf.cancel("r").cancel_requested
        with pytest.raises(RunWaiting):
            sf.run(flow, id="r")
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b"{}")
        with pytest.raises(RunCancelled):
            sf.run(flow, id="r")
        assert sf.get("r").status == "cancelled"


def test_a_lookup_that_raises_is_evidence_and_after_eight_a_person_is_asked(db: Path, clock: FakeClock) -> None:
    asked: list[int] = []

    @effect(lookup(lag=1), name="paged", timeout=1)
    def paged(attempt: Attempt) -> str:
        raise TimeoutError

    @paged.lookup
    def _(attempt: Attempt) -> str | None:
        asked.append(attempt.number)
        raise RuntimeError("the search is down")

    @workflow
    def flow() -> str:
        return paged()

    with Surefoot(db, clock=clock) as sf:
        with pytest.raises(RunWaiting, match="lookup failed 8 times: RuntimeError: the search is down"):
            sf.run(flow, id="r")
        record = the_effect(sf, Status.PARKED)
        assert [e.found for e in record.evidence if e.kind == "lookup"] == ["error"] * 8
        decide(sf, record, Do.HAPPENED, receipt=b'"found by hand"')
        assert sf.run(flow, id="r") == "found by hand"
    assert asked == [1] * 8
