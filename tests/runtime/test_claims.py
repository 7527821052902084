"""One identity, one effect in the whole store: across runs, outside runs, inside steps."""

import threading
from pathlib import Path
from typing import Any

import pytest

from surefoot import (
    Attempt,
    Disagreement,
    Refused,
    RunWaiting,
    Surefoot,
    UsageError,
    effect,
    keyed,
    opaque,
    step,
    workflow,
)
from surefoot.core.effect import Do, Status
from surefoot.runtime import outside
from tests.runtime.support import Ledger, decide, rows, the_effect

KEYED = keyed(window=3600)
LEDGER = Ledger()


@effect(KEYED, identity="refund:{order}", name="refund")
def refund(attempt: Attempt, order: str, amount: int) -> dict[str, Any]:
    return LEDGER.post(attempt.key, {"order": order, "amount": amount})


@effect(KEYED, name="anonymous")
def anonymous(attempt: Attempt) -> int:
    LEDGER.post(attempt.key, 1)
    return 1


@pytest.fixture(autouse=True)
def _an_empty_ledger() -> None:
    LEDGER.requests.clear()
    LEDGER.done.clear()


@workflow(name="refunding")
def refunding(order: str, amount: int) -> dict[str, Any]:
    return refund(order, amount)


def test_a_second_run_with_the_same_request_gets_the_receipt(db: Path) -> None:
    flow = workflow(name="refunding")(refunding.function)
    with Surefoot(db) as sf:
        assert sf.run(flow, "o1", 40, id="a") == sf.run(flow, "o1", 40, id="b")
        assert len(sf.store.find_effects()) == 1
    assert len(LEDGER.requests) == 1


def test_a_second_run_with_another_request_is_told_who_holds_it_and_sends_nothing(db: Path) -> None:
    flow = workflow(name="refunding")(refunding.function)
    with Surefoot(db) as sf:
        sf.run(flow, "o1", 40, id="a")
        for _ in range(2):
            with pytest.raises(Disagreement) as caught:
                sf.run(flow, "o1", 35, id="b")
            told = str(caught.value)
            assert "'refund:o1'" in told and "run 'a'" in told and '"amount":40' in told and '"amount":35' in told
        record = the_effect(sf, Status.CONFIRMED)
        kept = [e for e in record.evidence if e.kind == "disagreement"]
        assert len(kept) == 1 and kept[0].who == "b" and b"35" in kept[0].value, "both proposals are kept, once"
        assert sf.get("b").status == "failed"
    assert LEDGER.things == [{"order": "o1", "amount": 40}]


def test_two_runs_at_once_with_one_identity_send_once_and_both_get_the_receipt(db: Path) -> None:
    inside, go = threading.Event(), threading.Event()

    @effect(KEYED, identity="slow:{n}", name="slow")
    def slow(attempt: Attempt, n: int) -> int:
        LEDGER.post(attempt.key, n)
        inside.set()
        assert go.wait(20)
        return n

    @workflow
    def flow() -> int:
        return slow(1)

    with Surefoot(db) as sf, Surefoot(db) as other:
        handles = [sf.start(flow, id="a")]
        assert inside.wait(20)
        handles += [sf.start(flow, id="b"), other.start(flow, id="c")]
        threading.Event().wait(0.1)
        assert len(LEDGER.requests) == 1, "the others wait"
        go.set()
        assert [handle.result(20) for handle in handles] == [1, 1, 1]
    assert len(LEDGER.requests) == 1


def test_a_second_run_meets_a_parked_effect_and_waits_as_well(db: Path) -> None:
    @effect(opaque(), identity="mail:{to}", name="mail to")
    def mail(attempt: Attempt, to: str) -> str:
        LEDGER.post(attempt.key, to)
        raise TimeoutError

    @workflow
    def flow() -> str:
        return mail("ada")

    with Surefoot(db) as sf:
        for run in ("a", "b", "a"):
            with pytest.raises(RunWaiting):
                sf.run(flow, id=run)
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b'"sent"')
        assert sf.run(flow, id="a") == sf.run(flow, id="b") == "sent"
    assert len(LEDGER.requests) == 1


def test_namespaces_keep_their_identities_apart(db: Path) -> None:
    with Surefoot(db, namespace="staging"):
        refund("o1", 1)
    with Surefoot(db, namespace="production"):
        refund("o1", 2)
    assert len(LEDGER.things) == 2


# --- outside a run ----------------------------------------------------------------------------------------------------


def test_an_effect_outside_a_run_is_protected_by_its_identity(db: Path) -> None:
    with Surefoot(db):
        assert refund("o1", 40) == {"order": "o1", "amount": 40}
    with Surefoot(db) as sf:
        assert refund("o1", 40) == {"order": "o1", "amount": 40}
        with pytest.raises(Disagreement, match="a call outside any run"):
            refund("o1", 41)
        flow = workflow(name="refunding")(refunding.function)
        assert sf.run(flow, "o1", 40, id="a") == {"order": "o1", "amount": 40}
    assert len(LEDGER.requests) == 1


async def test_an_async_effect_outside_a_run_too(db: Path) -> None:
    @effect(KEYED, identity="a:{n}", name="alone async")
    async def alone(attempt: Attempt, n: int) -> int:
        return LEDGER.post(attempt.key, n)

    async with Surefoot(db):
        assert [await alone(1), await alone(1), await alone(2)] == [1, 1, 2]
    assert len(LEDGER.requests) == 2


def test_a_parked_effect_outside_a_run_raises_run_waiting(db: Path) -> None:
    @effect(opaque(), identity="o:{n}", name="opaque alone")
    def alone(attempt: Attempt, n: int) -> int:
        LEDGER.post(attempt.key, n)
        raise TimeoutError

    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(RunWaiting, match="surefoot resolve -"):
                alone(1)
        decide(sf, the_effect(sf), Do.HAPPENED, receipt=b"5")
        assert alone(1) == 5
    assert len(LEDGER.requests) == 1


def test_a_refusal_outside_a_run_is_kept(db: Path) -> None:
    tries: list[int] = []

    @effect(KEYED, identity="r:{n}", name="refusing")
    def refusing(attempt: Attempt, n: int) -> int:
        tries.append(n)
        raise Refused("no", code="declined")

    with Surefoot(db):
        for _ in range(2):
            with pytest.raises(Refused, match="no"):
                refusing(1)
    assert tries == [1]


def test_outside_a_run_an_effect_needs_an_identity_and_an_open_surefoot(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "_open_engines", [])  # other tests leave some open, which "crashed"
    with Surefoot(db), pytest.raises(UsageError, match=r"outside a run.*identity="):
        anonymous()
    with pytest.raises(UsageError, match="no Surefoot open"):
        refund("o1", 1)
    assert LEDGER.requests == []


def test_inside_a_step_an_effect_needs_an_identity(db: Path) -> None:
    @step
    def inside(kind: str) -> Any:
        return anonymous() if kind == "anonymous" else refund("o1", 1)

    @workflow
    def flow(kind: str) -> Any:
        return inside(kind)

    with Surefoot(db) as sf:
        with pytest.raises(UsageError, match=r"inside a step.*identity="):
            sf.run(flow, "anonymous", id="a")
        assert LEDGER.requests == [] and rows(db)["effects"] == []
        assert sf.run(flow, "refund", id="b") == {"order": "o1", "amount": 1}


def test_inside_a_step_an_effect_is_recorded_where_its_run_is(tmp_path: Path) -> None:
    @step
    def inside() -> Any:
        return refund("o1", 1)

    @workflow
    def flow() -> Any:
        return inside()

    one, two = tmp_path / "one.db", tmp_path / "two.db"
    with Surefoot(one) as sf, Surefoot(two) as opened_later:
        sf.run(flow, id="r")
        assert opened_later.store.find_effects() == []
        assert the_effect(sf).identity == "refund:o1"


@pytest.mark.parametrize("value", [None, 1.5, True, ["a"]])
def test_an_identity_is_made_of_text_and_whole_numbers_only(db: Path, value: Any) -> None:
    @effect(KEYED, identity="x:{thing}", name="picky")
    def picky(attempt: Attempt, thing: Any) -> None:
        LEDGER.post(attempt.key, thing)

    with Surefoot(db), pytest.raises(UsageError, match="must be a str or int"):
        picky(value)
    assert rows(db)["effects"] == [] and LEDGER.requests == []


def test_an_identity_may_be_a_function(db: Path) -> None:
    @effect(KEYED, identity=lambda order, amount: f"by:{order.lower()}", name="by function")
    def refund_by(attempt: Attempt, order: str, amount: int) -> str:
        return attempt.identity

    with Surefoot(db):
        assert refund_by("O1", 1) == "by:o1"
