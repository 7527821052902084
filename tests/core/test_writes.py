"""Every write and every verdict it can give. Each is decided twice, as after a commit of unknown outcome."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from surefoot.core.dispatch import WAKE_NOW
from surefoot.core.effect import TERMINAL, Do, Event, Status
from surefoot.core.journal import EntryKind
from surefoot.core.run import FINAL, UNFINISHED, Run, RunDo, RunStatus
from surefoot.core.writes import (
    Append,
    CancelRun,
    ClaimRun,
    EndRun,
    Join,
    RecordEffect,
    StartRun,
    TakeEffect,
    Verdict,
    View,
    Write,
    owned,
)
from tests.core.support import (
    Rows,
    changed,
    decide,
    live_rows,
    make_draft,
    make_effect,
    make_evidence,
    make_owner,
    make_run,
    seen_by,
)

V, S, R = Verdict, Status, RunStatus
KEY = "k" * 32
LARGE = ((b"hash", b"large"),)
INTENT = make_draft("open_ticket", EntryKind.INTENT, KEY.encode())
OUTCOME = make_draft("open_ticket", EntryKind.OUTCOME, b'{"status":"confirmed"}')


def test_the_base_of_all_writes_decides_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Write().decide(Rows())


def test_rows_are_a_view() -> None:
    view: View = Rows()
    assert view.run("r") is None


@pytest.mark.parametrize("status", list(RunStatus))
def test_only_the_holder_of_the_fence_token_of_a_running_run_may_write(status: RunStatus) -> None:
    run = make_run(status)
    assert owned(run, 3) is (V.DONE if status is R.RUNNING else V.FENCED)
    assert owned(run, 2) is owned(run, 4) is V.FENCED
    assert owned(None, 3) is V.MISSING


def test_a_process_that_joins_is_known_and_may_extend_its_lease() -> None:
    rows = Rows(make_owner(1))
    assert decide(rows, Join(owner=make_owner(1, lease_until=500.0))).verdict is V.DONE
    assert rows.owners[1].lease_until == 500.0


# --- runs --------------------------------------------------------------------------------------------------------


def test_a_run_is_started_with_its_large_arguments() -> None:
    rows = Rows()
    answer = decide(rows, StartRun(run_id="r", run=make_run(stamp=7), blobs=LARGE, stamp=7))
    assert (answer.verdict, answer.run, rows.blobs) == (V.DONE, make_run(stamp=7), dict(LARGE))


def test_an_id_that_is_taken_is_shown_and_left_alone() -> None:
    held = make_run(workflow="other", stamp=6)
    rows = Rows(held)
    answer = decide(rows, StartRun(run_id="r", run=make_run(stamp=7), blobs=LARGE, stamp=7))
    assert (answer.verdict, answer.run, rows.runs, rows.blobs) == (V.EXISTS, held, {"r": held}, {})


def claim(owner: int = 2, stamp: int = 7, why: str = "", gone: frozenset[int] = frozenset()) -> ClaimRun:
    return ClaimRun(run_id="r", vantage=seen_by(owner, gone=gone), why=why, stamp=stamp)


def test_a_run_that_does_not_exist_cannot_be_claimed() -> None:
    assert decide(Rows(), claim()).verdict is V.MISSING


@pytest.mark.parametrize("status", sorted(FINAL))
def test_a_run_that_has_ended_is_shown_and_not_claimed(status: RunStatus) -> None:
    rows = Rows(make_run(status))
    assert decide(rows, claim()).verdict is V.ENDED
    assert rows.runs["r"] == make_run(status)


def test_a_run_in_live_hands_is_busy_and_names_them() -> None:
    rows = live_rows()
    answer = decide(rows, claim())
    assert (answer.verdict, answer.holder, rows.runs["r"]) == (V.BUSY, "process 1 on h", make_run())


@pytest.mark.parametrize("status", sorted(UNFINISHED - {R.RUNNING}))
def test_a_run_in_nobodys_hands_is_taken_with_a_higher_fence_token(status: RunStatus) -> None:
    rows = Rows(make_run(status, reason="parked"))
    answer = decide(rows, claim())
    assert answer.run is not None and answer.run == rows.runs["r"]
    assert (answer.verdict, answer.run.status, answer.run.fence, answer.run.owner) == (V.TOOK, R.RUNNING, 4, 2)
    assert (answer.run.claims[-1].why, answer.run.stamp) == ("parked", 7)


@pytest.mark.parametrize("gone", [True, False])
def test_a_run_of_an_owner_who_died_is_taken(gone: bool) -> None:
    rows = live_rows()
    if not gone:
        rows.put_owner(make_owner(1, lease_until=50.0))
    answer = decide(rows, claim(gone=frozenset({1}) if gone else frozenset()))
    assert answer.verdict is V.TOOK
    assert rows.runs["r"].claims[-1].why == "the owner died"


def test_why_a_run_was_claimed_is_kept() -> None:
    rows = Rows(make_run(R.PENDING))
    decide(rows, claim(why="a person resumed it"))
    decide(rows, claim(owner=2, stamp=8))
    assert [kept.why for kept in rows.runs["r"].claims] == ["a person resumed it", "the owner died"]


def append(fence: int = 3, stamp: int = 7, slot: str = "a") -> Append:
    return Append(run_id="r", fence=fence, draft=make_draft(slot), blobs=LARGE, stamp=stamp)


def test_the_owner_appends_an_entry_with_its_large_value() -> None:
    rows = live_rows()
    assert decide(rows, append()).verdict is V.DONE
    assert (rows.slots, rows.blobs) == ([(1, "a")], dict(LARGE))


def test_a_stale_owner_appends_nothing() -> None:
    for rows in (live_rows(), Rows(make_run(R.WAITING))):
        assert decide(rows, append(fence=2)).verdict is V.FENCED
        assert (rows.slots, rows.blobs) == ([], {})
    assert decide(Rows(), append()).verdict is V.MISSING


def test_an_entry_of_a_run_that_was_asked_to_stop_is_kept_and_the_owner_told() -> None:
    rows = Rows(make_run(cancel_at=5.0, reason="budget"))
    answer = append().decide(rows)
    assert answer.verdict is V.CANCELLED and answer.run is not None and answer.run.reason == "budget"
    assert rows.slots == [(1, "a")]


def test_an_owner_whose_append_is_tried_again_is_told_that_it_was_asked_to_stop_too() -> None:
    rows = Rows(make_run(cancel_at=5.0))
    assert decide(rows, append()).verdict is V.CANCELLED


def end(do: RunDo, **fields: Any) -> EndRun:
    return EndRun(**{"run_id": "r", "fence": 3, "do": do, "at": 9.0, "stamp": 7} | fields)


@pytest.mark.parametrize(
    ("do", "status"), [(RunDo.SUCCEED, R.SUCCEEDED), (RunDo.FAIL, R.FAILED), (RunDo.CANCEL, R.CANCELLED)]
)
def test_the_end_of_a_run_seals_its_journal(do: RunDo, status: RunStatus) -> None:
    rows = live_rows()
    rows.append("r", make_draft("a"))
    answer = decide(rows, end(do, result=b"42", reason="why", blobs=LARGE))
    ended = rows.runs["r"]
    assert (answer.verdict, answer.run, ended.status, ended.owner) == (V.DONE, ended, status, 0)
    assert (ended.result, ended.reason, (ended.length, ended.head)) == (b"42", "why", rows.seal_of("r"))
    assert rows.blobs == dict(LARGE)


@pytest.mark.parametrize("do", [RunDo.RELEASE, RunDo.SUSPEND, RunDo.DAMAGE])
def test_a_run_that_may_go_on_is_not_sealed(do: RunDo) -> None:
    rows = live_rows()
    rows.append("r", make_draft("a"))
    assert decide(rows, end(do)).verdict is V.DONE
    assert (rows.runs["r"].length, rows.runs["r"].head, rows.runs["r"].tentative) == (0, b"", ())


@pytest.mark.parametrize(("at_claim", "tentative"), [(0, ((7, 8), (0, 2))), (1, ((7, 8), (1, 2))), (2, ((7, 8),))])
def test_what_a_diverged_attempt_appended_is_tentative(at_claim: int, tentative: tuple[tuple[int, int], ...]) -> None:
    rows = Rows(make_run(tentative=((7, 8),)))
    rows.append("r", make_draft("a"))
    rows.append("r", make_draft("b"))
    decide(rows, end(RunDo.DIVERGE, length_at_claim=at_claim))
    assert rows.runs["r"].tentative == tentative


@pytest.mark.parametrize("fence", [2, 4])
def test_a_stale_owner_cannot_end_a_run(fence: int) -> None:
    rows = live_rows()
    assert decide(rows, end(RunDo.SUCCEED, fence=fence, blobs=LARGE)).verdict is V.FENCED
    assert (rows.runs["r"], rows.blobs) == (make_run(), {})
    assert decide(Rows(), end(RunDo.SUCCEED)).verdict is V.MISSING


def test_a_second_end_by_another_write_is_fenced() -> None:
    rows = live_rows()
    decide(rows, end(RunDo.SUCCEED))
    assert decide(rows, end(RunDo.FAIL, stamp=8)).verdict is V.FENCED
    assert rows.runs["r"].status is R.SUCCEEDED


def cancel(stamp: int = 7, at: float = 200.0) -> CancelRun:
    return CancelRun(run_id="r", vantage=seen_by(2, at=at), reason="budget", stamp=stamp)


@pytest.mark.parametrize("status", sorted(UNFINISHED))
def test_an_unfinished_run_is_asked_to_stop_and_the_first_asking_dates_it(status: RunStatus) -> None:
    rows = Rows(make_run(status))
    assert decide(rows, cancel()).verdict is V.DONE
    assert decide(rows, cancel(stamp=8, at=300.0)).verdict is V.DONE
    other = {RunStatus.WAITING: {"wake_at": WAKE_NOW}, RunStatus.RUNNING: {"fences": 2}}.get(status, {})
    assert changed(make_run(status), rows.runs["r"]) == {"cancel_at": 200.0, "reason": "budget", "stamp": 8, **other}


@pytest.mark.parametrize("status", sorted(FINAL))
def test_a_run_that_has_ended_cannot_be_asked_to_stop(status: RunStatus) -> None:
    rows = Rows(make_run(status))
    assert decide(rows, cancel()).verdict is V.ENDED
    assert rows.runs["r"] == make_run(status)
    assert decide(Rows(), cancel()).verdict is V.MISSING


# --- taking an effect --------------------------------------------------------------------------------------------


def take(owner: int = 1, **fields: Any) -> TakeEffect:
    """Owner 1 of run `r` under fence 3, or owner 2 of run `r2`, asks for the effect of identity ticket:acme."""
    run = "r" if owner == 1 else "r2"
    proposal = make_effect(run=run, owner=owner, holder="")
    asked = {"run_id": run, "fence": 3, "effect": proposal, "vantage": seen_by(owner), "draft": INTENT, "stamp": 7}
    return TakeEffect(**asked | fields)


def test_a_new_intent_is_declared_with_its_first_attempt_and_its_entry() -> None:
    rows = live_rows()
    answer = decide(rows, take(blobs=LARGE))
    assert (answer.verdict, answer.effect) == (V.DONE, make_effect(stamp=7))
    assert rows.the_effect == answer.effect and rows.the_effect.status is S.ATTEMPTED
    assert (rows.slots, rows.blobs) == ([(3, "open_ticket")], dict(LARGE))


def test_an_intent_that_was_recorded_and_is_not_in_the_store_is_absent() -> None:
    rows = live_rows()
    assert decide(rows, take(draft=None)).verdict is V.ABSENT
    assert rows.effects == {}


def test_an_effect_outside_a_run_needs_no_entry_and_no_run() -> None:
    rows = Rows()
    outside = replace(make_effect(), run="")
    assert decide(rows, take(run_id="", fence=0, effect=outside, draft=None)).verdict is V.DONE
    assert (list(rows.effects), rows.entries) == ([KEY], {})


@pytest.mark.parametrize(
    ("run", "verdict"), [(make_run(fence=4), V.FENCED), (make_run(R.WAITING), V.FENCED), (None, V.MISSING)]
)
def test_a_stale_owner_declares_nothing_and_takes_nothing(run: Run | None, verdict: Verdict) -> None:
    for held in ([], [make_effect(S.IN_DOUBT, owner=0)]):
        rows = Rows(*([run] if run else []), *held)
        before = rows.snapshot()
        assert decide(rows, take(blobs=LARGE)).verdict is verdict
        assert rows.snapshot() == before


def test_a_run_that_was_asked_to_stop_makes_no_new_intent_and_still_settles_old_ones() -> None:
    stopping = make_run(cancel_at=5.0)
    rows = Rows(stopping)
    assert decide(rows, take()).verdict is V.CANCELLED
    assert (rows.effects, rows.slots) == ({}, [])
    rows = Rows(stopping, make_effect(S.IN_DOUBT, owner=0))
    assert decide(rows, take(draft=None)).verdict is V.TOOK


def test_an_effect_in_live_hands_is_busy_and_names_them() -> None:
    rows = live_rows(make_effect())
    answer = decide(rows, take(owner=2))
    assert (answer.verdict, answer.holder, rows.the_effect) == (V.BUSY, "process 1 on h", make_effect())
    assert rows.entries == {}


def test_taking_over_what_a_dead_owner_had_sent_leaves_it_in_doubt_under_a_higher_fence_token() -> None:
    rows = live_rows(make_effect())
    answer = decide(rows, take(owner=2, vantage=seen_by(2, gone=frozenset({1}))))
    taken = rows.the_effect
    assert (answer.verdict, answer.effect) == (V.TOOK, taken)
    assert (taken.status, taken.fence, taken.owner, taken.unresolved, taken.stamp) == (S.IN_DOUBT, 2, 2, 1, 7)
    assert "sender stopped" in taken.reason
    assert [(e.kind, e.found, e.who, e.attempt) for e in taken.evidence] == [("claim", "attempted", "r2", 1)]
    assert [entry.slot for entry in rows.entries["r2"]] == ["open_ticket"]


@pytest.mark.parametrize("status", [S.INTENDED, S.IN_DOUBT])
def test_taking_over_what_was_not_under_way_changes_only_whose_it_is(status: Status) -> None:
    held = make_effect(status, owner=0, holder="r2", unresolved=1)
    rows = live_rows(held)
    assert decide(rows, take(draft=None)).verdict is V.TOOK
    assert set(changed(held, rows.the_effect)) == {
        "fence",
        "owner",
        "holder",
        "taken_over",
        "evidence",
        "stamp",
    }
    assert (rows.the_effect.fence, rows.the_effect.owner, rows.the_effect.holder) == (2, 1, "r")


def test_taking_ones_own_effect_again_fences_what_one_had_begun() -> None:
    rows = live_rows(make_effect())
    assert decide(rows, take(draft=None)).verdict is V.TOOK
    assert (rows.the_effect.status, rows.the_effect.fence) == (S.IN_DOUBT, 2)


def test_whoever_owns_the_run_owns_what_is_held_for_it_even_from_a_live_process() -> None:
    """The run was released to owner 2 while owner 1 lives on: the fence of the run is what counts."""
    rows = live_rows(make_effect(owner=1, holder="r2"))
    assert decide(rows, take(owner=2)).verdict is V.TOOK
    assert (rows.the_effect.owner, rows.the_effect.holder) == (2, "r2")


def test_outside_a_run_a_live_process_keeps_what_it_holds() -> None:
    outside = replace(make_effect(), run="", holder="", owner=2)
    rows = live_rows(outside)
    asked = take(run_id="", fence=0, effect=replace(outside, owner=1), draft=None)
    assert decide(rows, asked).verdict is V.BUSY


@pytest.mark.parametrize("status", sorted(TERMINAL | {S.PARKED}))
def test_what_is_settled_or_parked_is_shown_and_its_entry_recorded(status: Status) -> None:
    held = make_effect(status, owner=0, receipt=b'"T-1"')
    rows = live_rows(held)
    answer = decide(rows, take(owner=2))
    assert (answer.verdict, answer.effect, rows.the_effect) == (V.EXISTS, held, held)
    assert [entry.slot for entry in rows.entries["r2"]] == ["open_ticket"]


DIFFERENT = replace(make_effect(run="r2", owner=2), request=b'{"who":"bolt"}', request_digest=b"e" * 16)


@pytest.mark.parametrize("status", list(Status))
def test_another_request_under_the_identity_is_kept_once_and_never_sent(status: Status) -> None:
    held = make_effect(status, owner=1)
    rows = live_rows(held)
    for stamp in (7, 8):
        assert decide(rows, take(owner=2, effect=DIFFERENT, stamp=stamp)).verdict is V.DISAGREES
    assert changed(held, rows.the_effect) == {"evidence": rows.the_effect.evidence}
    [kept] = rows.the_effect.evidence
    assert (kept.kind, kept.value, kept.who, kept.text) == ("disagreement", DIFFERENT.request, "r2", "open_ticket")
    assert rows.entries == {}


def test_each_other_proposal_is_kept() -> None:
    rows = live_rows(make_effect())
    decide(rows, take(owner=2, effect=DIFFERENT))
    decide(rows, take(owner=2, effect=replace(DIFFERENT, request=b"{}"), stamp=8))
    assert [e.value for e in rows.the_effect.evidence] == [DIFFERENT.request, b"{}"]


def test_the_same_request_by_another_effect_disagrees_unless_it_names_its_former_name() -> None:
    renamed = replace(make_effect(), name="create_ticket")
    rows = live_rows(make_effect(S.IN_DOUBT, owner=0))
    assert decide(rows, take(effect=renamed)).verdict is V.DISAGREES
    assert decide(rows, take(effect=renamed, names=("create_ticket", "open_ticket"), stamp=8)).verdict is V.TOOK
    assert rows.the_effect.name == "open_ticket"


# --- recording what happened to it -------------------------------------------------------------------------------


def record(do: Do | None, **fields: Any) -> RecordEffect:
    event = None if do is None else Event(do=do, at=210.0, receipt=b'"T-1"' if do is Do.CONFIRM else b"")
    asked = {"run_id": "r", "key": KEY, "effect_fence": 1, "run_fence": 3, "event": event, "stamp": 7}
    return RecordEffect(**asked | fields)


def test_a_confirmation_is_recorded_together_with_its_entry_and_ends_every_other_hold() -> None:
    rows = live_rows(make_effect())
    answer = decide(rows, record(Do.CONFIRM, draft=OUTCOME, blobs=LARGE))
    after = rows.the_effect
    assert (answer.verdict, answer.effect) == (V.DONE, after)
    assert (after.status, after.receipt, after.owner, after.fence) == (S.CONFIRMED, b'"T-1"', 0, 2)
    assert (rows.slots, rows.blobs) == ([(4, "open_ticket")], dict(LARGE))


@pytest.mark.parametrize(("do", "status"), [(Do.REFUSE, S.REFUSED), (Do.PARK, S.PARKED)])
def test_what_is_refused_or_parked_is_in_nobodys_hands(do: Do, status: Status) -> None:
    rows = live_rows(make_effect(S.IN_DOUBT))
    decide(rows, record(do))
    assert (rows.the_effect.status, rows.the_effect.owner, rows.the_effect.fence) == (status, 0, 2)


@pytest.mark.parametrize(("release", "owner"), [(False, 1), (True, 0)])
def test_what_stays_open_stays_in_the_holders_hands_unless_it_lets_go(release: bool, owner: int) -> None:
    rows = live_rows(make_effect())
    decide(rows, record(Do.LOSE, release=release))
    assert (rows.the_effect.status, rows.the_effect.owner, rows.the_effect.fence) == (S.IN_DOUBT, owner, 1)


def test_evidence_alone_is_added_once() -> None:
    rows = live_rows(make_effect(S.IN_DOUBT))
    no = make_evidence("lookup", "absent")
    assert decide(rows, record(None, evidence=no)).verdict is V.DONE
    assert changed(make_effect(S.IN_DOUBT), rows.the_effect) == {"evidence": (no,), "stamp": 7}


LANDED = make_evidence("answer", "landed", value=b'"T-1"')
AS_LATE = replace(LANDED, kind="late", who="r")


@pytest.mark.parametrize("status", list(Status))
def test_an_answer_that_comes_after_the_effect_was_taken_is_kept_as_evidence_and_moves_nothing(status: Status) -> None:
    held = make_effect(status, fence=2, owner=2, stamp=6)
    rows = live_rows(held)
    answer = decide(rows, record(Do.CONFIRM, late=LANDED, draft=OUTCOME, blobs=LARGE))
    assert answer.verdict is V.EXISTS
    assert changed(held, rows.the_effect) == {"evidence": (AS_LATE,)}
    assert (rows.slots, rows.blobs) == ([], dict(LARGE))


def test_an_answer_that_comes_after_the_run_was_taken_is_kept_too_and_the_owner_stopped() -> None:
    rows = Rows(make_run(fence=4), make_effect())
    assert decide(rows, record(Do.CONFIRM, late=LANDED, draft=OUTCOME)).verdict is V.FENCED
    assert changed(make_effect(), rows.the_effect) == {"evidence": (AS_LATE,)}
    assert rows.slots == []


def test_the_evidence_of_the_event_is_kept_when_no_other_is_named() -> None:
    rows = Rows(make_run(fence=4), make_effect())
    event = Event(do=Do.LOSE, at=210.0, evidence=LANDED)
    decide(rows, record(Do.LOSE, event=event))
    assert rows.the_effect.evidence == (AS_LATE,)


def test_a_stale_owner_who_learned_nothing_leaves_nothing() -> None:
    rows = Rows(make_run(fence=4), make_effect())
    assert decide(rows, record(Do.LOSE, blobs=LARGE)).verdict is V.FENCED
    assert (rows.the_effect, rows.blobs) == (make_effect(), {})


def test_an_effect_that_is_not_in_the_store_cannot_be_recorded() -> None:
    assert decide(live_rows(), record(Do.CONFIRM)).verdict is V.MISSING


def test_an_effect_outside_a_run_is_fenced_by_its_own_token_alone() -> None:
    rows = Rows(make_effect(run=""))
    assert decide(rows, record(Do.CONFIRM, run_id="", run_fence=0)).verdict is V.DONE
    assert decide(rows, record(Do.LOSE, run_id="", run_fence=0, stamp=8)).verdict is V.EXISTS


def test_the_confirmation_of_an_undo_compensates_what_it_undoes() -> None:
    original = make_effect(S.CONFIRMED, key="o" * 32, receipt=b'"T-0"')
    rows = live_rows(original, make_effect(compensates="o" * 32))
    decide(rows, record(Do.CONFIRM))
    undone = rows.effects["o" * 32]
    assert (undone.status, undone.receipt, undone.reason) == (S.COMPENSATED, b'"T-0"', "undone by kkkkkkkkkkkk")


@pytest.mark.parametrize("do", [Do.REFUSE, Do.LOSE])
def test_an_undo_that_did_not_happen_compensates_nothing(do: Do) -> None:
    original = make_effect(S.CONFIRMED, key="o" * 32)
    rows = live_rows(original, make_effect(compensates="o" * 32))
    decide(rows, record(do))
    assert rows.effects["o" * 32] == original
