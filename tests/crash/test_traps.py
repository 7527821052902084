"""The traps that broke other libraries, each set once; what happened is read from the receiver's ledger."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from surefoot import (
    Disagreement,
    Diverged,
    Refused,
    RunWaiting,
    Several,
    keyed,
    lookup,
    natural,
    opaque,
    step,
    workflow,
)
from surefoot.core.commands import Record, SendEffect
from surefoot.core.contract import Margins
from surefoot.core.effect import Status
from surefoot.core.run import RunStatus
from surefoot.runtime.clock import SystemClock
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.crash import SimulatedCrash, abandon, crash_at, strike_at
from tests.crash.traps import TIMEOUT, Trap

BARE = Margins(safety_seconds=0, clock_skew_seconds=0, short_window_seconds=0)

HOUR = 3600.0
SAFE = {"keyed": lambda: keyed(HOUR), "natural": natural, "lookup": lambda: lookup(0.5)}


# --- an error after the receiver acted ----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["500", "timeout", "reset", "500,timeout,reset", "late"])
@pytest.mark.parametrize("kind", SAFE)
def test_an_error_after_the_receiver_acted_is_doubt_and_never_a_second_effect(kind: str, fault: str) -> None:
    trap = Trap(SAFE[kind](), fault, lag=0.5, lookup=kind == "lookup")
    assert trap.run()["name"] == "o1"
    assert trap.performed() == 1 and trap.status() is Status.CONFIRMED
    assert trap.failures == [], "doubt was shown to the workflow as a failure"
    assert trap.sent() == (1 if kind == "lookup" else 1 + len(fault.split(",")))


@pytest.mark.parametrize("fault", ["500", "timeout", "reset", "late"])
def test_an_opaque_effect_in_doubt_is_sent_once_and_waits_for_a_person(fault: str) -> None:
    trap = Trap(opaque(), fault)
    for _ in range(3):
        with pytest.raises(RunWaiting, match="surefoot resolve"):
            trap.run()
    trap.clock.advance(HOUR)
    assert (trap.sent(), trap.performed(), trap.status()) == (1, 1, Status.PARKED)
    assert trap.failures == []
    with trap.open() as surefoot:
        (waiting,) = surefoot.list("waiting")
    assert waiting.id == "r1" and "surefoot resolve r1" in waiting.reason


def test_the_same_holds_when_the_process_died_while_sending() -> None:
    for kind, make in SAFE.items():
        trap = Trap(make(), lag=0.5, lookup=kind == "lookup")
        trap.die_while_sending()
        assert trap.run()["name"] == "o1"
        assert (trap.performed(), trap.status(), len(trap.keys)) == (1, Status.CONFIRMED, 1)
    trap = Trap(opaque())
    trap.die_while_sending()
    with pytest.raises(RunWaiting):
        trap.run()
    assert (trap.sent(), trap.status()) == (1, Status.PARKED)


# --- a lookup that lags -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["timeout", "late"])
def test_an_empty_lookup_does_not_count_until_the_receiver_would_show_it(fault: str) -> None:
    """Not before the attempt's deadline either: what acts late is shown late, a lag after the first empty answer."""
    trap = Trap(lookup(lag=10), fault, lag=10, lookup=True)
    began = trap.clock.now()
    assert trap.run()["name"] == "o1"
    assert (trap.sent(), trap.performed()) == (1, 1)
    assert trap.looked_up() >= 2 and trap.clock.now() - began >= 10


def test_only_two_clear_answers_a_lag_apart_prove_that_nothing_happened() -> None:
    trap = Trap(lookup(lag=10), "not_performed", lag=10, lookup=True)
    trap.run()
    asked = [line.at for line in trap.ledger.lines() if line.what == "looked_up"]
    (done,) = [line.at for line in trap.ledger.lines() if line.what == "performed"]
    clear = [at for at in asked if at >= asked[0] + TIMEOUT + 10 - 1]
    assert len(clear) == 2 and clear[1] - clear[0] >= 10 and done >= clear[1]
    assert (trap.sent(), trap.performed()) == (2, 1)


def test_a_lag_that_was_declared_too_short_shows_in_the_ledger() -> None:
    """The control: what the contract promises is what protects, and this bench would see the difference."""
    trap = Trap(lookup(lag=0.1), "timeout", lag=1000, lookup=True)
    trap.run()
    assert trap.performed() == 2


def test_a_lookup_that_raises_is_no_answer() -> None:
    errors = iter([RuntimeError("down"), RuntimeError("down")])

    def ask() -> Any:
        for error in errors:
            raise error
        return trap.receiver.find("o1")[0]

    trap = Trap(lookup(lag=0.5), "timeout", lookup=ask)
    assert trap.run()["name"] == "o1"
    assert (trap.sent(), trap.performed()) == (1, 1)


def test_a_lookup_that_never_answers_parks_the_effect_with_its_reasons() -> None:
    def ask() -> Any:
        raise RuntimeError("no such report")

    trap = Trap(lookup(lag=0.5), "timeout", lookup=ask)
    with pytest.raises(RunWaiting, match="no such report"):
        trap.run()
    held = trap.only()
    assert held.status is Status.PARKED and sum(e.found == "error" for e in held.evidence) == 8
    assert trap.sent() == 1


def test_several_that_could_be_ours_are_shown_to_a_person() -> None:
    def ask() -> Any:
        raise Several("two payments over 40 today")

    trap = Trap(lookup(lag=0.5), "timeout", lookup=ask)
    with pytest.raises(RunWaiting):
        trap.run()
    assert trap.only().status is Status.PARKED and trap.sent() == 1
    assert "two payments" in trap.only().evidence[-1].text


# --- the key's window ---------------------------------------------------------------------------------------------


def test_inside_the_window_a_repeat_goes_under_the_same_key() -> None:
    trap = Trap(keyed(window=100, margins=BARE))
    trap.die_while_sending()
    trap.clock.advance(40)
    trap.run()
    assert (trap.sent(), trap.performed(), len(trap.keys)) == (2, 1, 1)


def test_after_the_keys_window_nothing_is_sent_again() -> None:
    trap = Trap(keyed(window=100, margins=BARE))
    trap.die_while_sending()
    trap.clock.advance(51)
    with pytest.raises(RunWaiting, match="no longer protects"):
        trap.run()
    assert (trap.sent(), trap.status()) == (1, Status.PARKED)


def test_after_the_keys_window_the_lookup_decides() -> None:
    trap = Trap(keyed(window=100, margins=BARE), lookup=True)
    trap.die_while_sending()
    trap.clock.advance(51)
    assert trap.run()["name"] == "o1"
    assert (trap.sent(), trap.looked_up(), trap.status()) == (1, 1, Status.CONFIRMED)


def test_a_live_process_stops_repeating_when_the_window_ends() -> None:
    trap = Trap(keyed(window=60, margins=BARE), ",".join(["503"] * 100))
    began = trap.clock.now()
    with pytest.raises(RunWaiting, match="no longer protects"):
        trap.run()
    held = trap.only()
    answers = [e.at for e in held.evidence if e.kind == "answer"]
    assert held.first_sent_at == began and max(answers) < began + 30 + TIMEOUT
    assert trap.sent() == held.attempts > 3 and trap.performed() == 0


def test_the_window_counts_from_the_first_possible_send_whatever_came_after() -> None:
    trap = Trap(keyed(window=100, margins=BARE), "timeout")
    for wait in (20, 20, 20):
        try:
            trap.die_while_sending()
        except RunWaiting:
            break
        trap.clock.advance(wait)
    with pytest.raises(RunWaiting):
        trap.run()
    sends = [line.at for line in trap.ledger.lines() if line.what in ("performed", "repeated")]
    assert len(sends) == 3 and sends[-1] < sends[0] + 50 and trap.performed() == 1


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*SAFE, "opaque"])
def test_a_400_ends_refused_and_is_not_frozen(kind: str) -> None:
    trap = Trap((SAFE | {"opaque": opaque})[kind](), "400", lookup=kind == "lookup")
    for _ in range(2):
        with pytest.raises(Refused):
            trap.run()
    assert (trap.sent(), trap.performed(), trap.status()) == (1, 0, Status.REFUSED)
    with trap.open() as surefoot:
        assert surefoot.get("r1").status is RunStatus.FAILED


def test_a_refusal_after_an_unresolved_try_proves_nothing() -> None:
    trap = Trap(keyed(HOUR), "timeout,400")
    with pytest.raises(RunWaiting, match="proves nothing"):
        trap.run()
    assert (trap.performed(), trap.status()) == (1, Status.PARKED)


def test_a_refusal_stored_under_the_key_is_believed() -> None:
    trap = Trap(keyed(HOUR, stores_refusals=True), "not_performed,400")
    with pytest.raises(Refused):
        trap.run()
    assert (trap.performed(), trap.status()) == (0, Status.REFUSED)


# --- one identity, several requests -------------------------------------------------------------------------------


def test_the_same_key_with_another_amount_is_a_disagreement_and_one_send() -> None:
    trap = Trap(keyed(HOUR))
    trap.run(amount=40)
    with pytest.raises(Disagreement) as caught:
        trap.run(amount=35, id="r2")
    assert '"amount":40' in caught.value.held and '"amount":35' in caught.value.asked
    assert (trap.sent(), trap.performed()) == (1, 1)


def test_two_runs_that_propose_40_and_35_make_one_effect_and_keep_both_proposals() -> None:
    trap = Trap(keyed(HOUR))
    trap.die_while_sending(amount=40)
    with pytest.raises(Disagreement):
        trap.run(amount=35, id="r2")
    assert trap.run(amount=40)["name"] == "o1"
    held = trap.only()
    assert held.status is Status.CONFIRMED and b"40" in held.request
    assert [(e.kind, e.who, b"35" in e.value) for e in held.evidence if e.kind == "disagreement"] == [
        ("disagreement", "r2", True)
    ]
    bodies = {line.body for line in trap.ledger.lines()}
    assert bodies == {'{"amount": 40}'} and trap.performed() == 1


def test_a_model_that_changes_its_mind_after_a_crash_cannot_change_what_was_sent() -> None:
    """Inside one run: the step that chose the amount is recorded before anything is sent (R2, R3, R4)."""
    trap, amounts = Trap(keyed(HOUR)), iter([40, 35, 30])

    @step(name="choose")
    def choose() -> int:
        return next(amounts)

    @workflow(name="choosing")
    def choosing(order: str) -> Any:
        return trap.pay(order, choose())

    surefoot = trap.open()
    driver = crash_at(1, when="after", kind=SendEffect).drive(surefoot)
    with pytest.raises(SimulatedCrash):
        surefoot.run(choosing, "o1", id="c")
    assert driver.struck
    abandon(surefoot)
    with trap.open() as surefoot:
        surefoot.run(choosing, "o1", id="c")
    assert {line.body for line in trap.ledger.lines()} == {'{"amount": 40}'} and trap.performed() == 1


def test_two_runs_with_the_same_request_share_one_effect_and_its_receipt() -> None:
    trap = Trap(keyed(HOUR))
    assert trap.run() == trap.run(id="r2") == trap.run(id="r3")
    assert (trap.sent(), trap.performed()) == (1, 1)
    with trap.open() as surefoot:
        assert [len(surefoot.store.read_run(run)[1]) for run in ("r1", "r2", "r3")] == [2, 2, 2]  # type: ignore[index]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_run_waits_for_the_effect_that_the_first_is_sending(processes: int) -> None:
    trap = Trap(keyed(HOUR), clock=SystemClock())
    sending, may_answer = threading.Event(), threading.Event()
    plain_send = trap.send

    def slow_send(attempt: Any, order: str, amount: int) -> Any:
        sending.set()
        assert may_answer.wait(20)
        return plain_send(attempt, order, amount)

    trap.send = slow_send  # type: ignore[method-assign]
    with trap.open() as one, trap.open() as other:
        first = one.start(trap.workflow, "o1", 40, id="r1")
        assert sending.wait(20)
        second = (one if processes == 1 else other).start(trap.workflow, "o1", 40, id="r2")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.1)
        may_answer.set()
        assert first.result(20) == second.result(20)
    assert (trap.sent(), trap.performed()) == (1, 1)


# --- changed code -------------------------------------------------------------------------------------------------


def test_a_renamed_effect_diverges_before_anything_is_sent() -> None:
    trap = Trap(keyed(HOUR))
    trap.die_while_sending()
    renamed = trap.make_workflow(trap.make_effect("settle_invoice"))
    with pytest.raises(Diverged, match="pay"):
        trap.run(code=renamed)
    assert trap.sent() == 1 and trap.failures == []
    with trap.open() as surefoot:
        assert surefoot.get("r1").status is RunStatus.DIVERGED
    formerly = trap.make_workflow(trap.make_effect("settle_invoice", formerly="pay"))
    assert trap.run(code=formerly)["name"] == "o1"
    assert (trap.sent(), trap.performed(), len(trap.keys)) == (2, 1, 1)


def test_other_arguments_for_a_recorded_effect_diverge_before_anything_is_sent() -> None:
    trap = Trap(keyed(HOUR), identity=None)
    trap.die_while_sending()
    changed = trap.make_workflow(lambda order, amount: trap.pay(order, amount + 1))
    with pytest.raises(Diverged, match="other arguments"):
        trap.run(code=changed)
    assert trap.sent() == 1


# --- clocks -------------------------------------------------------------------------------------------------------


def test_a_process_that_was_paused_between_intent_and_send_does_not_send_late() -> None:
    trap = Trap(opaque())
    with trap.open() as surefoot:
        # a pause longer than the time in which a send may begin
        driver = strike_at(1, lambda: trap.clock.advance(5), kind=SendEffect).drive(surefoot)
        assert surefoot.run(trap.workflow, "o1", 40, id="r1")["name"] == "o1"
        assert driver.struck
    held = trap.only()
    assert (held.attempts, held.unsent, trap.sent()) == (2, 1, 1)


def test_a_clock_set_back_during_a_pause_does_not_let_a_stale_owner_send() -> None:
    """The pause ends after a takeover; the wall clock says that no time has passed; the lease clock knows better."""
    trap = Trap(opaque())
    stale = trap.open()

    def pause() -> None:
        trap.clock.advance(60)
        trap.clock.shift_wall(-60)
        with pytest.raises(RunWaiting):
            trap.as_another_process()
        stale.engine.committer.commit(stale.engine._join_write(0.0))  # the heart beats first when it wakes

    driver = strike_at(1, pause, kind=SendEffect).drive(stale)
    with pytest.raises(RunWaiting):
        stale.run(trap.workflow, "o1", 40, id="r1")
    stale.close()
    assert driver.struck and trap.sent() == 0, "the effect was sent by an owner that had lost it"


def test_a_journal_write_of_a_run_that_was_taken_over_is_refused(quick_path: Any) -> None:
    trap = Trap(keyed(HOUR), place=quick_path / "agents.db")
    stale = trap.open()

    def lose_the_run() -> None:
        trap.clock.advance(60)
        assert trap.as_another_process()["name"] == "o1"

    @step(name="think")
    def think() -> int:
        return 1

    trap.workflow = trap.make_workflow(lambda order, amount: trap.pay(order, amount + think() - 1))
    driver = strike_at(1, lose_the_run, kind=Record).drive(stale)
    assert stale.run(trap.workflow, "o1", 40, id="r1")["name"] == "o1"
    stale.close()
    assert driver.struck and (trap.sent(), trap.performed()) == (1, 1)
    read = SqliteStore(quick_path / "agents.db").read_run("r1")
    assert read is not None and read[0].fence == 2 and len(read[1]) - read[0].fences == 3
