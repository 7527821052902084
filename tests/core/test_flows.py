"""Runs and steps as flows, driven against a list of answers: which commands they ask for, in which order."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from surefoot.core.commands import Commit, Execute, Look, ReadBlob, ReadRun, Record, Result, Sleep
from surefoot.core.digest import BLOB_MARK, blob_hash, short_digest
from surefoot.core.errors import CancelRequested, Damaged, Diverged, LeaseLost, RunBusy, RunMismatch
from surefoot.core.flows import (
    POLL_SECONDS,
    begin_run,
    end_run,
    mark,
    open_run,
    preview_of,
    spill,
    step,
    take_run,
    unspill,
)
from surefoot.core.journal import Draft, EntryKind
from surefoot.core.run import RunDo, RunStatus
from surefoot.core.writes import Answer, ClaimRun, EndRun, StartRun, Verdict
from tests.core.scripted import FakeStep, Script, make_state
from tests.core.support import make_draft, make_run, seen_by

STEP, FAILURE, INTENT, OUTCOME, MARK = EntryKind
ARGS = b'{"who":"acme"}'
DIGEST = short_digest(ARGS)
PREVIEW = '"who":"acme"'
OK = Result(True, b"42", 42)
BAD = Result(False, b'{"type":"ValueError","message":"no"}', None)


# --- steps -------------------------------------------------------------------------------------------------------


def test_a_step_is_executed_once_and_recorded_before_it_returns() -> None:
    state, call = make_state(), FakeStep("a", arguments=ARGS)
    script = Script(step(state, call), OK, None)
    assert script.result == (True, b"42", OK)
    assert script.commands == [Execute(call, 1), Record(Draft(STEP, "a", DIGEST, PREVIEW, b"42", 0.0, 1), ())]


def test_a_failing_step_is_tried_again_after_its_delay_and_the_last_failure_is_recorded() -> None:
    state, call = make_state(), FakeStep("a", arguments=ARGS, retries=2)
    script = Script(step(state, call), BAD, None, BAD, None, BAD, None)
    assert script.result == (False, BAD.stored, BAD)
    record = Record(Draft(FAILURE, "a", DIGEST, PREVIEW, BAD.stored, 0.0, 3), ())
    tries = [Execute(call, 1), Sleep(10.0), Execute(call, 2), Sleep(20.0), Execute(call, 3)]
    assert script.commands == [*tries, record]


def test_a_step_that_succeeds_at_last_records_how_often_it_was_tried() -> None:
    call = FakeStep("a", retries=5)
    script = Script(step(make_state(), call), BAD, None, OK, None)
    assert script.result[0] is True
    assert [type(command) for command in script.commands] == [Execute, Sleep, Execute, Record]
    assert script.commands[-1].draft.attempts == 2


def test_a_failure_that_is_certain_to_come_again_is_not_retried() -> None:
    final = Result(False, BAD.stored, None, retryable=False)
    script = Script(step(make_state(), FakeStep("a", retries=5)), final, None)
    assert [type(command) for command in script.commands] == [Execute, Record]


@pytest.mark.parametrize(("kind", "ok"), [(STEP, True), (FAILURE, False)])
def test_a_recorded_step_asks_for_nothing(kind: EntryKind, ok: bool) -> None:
    state = make_state(make_draft("a", kind, b"42", args_digest=DIGEST))
    assert Script(step(state, FakeStep("a", arguments=ARGS))).result == (ok, b"42", None)


def test_a_large_result_is_recorded_by_its_hash_beside_the_value() -> None:
    large = Result(True, b'"' + b"x" * 100 + b'"', None)
    script = Script(step(make_state(inline_bytes=50), FakeStep("a")), large, None)
    name = blob_hash(large.stored)
    assert script.commands[-1].draft.value == BLOB_MARK + name
    assert script.commands[-1].blobs == ((name, large.stored),)
    assert script.result == (True, large.stored, large)


def test_a_recorded_large_result_is_read_from_the_blob_table() -> None:
    state = make_state(make_draft("a", STEP, BLOB_MARK + b"h" * 32, args_digest=short_digest(b"{}")))
    script = Script(step(state, FakeStep("a")), b'"large"')
    assert (script.commands, script.result) == ([ReadBlob(b"h" * 32)], (True, b'"large"', None))


def test_a_step_with_other_arguments_diverges_before_its_body_runs() -> None:
    state = make_state(make_draft("a", STEP, b"42", args_digest=b"other"))
    assert isinstance(Script(step(state, FakeStep("a"))).raised, Diverged)


def test_a_step_that_is_interrupted_records_nothing() -> None:
    script = Script(step(make_state(), FakeStep("a", retries=3)), KeyboardInterrupt())
    assert isinstance(script.raised, KeyboardInterrupt)
    assert [type(command) for command in script.commands] == [Execute]


def test_each_use_of_a_step_has_its_own_slot() -> None:
    state = make_state()
    slots = [Script(step(state, FakeStep("a", branch=state.root)), OK, None).commands[-1].draft.slot for _ in range(3)]
    assert slots == ["a", "a#1", "a#2"]


# --- marks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [True, False])
def test_a_choice_is_recorded_once_and_replayed_ever_after(wait: bool) -> None:
    state = make_state()
    script = Script(mark(state, state.root, "now", b"7", wait=wait), None)
    assert script.commands == [Record(Draft(MARK, "now", b"", "", b"7", 0.0), (), wait)]
    assert script.result == b"7"
    state = make_state(make_draft("now", MARK, b"6"))
    assert Script(mark(state, state.root, "now", b"7")).result == b"6"


def test_asking_for_a_choice_without_making_one_records_nothing() -> None:
    state = make_state()
    assert Script(mark(state, state.root, "patched", None)).result is None


# --- large values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "spilled"), [(9, False), (10, False), (11, True)])
def test_a_value_is_spilled_when_it_is_longer_than_the_limit(size: int, spilled: bool) -> None:
    value, blobs = spill(b"x" * size, 10)
    assert bool(blobs) is spilled
    script = Script(unspill(value), *(blob for _, blob in blobs))
    assert script.result == b"x" * size
    assert script.commands == [ReadBlob(name) for name, _ in blobs]


def test_a_preview_is_short_and_never_breaks_on_a_cut_character() -> None:
    assert preview_of(ARGS) == PREVIEW
    assert preview_of(b"{}") == ""
    long = preview_of(('{"a":"' + "é" * 100 + '"}').encode())
    assert len(long) <= 80
    long.encode()


# --- opening a run -----------------------------------------------------------------------------------------------

PROPOSAL = make_run(fence=1, stamp=1, claims=())
START = Commit(StartRun(run_id="r", run=PROPOSAL, stamp=1))


def claim(stamp: int, suspect: int = 0) -> list[Any]:
    gone = frozenset({suspect}) if suspect else frozenset()
    return [Look(suspect), Commit(ClaimRun(run_id="r", vantage=seen_by(1, gone=gone), why="", stamp=stamp))]


def stamps() -> Any:
    return iter(range(100, 200))


def test_a_new_run_takes_one_commit() -> None:
    script = Script(open_run(PROPOSAL, stamps(), (), "wait"), Answer(Verdict.DONE, run=PROPOSAL))
    assert (script.commands, script.result) == ([START], (PROPOSAL, []))


def test_a_run_that_stands_under_the_id_is_claimed_and_its_journal_read_in_one_query() -> None:
    held = make_run(RunStatus.WAITING)
    taken = make_run(fence=4)
    answers = [Answer(Verdict.EXISTS, run=held), seen_by(1), Answer(Verdict.TOOK, run=taken), (taken, ["entries"])]
    script = Script(open_run(PROPOSAL, stamps(), (), "wait"), *answers)
    assert script.commands == [START, *claim(100), ReadRun("r")]
    assert script.result == (taken, ["entries"])


@pytest.mark.parametrize("held", [make_run(args_digest=b"other", arguments=b'{"a":2}'), make_run(workflow="w2")])
def test_an_id_of_another_workflow_or_other_arguments_is_a_mismatch_that_shows_both(held: Any) -> None:
    script = Script(begin_run(PROPOSAL, ()), Answer(Verdict.EXISTS, run=held))
    assert isinstance(script.raised, RunMismatch)
    assert (script.raised.asked, script.raised.recorded) == ("w()", f"{held.workflow}({preview_of(held.arguments)})")


def test_a_run_that_has_ended_is_returned_as_it_is() -> None:
    ended = make_run(RunStatus.SUCCEEDED, result=b"42")
    script = Script(take_run("r", stamps(), "refuse"), seen_by(1), Answer(Verdict.ENDED, run=ended))
    assert (script.commands, script.result) == (claim(100), (ended, []))


def test_a_live_owner_is_suspected_once_and_then_waited_for() -> None:
    busy = Answer(Verdict.BUSY, run=make_run(owner=2), holder="process 2 on h")
    taken = make_run(fence=4)
    answers = [seen_by(1), busy, seen_by(1), busy, None, seen_by(1), Answer(Verdict.TOOK, run=taken), (taken, [])]
    script = Script(take_run("r", stamps(), "wait"), *answers)
    tested = [Look(2), claim(101)[1]]
    assert script.commands == [*claim(100), *tested, Sleep(POLL_SECONDS), Look(2), claim(102)[1], ReadRun("r")]


def test_a_dead_owner_is_found_at_the_first_suspicion_and_taken_over_without_waiting() -> None:
    busy = Answer(Verdict.BUSY, run=make_run(owner=2), holder="process 2 on h")
    taken = make_run(fence=4)
    seen = seen_by(1, gone=frozenset({2}))
    script = Script(
        take_run("r", stamps(), "wait"), seen_by(1), busy, seen, Answer(Verdict.TOOK, run=taken), (taken, [])
    )
    assert script.commands == [*claim(100), *claim(101, suspect=2), ReadRun("r")]


def test_a_live_run_is_refused_when_that_was_asked_for_and_its_holder_named() -> None:
    busy = Answer(Verdict.BUSY, run=make_run(owner=2), holder="process 2 on h")
    script = Script(take_run("r", stamps(), "refuse"), seen_by(1), busy, seen_by(1), busy)
    assert isinstance(script.raised, RunBusy) and script.raised.holder == "process 2 on h"


def test_a_run_that_vanished_stops_the_asker() -> None:
    script = Script(take_run("r", stamps(), "wait"), seen_by(1), Answer(Verdict.MISSING))
    assert isinstance(script.raised, LeaseLost)


def test_a_damaged_journal_ends_the_claim_as_damaged_and_raises() -> None:
    taken = make_run(fence=4)
    damaged = Damaged("entry 3", "its bytes do not match its digest")
    script = Script(take_run("r", stamps(), "wait"), seen_by(1), Answer(Verdict.TOOK, run=taken), damaged, None)
    end = EndRun(run_id="r", fence=4, do=RunDo.DAMAGE, at=200.0, reason=str(damaged), stamp=101)
    assert script.commands == [*claim(100), ReadRun("r"), Commit(end)]
    assert script.raised is damaged


# --- ending it ---------------------------------------------------------------------------------------------------

END = EndRun(run_id="r", fence=3, do=RunDo.SUCCEED, at=9.0, result=b"42", stamp=5)


def test_ending_a_run_takes_one_commit() -> None:
    done = Answer(Verdict.DONE, run=replace(make_run(), status=RunStatus.SUCCEEDED))
    script = Script(end_run(make_state(), END), done)
    assert (script.commands, script.result) == ([Commit(END)], done)


@pytest.mark.parametrize(
    ("verdict", "signal"),
    [(Verdict.FENCED, LeaseLost), (Verdict.MISSING, LeaseLost), (Verdict.CANCELLED, CancelRequested)],
)
def test_a_verdict_that_ends_the_right_to_work_stops_the_run(verdict: Verdict, signal: type[BaseException]) -> None:
    script = Script(end_run(make_state(), END), Answer(verdict, run=make_run(reason="budget")))
    assert isinstance(script.raised, signal)
