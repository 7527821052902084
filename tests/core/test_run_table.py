"""Every status x every move of a run, and who owns it afterwards."""

from __future__ import annotations

from itertools import product

import pytest

from surefoot.core.effect import IllegalMove
from surefoot.core.run import (
    CLAIMS_MAX,
    FINAL,
    RUN_TRANSITIONS,
    UNFINISHED,
    Claimed,
    RunDo,
    RunStatus,
    Waits,
    apply_run,
)
from tests.core.support import changed, make_run

R, D = RunStatus, RunDo
LEGAL = {
    **{(status, D.CLAIM): R.RUNNING for status in UNFINISHED},
    **{(status, D.CANCEL): R.CANCELLED for status in UNFINISHED},
    **{(status, D.RETRY): R.PENDING for status in (R.WAITING, R.DIVERGED, R.DAMAGED, R.QUARANTINED)},
    (R.RUNNING, D.QUARANTINE): R.QUARANTINED,
    (R.RUNNING, D.RELEASE): R.PENDING,
    (R.RUNNING, D.SUSPEND): R.WAITING,
    (R.RUNNING, D.DIVERGE): R.DIVERGED,
    (R.RUNNING, D.DAMAGE): R.DAMAGED,
    (R.RUNNING, D.SUCCEED): R.SUCCEEDED,
    (R.RUNNING, D.FAIL): R.FAILED,
}


@pytest.mark.parametrize(("status", "do"), list(product(RunStatus, RunDo)))
def test_every_move_is_either_in_the_table_or_illegal(status: RunStatus, do: RunDo) -> None:
    before = make_run(status, owner=1, reason="before", result=b"old")
    if (status, do) not in LEGAL:
        with pytest.raises(IllegalMove, match=f"{status} cannot {do}"):
            apply_run(before, do, 9.0, owner=2)
        return
    after = apply_run(before, do, 9.0, owner=2, why="why", result=b"new")
    assert after.status is LEGAL[status, do]
    assert after.updated_at == 9.0
    if do is D.CLAIM:
        assert (after.fence, after.owner, after.reason, after.result) == (before.fence + 1, 2, "", b"old")
        assert after.claims == (Claimed(at=9.0, owner=2, fence=before.fence + 1, why="why"),)
    else:
        assert (after.fence, after.owner, after.reason, after.result) == (before.fence, 0, "why", b"new")
        assert after.claims == before.claims


def test_the_table_is_the_one_that_the_tests_know() -> None:
    assert RUN_TRANSITIONS == LEGAL


def test_a_final_run_never_moves_again_and_every_other_can_still_end() -> None:
    assert not {status for status, _ in RUN_TRANSITIONS} & FINAL
    assert {status for status, do in RUN_TRANSITIONS if do is D.CANCEL} == UNFINISHED
    assert {R.SUCCEEDED, R.FAILED, R.CANCELLED} == FINAL
    assert set(RunStatus) == FINAL | UNFINISHED


def test_every_unfinished_run_can_be_claimed_so_nothing_is_stuck() -> None:
    assert {status for status, do in RUN_TRANSITIONS if do is D.CLAIM} == UNFINISHED


def test_each_claim_raises_the_fence_token_even_for_the_same_owner() -> None:
    run = make_run(R.PENDING)
    fences = []
    for _ in range(5):
        run = apply_run(run, D.CLAIM, 2.0, owner=1)
        fences.append(run.fence)
    assert fences == [4, 5, 6, 7, 8]


def test_only_the_last_claims_are_kept() -> None:
    run = make_run(R.PENDING)
    for at in range(3 * CLAIMS_MAX):
        run = apply_run(run, D.CLAIM, float(at), owner=1)
    assert [claim.at for claim in run.claims] == [float(at) for at in range(2 * CLAIMS_MAX, 3 * CLAIMS_MAX)]
    assert run.fence == 3 + 3 * CLAIMS_MAX


def test_a_claim_forgets_why_the_run_stopped() -> None:
    assert apply_run(make_run(R.WAITING, reason="parked"), D.CLAIM, 2.0, owner=1).reason == ""


def test_a_claim_of_a_run_that_was_asked_to_stop_keeps_the_reason_for_stopping() -> None:
    asked = make_run(R.WAITING, reason="budget", cancel_at=5.0)
    after = apply_run(asked, D.CLAIM, 6.0, owner=2)
    assert (after.reason, after.cancel_at) == ("budget", 5.0)


def test_a_move_touches_nothing_else() -> None:
    before = make_run(length=7, head=b"h", tentative=((1, 2),), stamp=4)
    after = apply_run(before, D.SUSPEND, 9.0, why="parked")
    assert changed(before, after) == {"status": R.WAITING, "owner": 0, "updated_at": 9.0, "reason": "parked"}


def test_what_a_run_waited_for_ends_with_its_next_claim() -> None:
    waits = (Waits(kind="signal", name="paid"),)
    waiting = make_run(R.WAITING, waits=waits, wake_at=50.0)
    after = apply_run(waiting, D.CLAIM, 60.0, owner=1)
    assert (after.waits, after.wake_at) == ((), 0.0)


def test_a_retry_forgets_the_deaths_that_led_to_it() -> None:
    assert apply_run(make_run(R.QUARANTINED, deaths=3), D.RETRY, 9.0, why="fixed").deaths == 0
    assert apply_run(make_run(R.RUNNING, deaths=2), D.RELEASE, 9.0).deaths == 2
