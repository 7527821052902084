"""What may be done next, for every contract at each boundary of time; and what an answer means."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from surefoot.core import policy
from surefoot.core.contract import DEFAULT_MARGINS, Bound, Contract, Kind, Margins, keyed, lookup, natural, opaque
from surefoot.core.effect import Do, Effect, Evidence, Status
from surefoot.core.outcome import Answered
from surefoot.core.policy import (
    LOOKUP_ERRORS_MAX,
    SEND_SLACK_SECONDS,
    Absent,
    Adopt,
    Ask,
    GiveUp,
    Move,
    Park,
    Send,
    Wait,
    answer_evidence,
    delay_seconds,
    explain,
    judge,
    next_move,
    send_until,
    settled_at,
)
from tests.core.support import KEYED, make_effect, make_evidence

LOOKUP = lookup(30.0)
SAME_TRANSACTION = Contract(kind=Kind.SAME_TRANSACTION)
AT_LEAST_ONCE = opaque(at_least_once=True)
REPEATED_FOR_EVER = [SAME_TRANSACTION, natural(), AT_LEAST_ONCE]
EVERY = [SAME_TRANSACTION, KEYED, natural(), LOOKUP, opaque(), AT_LEAST_ONCE]
EPS = 0.001
PROTECTED = 100.0 + 1000.0 * 0.5
SETTLED = 110.0 + 30.0


def doubt(contract: Contract = KEYED, *evidence: Evidence, **fields: Any) -> Effect:
    """In doubt since 105: first sent at 100, deadline 110, budget 300."""
    fields = {"unresolved": 1, "doubted_at": 105.0, "evidence": evidence} | fields
    return make_effect(Status.IN_DOUBT, contract, **fields)


def answered(found: str, at: float = 105.0, attempt: int = 1) -> Evidence:
    return make_evidence("answer", found, at, attempt)


def looked(found: str, at: float, attempt: int = 1, text: str = "") -> Evidence:
    return make_evidence("lookup", found, at, attempt, text=text)


def parked(move: Move, text: str) -> bool:
    return isinstance(move, Park) and text in move.why


# --- what was certainly not sent ---------------------------------------------------------------------------------


def test_delays_double_from_half_a_second_up_to_a_minute() -> None:
    assert [delay_seconds(n) for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert delay_seconds(0) == 0.5 and delay_seconds(10**9) == 60


@pytest.mark.parametrize("contract", EVERY)
def test_a_new_intent_is_sent_at_once_whatever_the_contract(contract: Contract) -> None:
    fresh = make_effect(Status.INTENDED, contract, first_sent_at=0.0, attempts=0, attempted_at=0.0)
    assert next_move(fresh, 1e9, can_ask=False) == Send()


@pytest.mark.parametrize(("unsent", "delay"), [(1, 0.5), (2, 1.0), (3, 2.0), (20, 60.0)])
def test_what_was_not_sent_waits_its_delay_from_the_last_try(unsent: int, delay: float) -> None:
    effect = make_effect(Status.INTENDED, unsent=unsent, unsent_at=100.0, attempted_at=150.0, first_sent_at=0.0)
    move = next_move(effect, 150.0 + delay - EPS, can_ask=True)
    assert isinstance(move, Wait) and move.until == 150.0 + delay
    assert next_move(effect, 150.0 + delay, can_ask=True) == Send()


def test_the_budget_for_what_cannot_be_sent_counts_from_the_first_unsent_try() -> None:
    effect = make_effect(Status.INTENDED, unsent=4, unsent_at=1000.0, attempted_at=1290.0, reason="no route")
    assert next_move(effect, 1000.0 + 300.0, can_ask=False) == Send()
    move = next_move(effect, 1300.0 + EPS, can_ask=False)
    assert move == GiveUp("it could not be sent for 300 s (4 tries): no route")


def test_an_intent_that_was_proved_absent_long_after_its_creation_is_sent() -> None:
    assert next_move(make_effect(Status.INTENDED, unsent=0, created_at=1.0), 1e9, can_ask=True) == Send()


# --- a repeat that does no harm ----------------------------------------------------------------------------------


@pytest.mark.parametrize("can_ask", [False, True])
def test_a_keyed_doubt_is_repeated_inside_the_part_of_the_window_that_is_relied_on(can_ask: bool) -> None:
    effect = doubt(budget_seconds=1e6)
    for now in (105.0, PROTECTED - EPS):
        assert next_move(effect, now, can_ask=can_ask) == Send(PROTECTED)


@pytest.mark.parametrize("now", [PROTECTED, PROTECTED + EPS, 1e9])
def test_a_keyed_doubt_past_its_window_is_looked_up_or_parked(now: float) -> None:
    effect = doubt(budget_seconds=1e6)
    assert next_move(effect, now, can_ask=True) == Ask()
    assert parked(next_move(effect, now, can_ask=False), "no longer protects")


def test_the_window_counts_from_the_first_possible_send_not_from_the_last() -> None:
    effect = doubt(attempts=9, attempted_at=590.0, deadline_at=600.0, budget_seconds=1e6)
    assert next_move(effect, PROTECTED - EPS, can_ask=False) == Send(PROTECTED)
    assert parked(next_move(effect, PROTECTED, can_ask=False), "first sent at 100, protected until 600")


@pytest.mark.parametrize(("margin", "until"), [(0.1, 200.0), (1.0, 1100.0)])
def test_the_margin_is_the_part_of_the_window_that_is_relied_on(margin: float, until: float) -> None:
    effect = doubt(
        keyed(1000.0, margins=Margins(window_factor=margin, safety_seconds=0, clock_skew_seconds=0)), budget_seconds=1e6
    )
    assert next_move(effect, until - EPS, can_ask=False) == Send(until)
    assert isinstance(next_move(effect, until, can_ask=False), Park)


@pytest.mark.parametrize("contract", REPEATED_FOR_EVER)
def test_without_a_window_a_repeat_has_no_end(contract: Contract) -> None:
    effect = doubt(contract, budget_seconds=1e12)
    assert next_move(effect, 1e9, can_ask=False) == Send(0.0)


@pytest.mark.parametrize("contract", [KEYED, *REPEATED_FOR_EVER])
def test_a_repeat_is_immediate_after_a_crash_and_backs_off_after_an_answer(contract: Contract) -> None:
    crashed = doubt(contract, unresolved=3, attempts=3, attempted_at=150.0)
    assert isinstance(next_move(crashed, 150.0, can_ask=True), Send)
    told = doubt(contract, answered("unknown", attempt=3), unresolved=3, attempts=3, attempted_at=150.0)
    move = next_move(told, 152.0 - EPS, can_ask=True)
    assert isinstance(move, Wait) and move.until == 152.0
    assert isinstance(next_move(told, 152.0, can_ask=True), Send)


def test_an_answer_of_an_earlier_attempt_says_nothing_about_the_last_one() -> None:
    effect = doubt(KEYED, answered("refused", attempt=1), attempts=2, unresolved=2)
    assert next_move(effect, 105.0, can_ask=False) == Send(PROTECTED)


@pytest.mark.parametrize("contract", [KEYED, *REPEATED_FOR_EVER])
def test_repeats_end_with_the_budget_since_the_doubt_began(contract: Contract) -> None:
    effect = doubt(contract, unresolved=5)
    assert isinstance(next_move(effect, 105.0 + 300.0, can_ask=False), Send)
    assert parked(next_move(effect, 405.0 + EPS, can_ask=False), "in doubt for more than 300 s and 5 tries")


def test_a_spent_budget_leaves_the_question_to_the_receiver_where_it_can_be_asked() -> None:
    for contract in (KEYED, natural(), SAME_TRANSACTION):
        assert next_move(doubt(contract), 405.0 + EPS, can_ask=True) == Ask()
    assert isinstance(next_move(doubt(AT_LEAST_ONCE), 405.0 + EPS, can_ask=True), Park)


@pytest.mark.parametrize("contract", [KEYED, natural()])
def test_a_refusal_after_an_unresolved_try_is_never_repeated(contract: Contract) -> None:
    effect = doubt(contract, answered("refused", attempt=2), attempts=2, unresolved=2)
    assert next_move(effect, 150.0, can_ask=True) == Ask()
    assert parked(next_move(effect, 150.0, can_ask=False), "proves nothing about the first")


def test_an_object_that_exists_is_looked_up_or_parked_and_never_sent_over() -> None:
    effect = doubt(natural(), answered("exists"))
    assert next_move(effect, 150.0, can_ask=True) == Ask()
    assert parked(next_move(effect, 150.0, can_ask=False), "nobody can tell whether it is ours")


def test_a_second_request_while_the_first_is_in_flight_backs_off_and_repeats() -> None:
    effect = doubt(KEYED, answered("in_flight"))
    assert isinstance(next_move(effect, 100.1, can_ask=False), Wait)
    assert next_move(effect, 100.5, can_ask=False) == Send(PROTECTED)


# --- asking ------------------------------------------------------------------------------------------------------


def test_an_answer_counts_from_the_deadline_plus_the_receivers_lag() -> None:
    assert settled_at(doubt(LOOKUP)) == SETTLED


def test_a_lookup_contract_is_asked_at_once_since_found_counts_at_any_time() -> None:
    assert next_move(doubt(LOOKUP), 105.0, can_ask=True) == Ask()


def test_a_lookup_contract_without_a_lookup_function_is_parked() -> None:
    assert parked(next_move(doubt(LOOKUP), 1e9, can_ask=False), "no @x.lookup")


def test_an_empty_answer_before_the_settle_time_does_not_count() -> None:
    effect = doubt(LOOKUP, looked("absent", 106.0), looked("absent", SETTLED - EPS))
    move = next_move(effect, SETTLED - EPS, can_ask=True)
    assert isinstance(move, Wait) and move.until == SETTLED
    assert next_move(effect, SETTLED, can_ask=True) == Ask()


def test_one_clear_no_is_not_enough_and_the_second_is_asked_a_lag_later() -> None:
    effect = doubt(LOOKUP, looked("absent", SETTLED))
    move = next_move(effect, SETTLED + 30.0 - EPS, can_ask=True)
    assert isinstance(move, Wait) and move.until == SETTLED + 30.0
    assert next_move(effect, SETTLED + 30.0, can_ask=True) == Ask()


def test_two_clear_noes_prove_that_it_did_not_happen() -> None:
    effect = doubt(LOOKUP, looked("absent", 106.0), looked("absent", SETTLED), looked("absent", SETTLED + 30.0))
    assert next_move(effect, SETTLED + 30.0, can_ask=True) == Absent(
        "the receiver showed nothing at 140.000 and at 170.000"
    )
    assert DEFAULT_MARGINS.clear_nos == 2


def test_answers_about_an_earlier_attempt_do_not_count_for_the_last() -> None:
    old = [looked("absent", SETTLED), looked("absent", SETTLED + 30.0), looked("several", SETTLED)]
    effect = doubt(LOOKUP, *old, attempts=2, deadline_at=300.0)
    assert next_move(effect, 400.0, can_ask=True) == Ask()


def test_several_matches_park_even_between_clear_noes() -> None:
    effect = doubt(LOOKUP, looked("several", 120.0), looked("absent", SETTLED), looked("absent", SETTLED + 30.0))
    assert parked(next_move(effect, 1e6, can_ask=True), "several that could be ours")


@pytest.mark.parametrize(("count", "delay"), [(1, 0.5), (2, 1.0), (LOOKUP_ERRORS_MAX - 1, 32.0)])
def test_a_failing_lookup_backs_off(count: int, delay: float) -> None:
    effect = doubt(LOOKUP, *[looked("error", 200.0)] * count)
    move = next_move(effect, 200.0 + delay - EPS, can_ask=True)
    assert isinstance(move, Wait) and move.until == 200.0 + delay
    assert next_move(effect, 200.0 + delay, can_ask=True) == Ask()


def test_a_lookup_that_keeps_failing_is_parked_with_the_last_error() -> None:
    errors = [looked("error", 200.0 + n, text=f"boom {n}") for n in range(LOOKUP_ERRORS_MAX)]
    assert parked(next_move(doubt(LOOKUP, *errors), 1e6, can_ask=True), "failed 8 times: boom 7")


def test_an_error_neither_counts_as_a_no_nor_forgets_one() -> None:
    effect = doubt(LOOKUP, looked("absent", SETTLED), looked("error", SETTLED + 31.0))
    assert isinstance(next_move(effect, SETTLED + 31.0, can_ask=True), Wait)
    assert next_move(effect, SETTLED + 31.5, can_ask=True) == Ask()
    effect = doubt(LOOKUP, looked("absent", SETTLED), looked("error", SETTLED + 1.0), looked("absent", SETTLED + 30.0))
    assert isinstance(next_move(effect, SETTLED + 30.0, can_ask=True), Absent)


@pytest.mark.parametrize("contract", [KEYED, natural()])
def test_every_contract_that_asks_waits_for_its_own_lag(contract: Contract) -> None:
    settled = 110.0 + contract.lag_seconds
    effect = doubt(contract, looked("absent", settled - EPS), budget_seconds=1.0)
    move = next_move(effect, 5000.0, can_ask=True)
    assert move == Ask()
    effect = doubt(contract, *[looked("absent", settled)] * 2, budget_seconds=1.0)
    assert isinstance(next_move(effect, 5000.0, can_ask=True), Absent)


# --- a person, and late proofs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("can_ask", [False, True])
def test_an_opaque_doubt_is_parked_at_once(can_ask: bool) -> None:
    assert parked(next_move(doubt(opaque()), 105.0, can_ask=can_ask), "promises nothing")


@pytest.mark.parametrize("contract", EVERY)
@pytest.mark.parametrize("now", [0.0, 105.0, 1e9])
def test_what_is_parked_stays_parked_with_its_reason(contract: Contract, now: float) -> None:
    effect = make_effect(Status.PARKED, contract, reason="the evidence")
    assert next_move(effect, now, can_ask=True) == Park("the evidence")


@pytest.mark.parametrize("contract", EVERY)
@pytest.mark.parametrize("status", [Status.IN_DOUBT, Status.PARKED])
def test_a_late_answer_that_it_landed_is_adopted_whatever_else_is_known(contract: Contract, status: Status) -> None:
    late = make_evidence("late", "landed", value=b'"T-1"')
    effect = make_effect(status, contract, evidence=(late, looked("several", 130.0), answered("refused", 140.0)))
    assert next_move(effect, 1e9, can_ask=False) == Adopt(b'"T-1"')


@pytest.mark.parametrize("found", ["refused", "unknown", "unsent", "exists", "in_flight"])
def test_a_late_answer_that_proves_nothing_is_not_adopted(found: str) -> None:
    effect = make_effect(Status.PARKED, opaque(), evidence=(make_evidence("late", found, value=b'"T-1"'),))
    assert isinstance(next_move(effect, 1e9, can_ask=False), Park)


def test_an_answer_that_was_judged_already_is_not_a_late_one() -> None:
    effect = doubt(opaque(), make_evidence("answer", "landed", value=b'"T-1"'))
    assert isinstance(next_move(effect, 1e9, can_ask=False), Park)


def test_a_persons_word_that_it_did_not_happen_is_followed_over_an_older_late_answer() -> None:
    effect = make_effect(Status.INTENDED, opaque(), evidence=(make_evidence("late", "landed", value=b'"T-1"'),))
    assert next_move(effect, 1e9, can_ask=False) == Send()


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
@pytest.mark.parametrize(("found", "why"), [("landed", "no receipt"), ("spent", "used up"), ("expired", "no longer")])
def test_a_key_that_can_do_no_more_is_not_sent_again_but_asked_about(contract: Contract, found: str, why: str) -> None:
    effect = doubt(contract, answered(found), budget_seconds=1e12)
    assert next_move(effect, 106.0, can_ask=True) == Ask()
    assert parked(next_move(effect, 106.0, can_ask=False), why)


@pytest.mark.parametrize(("found", "used_up"), [("spent", True), ("expired", True), ("unknown", False)])
def test_proved_absence_of_a_spent_key_asks_for_another_key(found: str, used_up: bool) -> None:
    noes = looked("absent", SETTLED), looked("absent", SETTLED + 30.0)
    move = next_move(doubt(LOOKUP, answered(found), *noes), 1e6, can_ask=True)
    assert isinstance(move, Absent) and move.used_up is used_up


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
