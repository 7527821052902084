"""Ends that no answer brings: a person's decision, and the parking of what the code no longer asks for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from surefoot.core.effect import OPEN, Do, Event, Status
from surefoot.core.run import FINAL, UNFINISHED, RunStatus
from surefoot.core.writes import DecideEffect, ParkUnasked, Verdict
from tests.core.support import Rows, decide, live_rows, make_effect, make_evidence, make_run, seen_by

V, S = Verdict, Status
KEY = "k" * 32
WORD = make_evidence("decision", "happened", who="ada", text="I saw it")


def decision(do: Do, **fields: Any) -> DecideEffect:
    event = Event(do=do, at=300.0, receipt=b'"T-1"' if do is Do.HAPPENED else b"", reason="I saw it", evidence=WORD)
    return DecideEffect(**{"key": KEY, "event": event, "stamp": 9} | fields)


def parked(**fields: Any) -> Any:
    return make_effect(S.PARKED, owner=0, unresolved=1, doubted_at=120.0, **fields)


@pytest.mark.parametrize(
    ("do", "status", "receipt"),
    [(Do.HAPPENED, S.CONFIRMED, b'"T-1"'), (Do.DID_NOT_HAPPEN, S.INTENDED, b""), (Do.ABANDON, S.ABANDONED, b"")],
)
def test_a_decision_ends_the_doubt_and_fences_whoever_saw_it(do: Do, status: Status, receipt: bytes) -> None:
    rows = Rows(make_run(RunStatus.WAITING), parked())
    answer = decide(rows, decision(do, blobs=((b"h", b"large"),)))
    after = rows.the_effect
    assert (answer.verdict, answer.effect) == (V.DONE, after)
    assert (after.status, after.receipt, after.owner, after.fence, after.stamp) == (status, receipt, 0, 2, 9)
    assert (after.reason, after.evidence, rows.blobs) == ("I saw it", (WORD,), {b"h": b"large"})


@pytest.mark.parametrize("status", sorted(set(Status) - {S.PARKED}))
@pytest.mark.parametrize("do", [Do.HAPPENED, Do.DID_NOT_HAPPEN, Do.ABANDON])
def test_only_what_is_parked_can_be_decided(status: Status, do: Do) -> None:
    rows = Rows(make_effect(status))
    assert decide(rows, decision(do)).verdict is V.ILLEGAL
    assert rows.the_effect == make_effect(status)


def test_what_is_not_there_cannot_be_decided() -> None:
    assert decide(Rows(), decision(Do.ABANDON)).verdict is V.MISSING


def test_a_second_decision_comes_too_late() -> None:
    rows = Rows(parked())
    decide(rows, decision(Do.HAPPENED))
    assert decide(rows, decision(Do.ABANDON, stamp=10)).verdict is V.ILLEGAL
    assert rows.the_effect.status is S.CONFIRMED


@pytest.mark.parametrize("status", sorted(FINAL))
def test_what_did_not_happen_in_a_run_that_has_ended_is_never_sent_and_ends_refused(status: RunStatus) -> None:
    rows = Rows(make_run(status), parked())
    assert decide(rows, decision(Do.DID_NOT_HAPPEN)).verdict is V.DONE
    assert rows.the_effect.status is S.REFUSED
    assert rows.the_effect.reason == f"I saw it; never sent: its run has {status}"


@pytest.mark.parametrize("status", sorted(UNFINISHED))
def test_what_did_not_happen_in_a_run_that_goes_on_will_be_sent(status: RunStatus) -> None:
    rows = Rows(make_run(status), parked())
    decide(rows, decision(Do.DID_NOT_HAPPEN))
    assert (rows.the_effect.status, rows.the_effect.first_sent_at) == (S.INTENDED, 0.0)


def test_what_did_not_happen_outside_any_run_will_be_sent_by_the_next_who_asks() -> None:
    rows = Rows(parked(run=""))
    decide(rows, decision(Do.DID_NOT_HAPPEN))
    assert rows.the_effect.status is S.INTENDED


@pytest.mark.parametrize(
    ("do", "original"),
    [(Do.HAPPENED, S.COMPENSATED), (Do.DID_NOT_HAPPEN, S.CONFIRMED), (Do.ABANDON, S.CONFIRMED)],
)
def test_an_undo_that_a_person_saw_happen_compensates_its_original(do: Do, original: Status) -> None:
    rows = Rows(make_run(), parked(compensates="o" * 32), make_effect(S.CONFIRMED, key="o" * 32, owner=0))
    decide(rows, decision(do))
    assert rows.effects["o" * 32].status is original


# --- parking what the code no longer asks for --------------------------------------------------------------------


def park(**fields: Any) -> ParkUnasked:
    return ParkUnasked(**{"run_id": "r", "fence": 3, "key": KEY, "vantage": seen_by(1), "stamp": 7} | fields)


@pytest.mark.parametrize(
    ("status", "end_status", "unresolved"),
    [(S.ATTEMPTED, S.PARKED, 1), (S.IN_DOUBT, S.PARKED, 0), (S.INTENDED, S.REFUSED, 0)],
)
def test_an_effect_that_nobody_asks_for_is_parked_and_one_never_sent_is_refused(
    status: Status, end_status: Status, unresolved: int
) -> None:
    rows = live_rows(make_effect(status))
    answer = decide(rows, park())
    after = rows.the_effect
    assert (answer.verdict, answer.effect is not None and answer.effect.status) == (V.DONE, end_status)
    assert (after.status, after.owner, after.fence, after.unresolved) == (end_status, 0, 2, unresolved)
    assert "no longer asks for it" in after.reason


@pytest.mark.parametrize("status", sorted(set(Status) - OPEN | {S.PARKED}))
def test_what_is_settled_or_parked_already_is_left_alone(status: Status) -> None:
    rows = live_rows(make_effect(status))
    held = rows.the_effect
    assert decide(rows, park()).verdict is V.DONE
    dropped = status is S.PARKED  # a run that dropped it does not send it, whatever a person says later
    assert rows.the_effect == (replace(held, holder="", stamp=rows.the_effect.stamp) if dropped else held)


def test_an_effect_of_another_run_or_in_live_hands_is_left_to_them() -> None:
    for held in (make_effect(run="r2", owner=0), make_effect(owner=2, holder="r2")):
        rows = live_rows(held)
        assert decide(rows, park()).verdict is V.DONE
        assert rows.the_effect == held


def test_a_stale_owner_parks_nothing_and_what_is_not_there_is_missing() -> None:
    rows = live_rows(make_effect())
    assert decide(rows, park(fence=2)).verdict is V.FENCED
    assert rows.the_effect == make_effect()
    assert decide(live_rows(), park()).verdict is V.MISSING


def test_what_is_held_for_the_run_is_its_owners_to_park_even_from_a_live_process() -> None:
    rows = live_rows(make_effect(owner=2, holder="r"))
    assert decide(rows, park()).verdict is V.DONE
    assert rows.the_effect.status is S.PARKED
