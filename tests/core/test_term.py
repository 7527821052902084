"""After a failover claims are over, and what may have been lost is in doubt; the contract says the rest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from surefoot.core.contract import Contract, keyed, lookup, natural, opaque
from surefoot.core.dispatch_writes import FreeRun
from surefoot.core.effect import Do, Status
from surefoot.core.ids import derive_key
from surefoot.core.policy import Absent, Ask, Park, Send, Wait, next_move, protected_until
from surefoot.core.run import RunStatus
from surefoot.core.term import CAUTION_SECONDS, FAILED_OVER, Term, doubted
from surefoot.core.writes import Verdict, Write
from surefoot.stores.base import Overlay
from surefoot.stores.memory import MemoryStore
from surefoot.testing.place import AT, Place, one, seen_by

from .support import make_effect, make_evidence

SECOND = Term(number=1, noticed_at=AT - 2 * CAUTION_SECONDS, lost_since=AT - 3000)
KEY = derive_key("default", "order:1")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def place(store: MemoryStore) -> Place:
    made = Place(lambda: store, fresh=lambda: made)
    store.transact([made.join(), made.start()])
    return made


def in_the_second_term(store: MemoryStore, *writes: Write, term: Term = SECOND) -> list[Verdict | str]:
    """What becomes of these writes after a failover."""
    overlay = Overlay(store, again=False, term=term)
    return [write.decide(overlay).verdict for write in writes]


def overlay_after(store: MemoryStore, *writes: Write, term: Term = SECOND) -> Overlay:
    overlay = Overlay(store, again=False, term=term)
    for write in writes:
        assert write.decide(overlay).verdict in (Verdict.DONE, Verdict.TOOK)
    return overlay


def test_a_claim_of_an_earlier_term_is_over_and_anybody_may_take_the_run(store: MemoryStore, place: Place) -> None:
    assert in_the_second_term(store, place.append("a"), place.take(), place.end()) == [Verdict.FENCED] * 3
    overlay = overlay_after(store, place.claim(seen_by(22)), place.append("a", fence=2))
    run = overlay.run("r")
    assert run is not None and (run.owner, run.born, run.term) == (22, 0, 1)
    assert run.claims[-1].why == FAILED_OVER


def test_a_reaper_frees_what_a_living_process_claimed_in_an_earlier_term(store: MemoryStore, place: Place) -> None:
    write = FreeRun(run_id="r", vantage=seen_by(22), stamp=99)
    assert one(store, write).verdict is Verdict.BUSY
    overlay = overlay_after(store, write)
    assert overlay.runs["r"].status is RunStatus.PENDING
    assert [row.owner for row in overlay.queue_rows()[0]] in ([0], [])


@pytest.mark.parametrize(
    ("contract", "move"),
    [
        (keyed(window=86400), Send),
        (natural(), Send),
        (lookup(lag=1), Ask),
        (opaque(), Park),
        (keyed(window=600), Park),
        (keyed(window=86400, shape="uuid7"), Park),
    ],
)
def test_what_a_run_of_an_earlier_term_declares_begins_in_doubt(
    contract: Contract, move: type, store: MemoryStore, place: Place
) -> None:
    taken = replace(place.take(contract=contract, fence=2, vantage=seen_by(22)), stamp=77)
    overlay = overlay_after(store, place.claim(seen_by(22)), taken)
    effect = overlay.effects[KEY]
    assert (effect.status, effect.unresolved, effect.term) == (Status.IN_DOUBT, 1, 1) and FAILED_OVER in effect.reason
    assert effect.first_sent_at <= SECOND.lost_since or contract.stores_refusals
    assert isinstance(next_move(effect, AT + 1, can_ask=contract.kind == "lookup"), move)


def test_a_run_of_this_term_begins_in_doubt_only_while_it_may_be_a_lost_one(store: MemoryStore, place: Place) -> None:
    start, taken = place.start("new"), place.take(run_id="new")
    assert in_the_second_term(store, start, taken) == [Verdict.DONE, Verdict.DONE]
    soon = replace(SECOND, noticed_at=AT - 1)
    assert overlay_after(store, start, taken, term=soon).effects[KEY].status is Status.IN_DOUBT


def test_what_a_receiver_showed_before_says_nothing_about_a_try_that_may_be_lost() -> None:
    absent = tuple(make_evidence("lookup", "absent", at=at) for at in (150.0, 160.0))
    before = make_effect(Status.IN_DOUBT, lookup(lag=1), unresolved=1, evidence=absent)
    assert isinstance(next_move(before, 170.0, can_ask=True), Absent)
    after = doubted(before, SECOND, at=170.0, deadline_at=180.0)
    assert isinstance(next_move(after, 171.0, can_ask=True), Ask)
    asked = replace(
        after, evidence=(*after.evidence, make_evidence("lookup", "absent", at=171.0, attempt=after.attempts))
    )
    assert isinstance(next_move(asked, 172.0, can_ask=True), Wait), "the lost try may still arrive until its deadline"


@pytest.mark.parametrize("status", [Status.INTENDED, Status.ATTEMPTED, Status.IN_DOUBT])
def test_an_open_effect_of_an_earlier_term_is_in_doubt_when_it_is_taken(status: Status) -> None:
    effect = doubted(make_effect(status, keyed(window=86400)), SECOND, at=AT, deadline_at=AT + 3)
    assert effect.status is Status.IN_DOUBT and effect.unresolved >= 1 and effect.deadline_at >= AT + 3
    assert protected_until(effect) <= SECOND.lost_since + 43200


def test_a_persons_word_after_the_failover_is_not_doubted_again(store: MemoryStore, place: Place) -> None:
    one(store, place.take(contract=opaque()))
    place.park(store, KEY)
    overlay = overlay_after(store, place.claim(seen_by(22)), place.decide(KEY, Do.DID_NOT_HAPPEN))
    assert (overlay.effects[KEY].status, overlay.effects[KEY].term) == (Status.INTENDED, 1)


def test_an_answer_that_arrives_after_the_failover_is_kept(store: MemoryStore, place: Place) -> None:
    one(store, place.take())
    overlay = Overlay(store, again=False, term=SECOND)
    assert place.record(KEY, Do.CONFIRM).decide(overlay).verdict is Verdict.FENCED
