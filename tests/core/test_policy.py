"""What may be done next, for every contract at each boundary of time."""

from __future__ import annotations

import pytest

from surefoot.core.contract import DEFAULT_MARGINS, Contract, Margins, keyed, natural, opaque
from surefoot.core.effect import Status
from surefoot.core.policy import (
    LOOKUP_ERRORS_MAX,
    Absent,
    Adopt,
    Ask,
    GiveUp,
    Park,
    Send,
    Wait,
    delay_seconds,
    next_move,
    settled_at,
)
from tests.core.doubts import (
    AT_LEAST_ONCE,
    EPS,
    EVERY,
    LOOKUP,
    PROTECTED,
    REPEATED_FOR_EVER,
    SAME_TRANSACTION,
    SETTLED,
    answered,
    doubt,
    looked,
    parked,
)
from tests.core.support import KEYED, make_effect, make_evidence

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
