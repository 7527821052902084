"""Whoever decides is held to what they were shown; the first decision counts, and the second is told whose it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from surefoot import ApprovalClosed, ApprovalNotFound, Surefoot, UsageError, approve, gather, workflow
from surefoot.core.approval import Decision
from surefoot.core.asking import DecideApproval
from surefoot.core.view import Verdict
from surefoot.runtime import decisions
from surefoot.runtime.approvals import decision_mail
from tests.approvals.support import WITHIN, Bystander, pay, refund, sent
from tests.runtime.support import restart


def during(sf: Surefoot, clock: Bystander, act: Callable[[str, str], object]) -> Any:
    """Run `pay` and, while it asks, act with the id and digest that it shows; then approve. Gives the result."""

    def both() -> None:
        (view,) = sf.approvals()
        act(view.id, view.digest)
        if sf.approvals():
            sf.approve(view.id, who="ann", digest=view.digest)

    clock.acts = [both]
    return sf.run(pay, "ch_1", 10, 10, id="r")


def test_a_second_decision_is_told_who_was_first_and_when(sf: Surefoot, clock: Bystander) -> None:
    ids: list[str] = []

    def twice(approval: str, digest: str) -> None:
        ids.append(approval)
        sf.approve(approval, who="ann", digest=digest, why="looks right")
        for again in range(2):
            with pytest.raises(ApprovalClosed, match=r"ann has approved it already, at .* UTC: looks right"):
                sf.deny(approval, who="bob", why=f"no {again}")

    assert during(sf, clock, twice) == 10
    with pytest.raises(ApprovalClosed, match="ann has approved it already"):
        sf.deny(ids[0], who="bob", why="after its end")
    assert len(sf.store.board.read_mail("r")) == 1 and len(sent) == 1
    view = sf.approval(ids[0])
    assert view.decision is not None and (view.status, view.decision.who) == ("approved", "ann")


def test_another_digest_than_the_one_asked_for_is_refused(sf: Surefoot, clock: Bystander) -> None:
    def wrong(approval: str, digest: str) -> None:
        for shown in ("0" * 32, digest[:8], digest.upper() + " "):
            with pytest.raises(ApprovalClosed, match=f"{digest} is asked for now"):
                sf.approve(approval, who="ann", digest=shown)
        assert sf.store.board.read_mail("r") == []

    assert during(sf, clock, wrong) == 10


def test_a_decision_repeats_the_digest_that_was_decided(sf: Surefoot, clock: Bystander) -> None:
    during(sf, clock, lambda approval, digest: None)
    (mail,) = sf.store.board.read_mail("r")
    assert set(json.loads(mail.value)) == {"decision", "digest", "who", "at"}


def test_an_unknown_id_is_told_the_nearest(sf: Surefoot, clock: Bystander) -> None:
    def unknown(approval: str, digest: str) -> None:
        swapped = approval[1] + approval[0] + approval[2:]
        with pytest.raises(ApprovalNotFound, match=f"nearest: {approval}"):
            sf.approve(swapped, who="ann", digest=digest)
        assert sf.approval(approval[:5].upper()).id == approval
        for short in ("", approval[:3]):
            with pytest.raises((ApprovalNotFound, UsageError)):
                sf.approve(short, who="ann", digest=digest)

    assert during(sf, clock, unknown) == 10
    with pytest.raises(ApprovalNotFound, match="surefoot approvals"):
        sf.deny("nothing", who="ann", why="x")


def test_a_beginning_of_two_ids_is_refused() -> None:
    with pytest.raises(UsageError, match="begins 2 approvals"):
        decisions._complete("abcd", ["abcd1", "abcd2"])  # pyright: ignore[reportPrivateUsage]
    assert decisions._complete("abcd1", ["abcd1", "abcd12"]) == "abcd1"  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"who": ""}, "who must have 1 to 200"),
        ({"why": "x" * 4001}, "4,001 characters"),
        ({"why": "\ud800"}, "surrogate"),
        ({"why": None}, "why must be a string, found NoneType"),
        ({"digest": None}, "that of the artifact which was shown .*, found None"),
        ({"digest": ""}, "that of the artifact which was shown .*, found ''"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(
    options: dict[str, Any], match: str, sf: Surefoot, clock: Bystander
) -> None:
    def wrong(approval: str, digest: str) -> None:
        with pytest.raises(UsageError, match=match):
            sf.approve(approval, **{"who": "ann", "digest": digest, **options})
        with pytest.raises(UsageError, match="a denial needs its reason"):
            sf.deny(approval, who="ann", why="  ")
        assert sf.store.board.read_mail("r") == []

    assert during(sf, clock, wrong) == 10


def test_a_worker_of_the_same_process_is_told_of_a_decision_at_once(sf: Surefoot, clock: Bystander) -> None:
    """As of a signal: it has not to look for it."""
    told: list[str] = []

    def act(approval: str, digest: str) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sf.engine, "on_change", lambda: told.append(sf.approval(approval).status))
            with pytest.raises(ApprovalClosed):
                sf.approve(approval, who="ann", digest="0" * 32)
            sf.approve(approval, who="ann", digest=digest)

    assert during(sf, clock, act) == 10 and told == ["approved"]


def test_what_is_pending_is_listed_the_soonest_to_expire_first(sf: Surefoot, clock: Bystander) -> None:
    listed: list[list[Any]] = []

    def look() -> None:
        listed.append([(view.text, view.status) for view in sf.approvals()])
        for view in sf.approvals():
            sf.approve(view.id, who="ann", digest=view.digest)

    @workflow
    def work() -> None:
        gather(*(lambda n=n: approve(f"in {n}", by="cfo", within=n) and None for n in (50, 10, 30)))

    restart()
    clock.acts = [look]
    sf.run(work, id="r")
    assert listed == [[('"in 10"', "pending"), ('"in 30"', "pending"), ('"in 50"', "pending")]]


def test_a_store_decides_between_time_and_a_person_once(sf: Surefoot, clock: Bystander) -> None:
    """An approval that arrives while the run says that time is over: whichever is first stands, for both."""
    verdicts: list[Verdict] = []

    def expire_early(approval: str, digest: str) -> None:
        for at, expires in ((clock.now(), True), (clock.now() + WITHIN, False)):
            said = Decision(decision="expired" if expires else "approved", digest=digest, who="", at=at)
            mail = decision_mail("r", approval, said)
            stamp = next(sf.engine.stamps)
            write = DecideApproval(run_id="r", mail=mail, digest=digest, at=at, expires=expires, stamp=stamp)
            verdicts.append(sf.engine.committer.commit(write).verdict)

    assert during(sf, clock, expire_early) == 10
    assert verdicts == [Verdict.ILLEGAL, Verdict.ILLEGAL], "neither early nor late"


def test_a_request_is_shown_as_a_call() -> None:
    assert repr(refund.request("ch_1", amount=10)) == 'refund({"amount":10,"charge":"ch_1"})'
    assert refund.request("ch_1", 10).arguments == refund.request(amount=10, charge="ch_1").arguments
