"""What an answer means, what is done after answers that allow no repeat, and how it is explained to people."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from surefoot.core import policy
from surefoot.core.contract import Bound, Contract, Kind, Margins, keyed, natural, opaque
from surefoot.core.effect import Do, Effect, Event, Status, apply
from surefoot.core.outcome import Answered
from surefoot.core.policy import (
    SEND_SLACK_SECONDS,
    Ask,
    Send,
    Wait,
    answer_evidence,
    explain,
    judge,
    next_move,
    send_until,
)
from tests.core.doubts import EPS, EVERY, LOOKUP, PROTECTED, SAME_TRANSACTION, SETTLED, answered, doubt, looked, parked
from tests.core.support import KEYED, make_effect

# --- judging answers ---------------------------------------------------------------------------------------------

STORES = keyed(1000.0, stores_refusals=True)
JUDGED = [
    # answer, contract, nothing unresolved, something unresolved
    ("landed", KEYED, Do.LOSE, Do.LOSE),  # and brings no receipt
    ("not_processed", KEYED, Do.UNSEND, Do.REDOUBT),
    ("not_processed", opaque(), Do.UNSEND, Do.REDOUBT),
    ("changed_payload", KEYED, Do.LOSE, Do.LOSE),
    ("spent", KEYED, Do.LOSE, Do.LOSE),
    ("expired", KEYED, Do.LOSE, Do.LOSE),
    ("refused", KEYED, Do.REFUSE, Do.LOSE),
    ("refused", STORES, Do.REFUSE, Do.REFUSE),
    ("refused", opaque(), Do.REFUSE, Do.LOSE),
    ("unsent", KEYED, Do.UNSEND, Do.REDOUBT),
    ("unsent", STORES, Do.UNSEND, Do.REDOUBT),
    ("exists", natural(), Do.REFUSE, Do.LOSE),
    ("exists", natural(owned=True), Do.CONFIRM, Do.CONFIRM),
    ("exists", STORES, Do.REFUSE, Do.LOSE),
    ("in_flight", KEYED, Do.LOSE, Do.LOSE),
    ("unknown", KEYED, Do.LOSE, Do.LOSE),
    ("unknown", STORES, Do.LOSE, Do.LOSE),
    ("something new", KEYED, Do.LOSE, Do.LOSE),
]


@pytest.mark.parametrize(("kind", "contract", "alone", "after"), JUDGED)
def test_an_answer_means_what_the_contract_and_earlier_sends_allow(
    kind: str, contract: Contract, alone: Do, after: Do
) -> None:
    assert judge(make_effect(contract=contract), Answered(kind=kind)) is alone
    assert judge(make_effect(contract=contract, unresolved=1), Answered(kind=kind)) is after


@pytest.mark.parametrize("contract", EVERY)
def test_an_answer_with_its_receipt_confirms_whatever_is_unresolved(contract: Contract) -> None:
    for unresolved in (0, 3):
        effect = make_effect(contract=contract, unresolved=unresolved)
        assert judge(effect, Answered(kind="landed", receipt=b"null")) is Do.CONFIRM


def test_a_refusal_that_says_landed_is_ours_only_after_a_send_of_ours() -> None:
    told = Answered(kind="landed", code=409, receipt=b'{"error": "conflict"}')
    assert judge(make_effect(), told) is Do.LOSE
    assert judge(make_effect(unresolved=1), told) is Do.CONFIRM
    assert judge(make_effect(), Answered(kind="landed", receipt=b'"T-1"')) is Do.CONFIRM


@pytest.mark.parametrize("code", [401, 403, 429])
def test_a_refusal_from_before_the_key_was_looked_at_says_nothing_about_the_first_try(code: int) -> None:
    effect = make_effect(contract=STORES, unresolved=1)
    assert judge(effect, Answered(kind="refused", code=code)) is Do.LOSE
    assert judge(effect, Answered(kind="refused", code=422)) is Do.REFUSE
    assert judge(make_effect(contract=STORES), Answered(kind="refused", code=code)) is Do.REFUSE


# --- answers after which nothing is repeated --------------------------------------------------------------------


@pytest.mark.parametrize("contract", EVERY)
@pytest.mark.parametrize("now", [105.0, 1e9])
def test_another_request_under_the_key_reaches_a_person_whatever_could_be_asked(contract: Contract, now: float) -> None:
    effect = doubt(contract, answered("changed_payload"), budget_seconds=1e12)
    for can_ask in (False, True):
        assert parked(next_move(effect, now, can_ask=can_ask), "another request under this key")


@pytest.mark.parametrize("contract", EVERY)
@pytest.mark.parametrize(
    ("found", "why"), [("landed", "no receipt of ours"), ("spent", "used up"), ("expired", "no longer")]
)
def test_a_key_that_can_do_no_more_is_not_sent_again_but_asked_about(contract: Contract, found: str, why: str) -> None:
    effect = doubt(contract, answered(found), budget_seconds=1e12)
    assert next_move(effect, 106.0, can_ask=True) == Ask()
    assert parked(next_move(effect, 106.0, can_ask=False), why)


@pytest.mark.parametrize(("found", "used_up"), [("spent", True), ("expired", True), ("unknown", False)])
@pytest.mark.parametrize(("status", "do"), [(Status.IN_DOUBT, Do.ABSENT), (Status.PARKED, Do.DID_NOT_HAPPEN)])
def test_a_spent_key_is_replaced_once_it_is_known_that_nothing_happened(
    found: str, used_up: bool, status: Status, do: Do
) -> None:
    after = apply(replace(doubt(KEYED, answered(found)), status=status, key="ab" * 16), Event(do=do, at=900.0))
    assert (after.generation, after.sent_key != "k") == (used_up, used_up)


def test_a_number_is_never_sent_again_once_later_ones_may_have_passed() -> None:
    numbered = replace(LOOKUP, shape="sequence")
    after = apply(replace(doubt(numbered), status=Status.PARKED, key="ab" * 16), Event(do=Do.DID_NOT_HAPPEN, at=900.0))
    assert (after.generation, after.sent_key) == (1, "900000000")


@pytest.mark.parametrize(("wanted", "waited"), [(30.0, 30.0), (1e6, 600.0), (0.1, 0.5)])
def test_a_receiver_that_says_when_is_not_asked_before(wanted: float, waited: float) -> None:
    told = replace(answered("in_flight", at=100.0), retry_after=wanted)
    move = next_move(doubt(KEYED, told, budget_seconds=1e6), 100.1, can_ask=False)
    assert isinstance(move, Wait) and move.until == 100.0 + waited
    unsent = make_effect(Status.INTENDED, unsent=1, unsent_at=100.0, attempted_at=100.0, evidence=(told,))
    move = next_move(unsent, 100.1, can_ask=False)
    assert isinstance(move, Wait) and move.until == 100.0 + waited


def test_what_the_receiver_said_had_landed_is_never_taken_for_absent() -> None:
    noes = looked("absent", SETTLED), looked("absent", SETTLED + 30.0)
    assert parked(next_move(doubt(LOOKUP, answered("landed"), *noes), 1e6, can_ask=True), "said that it happened")


def test_empty_answers_of_a_lookup_that_proves_no_absence_end_with_a_person() -> None:
    noes = looked("absent", SETTLED), looked("absent", SETTLED + 30.0)
    search = replace(LOOKUP, absence=False)
    assert isinstance(next_move(doubt(search, noes[0]), SETTLED + 1, can_ask=True), Wait)
    assert parked(next_move(doubt(search, *noes), 1e6, can_ask=True), "proves nothing")


def test_still_running_is_believed_for_so_long_and_then_asked_about() -> None:
    effect = doubt(KEYED, answered("in_flight"), budget_seconds=1e6)
    assert isinstance(next_move(effect, 105.0 + 299, can_ask=False), Send)
    assert parked(next_move(effect, 105.0 + 301, can_ask=False), "still running")
    assert next_move(effect, 105.0 + 301, can_ask=True) == Ask()


# --- how much of a window is relied on --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "relied"), [(86400, 43200), (1000, 500), (180, 90), (150, 60), (100, 10), (90, 0), (30, 0)]
)
def test_half_of_a_window_is_relied_on_and_a_minute_and_a_half_of_it_are_left(window: float, relied: float) -> None:
    assert keyed(window).protected_seconds == relied


def test_an_unknown_window_protects_for_no_time_unless_the_owner_says_so() -> None:
    unknown = Contract(kind=Kind.KEYED, bound=Bound.UNKNOWN)
    assert parked(next_move(doubt(unknown), 105.0, can_ask=False), "no longer protects")
    said = replace(unknown, margins=Margins(unknown_window_seconds=300))
    assert next_move(doubt(said), 105.0, can_ask=False) == Send(400.0)


def test_a_key_that_is_kept_for_ever_is_repeated_for_ever() -> None:
    contract = Contract(kind=Kind.KEYED, bound=Bound.FOR_EVER)
    assert next_move(doubt(contract, budget_seconds=1e12), 1e9, can_ask=False) == Send(0.0)


def test_a_short_window_is_relied_on_only_by_the_process_that_sent_first() -> None:
    short = keyed(599.0)
    assert isinstance(next_move(doubt(short), 106.0, can_ask=False), Send)
    assert parked(next_move(doubt(short, taken_over=True), 106.0, can_ask=False), "no longer protects")
    assert isinstance(next_move(doubt(keyed(600.0), taken_over=True), 106.0, can_ask=False), Send)


def test_an_answer_is_kept_as_evidence_of_its_attempt() -> None:
    answer = Answered(kind="refused", code=422, reason="x" * 600, receipt=b"1")
    kept = answer_evidence(make_effect(attempts=3), answer, 120.0)
    assert (kept.kind, kept.found, kept.attempt, kept.at, kept.value) == ("answer", "refused", 3, 120.0, b"1")
    assert kept.text == ("422: " + "x" * 600)[:500]
    assert answer_evidence(make_effect(), Answered(kind="unknown", reason="reset"), 1.0, "late").text == "reset"


def test_an_attempt_begins_within_the_slack_and_before_the_window_ends() -> None:
    assert send_until(100.0, 0.0) == 100.0 + SEND_SLACK_SECONDS
    assert send_until(100.0, 100.0 + SEND_SLACK_SECONDS + EPS) == 100.0 + SEND_SLACK_SECONDS
    assert send_until(100.0, 101.0) == 101.0


# --- explaining --------------------------------------------------------------------------------------------------

RELIED = "window 16.7 min, relied on for 8.3 min"
PERSON = "a person has to tell"
AGAIN = "the next owner sends it again under the same key"


@pytest.mark.parametrize(
    ("effect", "now", "text"),
    [
        (
            doubt(KEYED, reason="reset"),
            160.0,
            f"in_doubt, keyed; first sent 1.0 min ago; {RELIED}: the key protects for another 7.3 min; reset; {AGAIN}",
        ),
        (
            doubt(KEYED),
            100.0 + 3 * 86400,
            (
                f"in_doubt, keyed; first sent 3.0 d ago; {RELIED}: the key no longer protects; {PERSON}: "
                "first sent at 100, protected until 600: the key no longer protects"
            ),
        ),
        (
            doubt(replace(KEYED, asks_by="metadata"), can_ask=True),
            100.0 + 3 * 86400,
            (
                f"in_doubt, keyed; first sent 3.0 d ago; {RELIED}: the key no longer protects; "
                "the next owner asks the receiver by metadata, lag 10 s"
            ),
        ),
        (
            doubt(keyed(300.0), taken_over=True, can_ask=True),
            106.0,
            (
                "in_doubt, keyed; first sent 6.0 s ago; window 5.0 min, too short to be relied on after a restart: "
                "the key no longer protects; the next owner asks the receiver, lag 30 s"
            ),
        ),
        (
            doubt(replace(LOOKUP, asks_by="Message-ID"), looked("absent", 101.0), can_ask=True),
            105.0,
            (
                "in_doubt, lookup; first sent 5.0 s ago; letting the attempt settle before an empty answer counts "
                "until 00:02:20Z, then asking by Message-ID; lag 30 s"
            ),
        ),
        (
            doubt(LOOKUP, can_ask=True),
            100.0 + 7200,
            "in_doubt, lookup; first sent 2.0 h ago; the next owner asks the receiver, lag 30 s",
        ),
        (doubt(natural()), 101.0, f"in_doubt, natural; first sent 1.0 s ago; {AGAIN}"),
        (doubt(SAME_TRANSACTION), 101.0, f"in_doubt, same_transaction; first sent 1.0 s ago; {AGAIN}"),
        (
            make_effect(Status.PARKED, opaque(), reason="a person"),
            101.0,
            "parked, opaque; first sent 1.0 s ago; a person",
        ),
        (make_effect(Status.INTENDED, KEYED, first_sent_at=0.0), 101.0, "intended, keyed; the next owner sends it"),
    ],
)
def test_the_arithmetic_is_explained_in_words(effect: Effect, now: float, text: str) -> None:
    assert explain(effect, now) == text


def test_the_window_in_the_explanation_ends_when_sending_ends() -> None:
    effect = doubt(KEYED, budget_seconds=1e6)
    for now in (PROTECTED - EPS, PROTECTED):
        protects = "protects for" in explain(effect, now)
        assert protects is isinstance(policy.next_move(effect, now, can_ask=False), Send)
