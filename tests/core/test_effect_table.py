"""Every status x every move of an effect, and the properties that the table must have as a whole."""

from __future__ import annotations

from itertools import product

import pytest

from surefoot.core.contract import keyed, opaque
from surefoot.core.effect import (
    EVIDENCE_MAX,
    OPEN,
    TERMINAL,
    TRANSITIONS,
    Do,
    Effect,
    Event,
    Evidence,
    IllegalMove,
    Status,
    apply,
    with_evidence,
)
from tests.core.support import changed, make_effect, make_evidence

S, D = Status, Do
NOW = 777.0
UNRESOLVED = {S.IN_DOUBT, S.PARKED}
LEGAL = {
    (S.INTENDED, D.ATTEMPT): S.ATTEMPTED,
    (S.INTENDED, D.GIVE_UP): S.REFUSED,
    (S.ATTEMPTED, D.CONFIRM): S.CONFIRMED,
    (S.ATTEMPTED, D.REFUSE): S.REFUSED,
    (S.ATTEMPTED, D.UNSEND): S.INTENDED,
    (S.ATTEMPTED, D.REDOUBT): S.IN_DOUBT,
    (S.ATTEMPTED, D.LOSE): S.IN_DOUBT,
    (S.IN_DOUBT, D.ATTEMPT): S.ATTEMPTED,
    (S.IN_DOUBT, D.CONFIRM): S.CONFIRMED,
    (S.IN_DOUBT, D.REFUSE): S.REFUSED,
    (S.IN_DOUBT, D.ABSENT): S.INTENDED,
    (S.IN_DOUBT, D.PARK): S.PARKED,
    (S.PARKED, D.CONFIRM): S.CONFIRMED,
    (S.PARKED, D.HAPPENED): S.CONFIRMED,
    (S.PARKED, D.DID_NOT_HAPPEN): S.INTENDED,
    (S.PARKED, D.ABANDON): S.ABANDONED,
    (S.CONFIRMED, D.COMPENSATE): S.COMPENSATED,
}
STORES_REFUSALS = keyed(1000.0, stores_refusals=True)


def standing(status: Status) -> Effect:
    """An effect as it may well stand in this status, with every counter away from its default."""
    doubted = {"unresolved": 2, "doubted_at": 130.0} if status in UNRESOLVED else {}
    return make_effect(
        status, STORES_REFUSALS, attempts=3, unsent=1, unsent_at=90.0, reason="before", receipt=b"", **doubted
    )


def event(do: Do, **fields: object) -> Event:
    return Event(do=do, at=NOW, reason="why", deadline_at=NOW + 10, receipt=b'"T-1"', **fields)  # type: ignore[arg-type]


CLEARED = {"unresolved": 0, "unsent": 0, "unsent_at": 0.0, "doubted_at": 0.0}
FIELDS: dict[Do, dict[str, object]] = {
    D.ATTEMPT: {"attempts": 4, "attempted_at": NOW, "deadline_at": NOW + 10, "reason": "", "first_sent_at": 100.0},
    D.UNSEND: {"unsent": 2, "unsent_at": 90.0, "reason": "why"},
    D.LOSE: {"unresolved": 1, "doubted_at": NOW, "reason": "why"},
    D.ABSENT: {**CLEARED, "reason": "why"},
    D.DID_NOT_HAPPEN: {**CLEARED, "reason": "why"},
    D.CONFIRM: {"unresolved": 0, "receipt": b'"T-1"', "reason": "why"},
    D.HAPPENED: {"unresolved": 0, "receipt": b'"T-1"', "reason": "why"},
}


@pytest.mark.parametrize(("status", "do"), list(product(Status, Do)))
def test_every_move_is_either_in_the_table_or_illegal(status: Status, do: Do) -> None:
    before = standing(status)
    if (status, do) not in LEGAL:
        with pytest.raises(IllegalMove, match=f"{status} cannot {do}"):
            apply(before, event(do))
        return
    after = apply(before, event(do))
    asked = {"status": LEGAL[status, do], "updated_at": NOW, **FIELDS.get(do, {"reason": "why"})}
    same = {name: value for name, value in asked.items() if getattr(before, name) == value}
    assert changed(before, after) | same == asked


@pytest.mark.parametrize(
    ("status", "do"), [(S.IN_DOUBT, D.ABSENT), (S.PARKED, D.DID_NOT_HAPPEN), (S.ATTEMPTED, D.UNSEND)]
)
def test_a_key_that_may_hold_a_stored_refusal_goes_on_ageing_and_another_starts_anew(status: Status, do: Do) -> None:
    assert apply(make_effect(status, STORES_REFUSALS, attempts=2, unresolved=0), event(do)).first_sent_at == 100.0
    assert apply(make_effect(status, keyed(1000.0), attempts=2, unresolved=0), event(do)).first_sent_at == 0.0


def test_the_table_is_the_one_that_the_tests_know() -> None:
    assert TRANSITIONS == LEGAL


def test_a_first_attempt_starts_the_clock_of_the_key() -> None:
    after = apply(make_effect(S.INTENDED, first_sent_at=0.0, attempts=0, deadline_at=0.0), event(D.ATTEMPT))
    assert (after.first_sent_at, after.attempts, after.deadline_at) == (NOW, 1, NOW + 10)


def test_a_later_attempt_never_shortens_the_time_that_earlier_ones_need_to_settle() -> None:
    after = apply(make_effect(S.IN_DOUBT, deadline_at=NOW + 500), event(D.ATTEMPT))
    assert after.deadline_at == NOW + 500


def test_the_first_unsent_try_starts_the_budget_and_later_ones_keep_its_start() -> None:
    first = apply(make_effect(), event(D.UNSEND))
    assert (first.unsent, first.unsent_at) == (1, NOW)
    again = apply(apply(first, Event(do=D.ATTEMPT, at=800.0)), Event(do=D.UNSEND, at=801.0))
    assert (again.unsent, again.unsent_at, again.first_sent_at) == (2, NOW, 0.0)


def test_the_first_loss_starts_the_doubt_and_later_ones_keep_its_start() -> None:
    first = apply(make_effect(), event(D.LOSE))
    again = apply(apply(first, Event(do=D.ATTEMPT, at=800.0)), Event(do=D.LOSE, at=801.0))
    assert (again.unresolved, again.doubted_at) == (2, NOW)


def test_a_redoubt_keeps_the_earlier_doubt_and_counts_no_new_one() -> None:
    before = make_effect(unresolved=1, doubted_at=120.0)
    after = apply(before, event(D.REDOUBT))
    assert (after.status, after.unresolved, after.doubted_at) == (S.IN_DOUBT, 1, 120.0)


def test_what_has_an_unresolved_earlier_send_cannot_become_unsent() -> None:
    with pytest.raises(IllegalMove, match="unresolved"):
        apply(make_effect(unresolved=1), event(D.UNSEND))


@pytest.mark.parametrize("status", [S.ATTEMPTED, S.IN_DOUBT])
def test_a_refusal_after_an_unresolved_send_counts_only_if_the_contract_stores_refusals(status: Status) -> None:
    refusal = Event(do=D.REFUSE, at=NOW, reason="422")
    with pytest.raises(IllegalMove, match="proves nothing"):
        apply(make_effect(status, unresolved=1), refusal)
    with pytest.raises(IllegalMove, match="proves nothing"):
        apply(make_effect(status, opaque(at_least_once=True), unresolved=1), refusal)
    assert apply(make_effect(status, STORES_REFUSALS, unresolved=1), refusal).status is S.REFUSED
    assert apply(make_effect(status), refusal).status is S.REFUSED


def test_a_compensated_effect_keeps_the_receipt_of_what_was_undone() -> None:
    after = apply(make_effect(S.CONFIRMED, receipt=b'"T-1"'), Event(do=D.COMPENSATE, at=NOW, reason="undone"))
    assert (after.receipt, after.reason) == (b'"T-1"', "undone")


def test_a_move_brings_its_evidence_along_behind_what_is_known() -> None:
    old, new = make_evidence("lookup", "absent"), make_evidence("decision", "happened", who="ada")
    after = apply(make_effect(S.PARKED, evidence=(old,)), event(D.HAPPENED, evidence=new))
    assert after.evidence == (old, new)


def reachable(start: Status) -> set[Status]:
    seen, open_ends = {start}, [start]
    while open_ends:
        here = open_ends.pop()
        for (source, _), target in TRANSITIONS.items():
            if source is here and target not in seen:
                seen.add(target)
                open_ends.append(target)
    return seen


def test_every_status_can_be_reached_from_an_intent() -> None:
    assert reachable(S.INTENDED) == set(Status)


@pytest.mark.parametrize("status", sorted(OPEN))
def test_no_open_status_is_a_dead_end(status: Status) -> None:
    assert reachable(status) & TERMINAL


def test_nothing_leaves_a_terminal_status_except_a_confirmed_effect_that_is_undone() -> None:
    leaving = {move for move in TRANSITIONS if move[0] in TERMINAL}
    assert leaving == {(S.CONFIRMED, D.COMPENSATE)}
    assert set(Status) == OPEN | TERMINAL and not OPEN & TERMINAL


def test_doubt_leaves_only_by_proof_by_a_harmless_repeat_or_to_a_person() -> None:
    assert {do for status, do in TRANSITIONS if status is S.IN_DOUBT} == {
        D.CONFIRM,
        D.REFUSE,
        D.ABSENT,
        D.ATTEMPT,
        D.PARK,
    }


def test_what_is_parked_leaves_only_by_a_persons_decision_or_a_proof() -> None:
    leaving = {do for status, do in TRANSITIONS if status is S.PARKED}
    assert leaving == {D.HAPPENED, D.DID_NOT_HAPPEN, D.ABANDON, D.CONFIRM}


def full_of(*evidence: Evidence) -> Effect:
    effect = make_effect(S.IN_DOUBT)
    for piece in evidence:
        effect = with_evidence(effect, piece)
    return effect


@pytest.mark.parametrize("kind", ["lookup", "answer", "claim"])
def test_the_oldest_routine_evidence_makes_room_when_it_grows_too_long(kind: str) -> None:
    decision = make_evidence("decision", "did_not_happen", who="ada")
    routine = [make_evidence(kind, "x", at=float(at)) for at in range(3 * EVIDENCE_MAX)]
    kept = full_of(decision, *routine).evidence
    assert kept == (decision, *routine[-EVIDENCE_MAX + 1 :])


def test_no_evidence_is_no_change() -> None:
    effect = make_effect()
    assert with_evidence(effect, None) is effect


@pytest.mark.parametrize("kind", ["decision", "late"])
def test_many_disagreements_push_out_neither_a_decision_nor_a_late_proof(kind: str) -> None:
    kept_for_ever = make_evidence(kind, "landed", value=b'"T-1"')
    others = [make_evidence("disagreement", "other request", value=b"%d" % n) for n in range(2 * EVIDENCE_MAX)]
    assert kept_for_ever in full_of(kept_for_ever, *others).evidence


def test_many_disagreements_leave_room_for_what_the_receiver_says() -> None:
    """Else each lookup's answer is dropped as it comes, and the receiver is asked for ever."""
    others = [make_evidence("disagreement", "other request", value=b"%d" % n) for n in range(2 * EVIDENCE_MAX)]
    no = make_evidence("lookup", "absent")
    assert no in full_of(*others, no).evidence
