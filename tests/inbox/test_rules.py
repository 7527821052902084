"""The rules of claims, without a database: every standing, every move, and who may run."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from surefoot import UsageError
from surefoot.inbox.rules import (
    MOVES,
    Busy,
    Claim,
    Doubt,
    Ending,
    Move,
    Replay,
    Reused,
    Run,
    Standing,
    View,
    apply,
    decide,
    end,
    settle,
)

VIEW = View("boot", 1000.0, 5000.0)


def claim(standing: Standing = Standing.RUNNING, **changes: object) -> Claim:
    made = Claim(
        scope="http:POST /orders x",
        key="k",
        digest="d",
        standing=standing,
        attempts=1,
        transactional=False,
        stamp=1,
        owner=1,
        boot="boot",
        lease_until=1030.0,
        began_at=4990.0,
        expires_at=9000.0,
        result="{}" if standing is Standing.ANSWERED else None,
    )
    return replace(made, **changes)


ASKED = claim(stamp=2, owner=2)


def test_a_move_that_is_not_in_the_table_is_an_error() -> None:
    for standing, move in product(Standing, Move):
        if (standing, move) in MOVES:
            assert apply(claim(standing), move).standing is MOVES[standing, move]
        else:
            with pytest.raises(UsageError, match=f"that is {standing} cannot {move}"):
                apply(claim(standing), move)


def test_an_answer_is_final_and_every_other_standing_can_reach_it() -> None:
    assert all(before is not Standing.ANSWERED for before, _ in MOVES)
    assert {before for before, move in MOVES if move is Move.ANSWER} == set(Standing) - {Standing.ANSWERED}


@pytest.mark.parametrize("standing", list(Standing))
def test_another_request_is_refused_whatever_stands(standing: Standing) -> None:
    assert isinstance(decide(claim(standing, digest="other"), ASKED, VIEW), Reused)


def test_an_answer_is_replayed_and_a_released_claim_runs_again() -> None:
    assert isinstance(decide(claim(Standing.ANSWERED), ASKED, VIEW), Replay)
    verdict = decide(claim(Standing.RELEASED), ASKED, VIEW)
    assert isinstance(verdict, Run) and (verdict.claim.attempts, verdict.claim.stamp) == (2, 2)


@pytest.mark.parametrize(("was", "now"), list(product((False, True), repeat=2)))
def test_a_lost_claim_runs_again_only_if_both_handlers_are_transactional(was: bool, now: bool) -> None:
    lost = claim(transactional=was, lease_until=1000.0)
    verdict = decide(lost, replace(ASKED, transactional=now), VIEW)
    if was and now:
        assert isinstance(verdict, Run) and verdict.claim.attempts == 2
    else:
        assert isinstance(verdict, Doubt) and verdict.claim.standing is Standing.IN_DOUBT
        assert isinstance(decide(verdict.claim, replace(ASKED, transactional=now), VIEW), Doubt)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_live_claim_is_busy(transactional: bool) -> None:
    live = claim(transactional=transactional)
    assert isinstance(decide(live, replace(ASKED, transactional=transactional), VIEW), Busy)


@pytest.mark.parametrize(
    ("found", "view"),
    [
        (claim(lease_until=1000.0), VIEW),
        (claim(boot="an earlier boot"), VIEW),
        (claim(), VIEW._replace(owner_is_gone=True)),
    ],
    ids=["its lease is over", "it is of another boot", "its process is gone"],
)
def test_a_claim_is_lost_when(found: Claim, view: View) -> None:
    assert isinstance(decide(found, ASKED, view), Doubt)


def test_what_runs_in_the_askers_own_process_is_live_though_its_lease_could_not_be_renewed() -> None:
    assert isinstance(decide(claim(lease_until=0.0), ASKED, VIEW._replace(runs_here=True)), Busy)


def test_our_own_claim_after_an_unknown_commit_is_ours() -> None:
    assert decide(ASKED, ASKED, VIEW) == Run(ASKED)


def test_only_what_is_settled_expires() -> None:
    late = VIEW._replace(at=9000.0)
    for standing in (Standing.ANSWERED, Standing.RELEASED):
        assert decide(claim(standing, digest="other"), ASKED, late) == Run(ASKED)
    assert isinstance(decide(claim(Standing.IN_DOUBT), ASKED, late), Doubt)
    assert isinstance(decide(claim(), ASKED, late), Busy)
    assert isinstance(decide(claim(Standing.ANSWERED, expires_at=None), ASKED, late), Replay)


def ending(mine: Claim, move: Move = Move.ANSWER, *, from_once: bool = False) -> Ending:
    return Ending(mine, move, "mine" if move is Move.ANSWER else None, 60.0, from_once=from_once)


@pytest.mark.parametrize("standing", [Standing.RUNNING, Standing.IN_DOUBT, Standing.RELEASED])
def test_a_late_answer_under_its_own_stamp_is_the_truth(standing: Standing) -> None:
    after = end(claim(standing), ending(claim()), 5000.0)
    assert after is not None and (after.standing, after.result, after.expires_at) == (Standing.ANSWERED, "mine", 5060.0)


def test_a_stale_run_changes_nothing() -> None:
    taken = claim(stamp=2)
    for move in (Move.ANSWER, Move.RELEASE, Move.LOSE):
        assert end(taken, ending(claim(), move), 5000.0) is None
    assert end(None, ending(claim()), 5000.0) is None
    assert end(claim(Standing.ANSWERED), ending(claim()), 5000.0) is None


def test_a_stale_answer_counts_if_both_got_it_from_once() -> None:
    taken, mine = claim(stamp=2, transactional=True), claim(transactional=True)
    assert end(taken, ending(mine), 5000.0) is None
    after = end(taken, ending(mine, from_once=True), 5000.0)
    assert after is not None and after.result == "mine"
    assert end(claim(stamp=2), ending(mine, from_once=True), 5000.0) is None


def test_a_person_settles_what_is_lost_and_nothing_else() -> None:
    gone = VIEW._replace(owner_is_gone=True)
    assert settle(claim(), "it", None, gone).standing is Standing.ANSWERED
    assert settle(claim(Standing.IN_DOUBT), None, 1.0, VIEW).standing is Standing.RELEASED
    assert settle(claim(Standing.RELEASED), None, 1.0, VIEW) == claim(Standing.RELEASED)
    with pytest.raises(UsageError, match="still running"):
        settle(claim(), None, None, VIEW)
    with pytest.raises(UsageError, match="has its answer"):
        settle(claim(Standing.ANSWERED), None, None, VIEW)
