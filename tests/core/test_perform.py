"""An effect's flow: every command from intent to receipt, for each contract, out of doubt, and when it is stopped."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from surefoot.core.contract import Contract, Kind, keyed, lookup, natural, opaque
from surefoot.core.digest import digest, short_digest
from surefoot.core.effect import TERMINAL, Status
from surefoot.core.errors import CancelRequested, Damaged, Disagreement, Diverged, LeaseLost, ScopeChanged
from surefoot.core.flows import RunState
from surefoot.core.ids import derive_key, next_key, render_key
from surefoot.core.journal import EntryKind
from surefoot.core.outcome import Answered
from surefoot.core.perform import doubt_told, perform, settle_open
from tests.core.scripted import FakeEffect, World, make_state
from tests.core.support import BARE, KEYED, Rows, live_rows, make_draft, make_effect, make_evidence, make_run

S = Status
KEY = derive_key("n", "ticket:acme")
DIGEST = short_digest(b'{"who":"acme"}')
SAME_TRANSACTION = Contract(kind=Kind.SAME_TRANSACTION)
AT_LEAST_ONCE = opaque(at_least_once=True)
LOOKUP = lookup(30.0)
EVERY = [SAME_TRANSACTION, KEYED, natural(), LOOKUP, opaque(), AT_LEAST_ONCE]

LANDED = Answered(kind="landed", receipt=b'"T-1"')
REFUSED = Answered(kind="refused", code=422, reason="no such partner")
UNSENT = Answered(kind="unsent", reason="no route")
UNKNOWN = Answered(kind="unknown", reason="read timeout")
FOUND = make_evidence("lookup", "found", value=b'"T-9"')
NOTHING = make_evidence("lookup", "absent")

TAKE = ["Look", "RenewLease", "TakeEffect: done"]
SEND = ["Send", "Now"]
CONFIRM = ["RecordEffect confirm: done"]
LOSE = ["RecordEffect lose: done"]
AGAIN = ["Look", "RenewLease", "RecordEffect attempt: done"]


def performed(contract: Contract, *answers: Any, rows: Rows | None = None, can_ask: bool = True) -> World:
    return World(rows or live_rows(), *answers).drive(perform(make_state(), FakeEffect(contract, can_ask=can_ask)))


def status_of(world: World) -> Status:
    effect, settled = world.result
    assert effect == world.rows.effects[KEY] and settled.status is effect.status
    return effect.status


# --- the straight way --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", EVERY)
def test_an_effect_takes_two_commits_and_its_intent_is_durable_before_it_is_sent(contract: Contract) -> None:
    world = performed(contract, LANDED)
    assert world.story == [*TAKE, *SEND, *CONFIRM]
    assert status_of(world) is S.CONFIRMED
    assert bytes(world.result[1].receipt) == b'"T-1"'
    assert world.rows.slots == [(EntryKind.INTENT, "open_ticket"), (EntryKind.OUTCOME, "open_ticket")]
    assert world.rows.entries["r"][0].value == KEY.encode()


def test_the_lease_is_renewed_beyond_the_deadline_and_the_send_may_not_begin_late() -> None:
    world = performed(KEYED, LANDED)
    assert world.renewed == [100.0 + 2.0 + 8.0]
    assert [(sent.begin_until, sent.lease_until) for sent in world.sent] == [(102.0, 52.0)]
    assert world.sent[0].effect.deadline_at == 110.0


def test_what_is_sent_is_the_recorded_request_under_the_derived_key() -> None:
    sent = performed(keyed(1000.0, shape="hex"), LANDED).sent[0].effect
    assert (sent.key, sent.sent_key, sent.request) == (KEY, KEY, b'{"who":"acme"}')
    assert (sent.identity, sent.status, sent.run, sent.holder) == ("ticket:acme", S.ATTEMPTED, "r", "r")


@pytest.mark.parametrize("contract", EVERY)
def test_a_refusal_of_the_first_try_ends_it(contract: Contract) -> None:
    world = performed(contract, REFUSED)
    assert world.story == [*TAKE, *SEND, "RecordEffect refuse: done"]
    assert status_of(world) is S.REFUSED
    assert world.result[1].reason == "no such partner"
    assert [e.text for e in world.rows.effects[KEY].evidence] == ["422: no such partner"]


@pytest.mark.parametrize("contract", EVERY)
def test_what_was_certainly_not_sent_is_sent_again_after_a_delay(contract: Contract) -> None:
    world = performed(contract, UNSENT, UNSENT, LANDED)
    unsend = ["RecordEffect unsend: done", "Look"]
    first, second = [*SEND, *unsend, "Sleep 0.5", *AGAIN], [*SEND, *unsend, "Sleep 1", *AGAIN]
    assert world.story == [*TAKE, *first, *second, *SEND, *CONFIRM]
    assert status_of(world) is S.CONFIRMED


def test_what_cannot_be_sent_within_its_budget_ends_refused_and_was_never_sent() -> None:
    world = performed(opaque(), *[UNSENT] * 11)
    assert status_of(world) is S.REFUSED
    assert world.story[-1] == "RecordEffect give_up: done"
    assert "could not be sent for 300 s" in world.result[1].reason
    assert 400.0 < world.at < 470.0
    assert world.rows.slots[-1] == (EntryKind.OUTCOME, "open_ticket")


# --- out of doubt ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", [SAME_TRANSACTION, KEYED, natural(), AT_LEAST_ONCE])
def test_a_lost_answer_is_repeated_where_a_repeat_is_harmless(contract: Contract) -> None:
    world = performed(contract, UNKNOWN, LANDED)
    assert world.story == [*TAKE, *SEND, *LOSE, "Look", "Sleep 0.5", *AGAIN, *SEND, *CONFIRM]
    assert len({sent.effect.sent_key for sent in world.sent}) == 1
    assert len({sent.effect.request for sent in world.sent}) == 1


def test_a_keyed_repeat_may_not_begin_after_the_part_of_the_window_that_is_relied_on() -> None:
    world = performed(keyed(3.0, lag=0.0, margins=BARE), UNKNOWN, LANDED)
    assert [sent.begin_until for sent in world.sent] == [102.0, 101.5]


def test_a_keyed_doubt_past_its_window_is_looked_up() -> None:
    world = performed(keyed(0.8, lag=0.0, margins=BARE), UNKNOWN, FOUND)
    assert world.story == [*TAKE, *SEND, *LOSE, "Look", "Sleep 0.5", "Look", "Ask", *CONFIRM]
    assert bytes(world.result[1].receipt) == b'"T-9"'


def test_a_keyed_doubt_past_its_window_without_a_lookup_is_parked() -> None:
    world = performed(keyed(0.8, lag=0.0, margins=BARE), UNKNOWN, can_ask=False)
    assert world.story[-2:] == ["Look", "RecordEffect park: done"]
    assert status_of(world) is S.PARKED
    assert world.rows.slots == [(EntryKind.INTENT, "open_ticket")], "what is parked has no outcome yet"


def test_a_lookup_that_finds_it_adopts_the_receipt() -> None:
    world = performed(LOOKUP, UNKNOWN, FOUND)
    assert world.story == [*TAKE, *SEND, *LOSE, "Look", "Ask", *CONFIRM]
    assert status_of(world) is S.CONFIRMED
    assert world.rows.effects[KEY].receipt == b'"T-9"'
    assert world.rows.effects[KEY].evidence[-1].value == b"", "the receipt is kept once"


def test_a_lookup_settles_asks_twice_proves_it_absent_and_sends_again() -> None:
    world = performed(LOOKUP, UNKNOWN, NOTHING, NOTHING, NOTHING, LANDED)
    ask = ["Ask", "RecordEffect: done", "Look"]
    settle = ["Look", *ask, "Sleep 40", "Look", *ask, "Sleep 30", "Look", *ask]
    assert world.story == [*TAKE, *SEND, *LOSE, *settle, "RecordEffect absent: done", *AGAIN, *SEND, *CONFIRM]
    assert [sent.effect.attempts for sent in world.sent] == [1, 2]
    assert world.sent[1].effect.first_sent_at == 170.0, "the key's clock starts anew"


def test_several_matches_park_with_the_evidence() -> None:
    world = performed(LOOKUP, UNKNOWN, make_evidence("lookup", "several", text="T-1, T-2"))
    assert status_of(world) is S.PARKED
    assert world.rows.effects[KEY].evidence[-1].text == "T-1, T-2"


def test_a_lookup_contract_without_a_lookup_function_is_parked() -> None:
    assert status_of(performed(LOOKUP, UNKNOWN, can_ask=False)) is S.PARKED


def test_an_opaque_doubt_is_parked_and_never_sent_again() -> None:
    world = performed(opaque(), UNKNOWN)
    assert world.story == [*TAKE, *SEND, *LOSE, "Look", "RecordEffect park: done"]
    assert status_of(world) is S.PARKED
    assert (len(world.sent), world.rows.effects[KEY].owner) == (1, 0)


def test_a_refusal_after_a_lost_answer_is_looked_up_since_it_proves_nothing() -> None:
    world = performed(KEYED, UNKNOWN, REFUSED, FOUND)
    middle = ["Look", "Sleep 0.5", *AGAIN, *SEND, *LOSE, "Look", "Ask"]
    assert world.story == [*TAKE, *SEND, *LOSE, *middle, *CONFIRM]


def test_a_refusal_after_a_lost_answer_counts_where_refusals_are_stored_under_the_key() -> None:
    world = performed(keyed(1000.0, stores_refusals=True), UNKNOWN, REFUSED)
    assert status_of(world) is S.REFUSED


def test_a_repeat_that_was_not_sent_leaves_the_first_doubt_as_it_was() -> None:
    world = performed(KEYED, UNKNOWN, UNSENT, LANDED)
    assert "RecordEffect redoubt: done" in world.story
    assert status_of(world) is S.CONFIRMED


# --- taking over, waiting, disagreeing ---------------------------------------------------------------------------


def interrupted(contract: Contract) -> Rows:
    """The rows as an owner leaves them that was stopped while it was sending."""
    world = World(live_rows(), KeyboardInterrupt()).drive(perform(make_state(), FakeEffect(contract)))
    assert isinstance(world.raised, KeyboardInterrupt)
    return world.rows


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(1), RuntimeError("bug"), LeaseLost()])
def test_an_interruption_while_sending_leaves_it_in_doubt_and_is_raised_again(stop: BaseException) -> None:
    state = make_state()
    world = World(live_rows(), stop).drive(perform(state, FakeEffect()))
    assert world.raised is stop
    assert world.story == [*TAKE, *SEND, *LOSE]
    held = world.rows.effects[KEY]
    assert (held.status, held.owner, held.unresolved) == (S.IN_DOUBT, 0, 1)
    assert type(stop).__name__ in held.reason
    assert state.working == {} and list(state.open_effects) == [KEY]


def test_a_crash_while_sending_writes_nothing_more() -> None:
    flow = perform(make_state(), FakeEffect())
    world = World(live_rows())
    answer = None
    while True:
        command = flow.send(answer)
        if type(command).__name__ == "SendEffect":
            break
        answer = world.answer(command)
    flow.close()
    assert world.rows.effects[KEY].status is S.ATTEMPTED


def resumed(rows: Rows) -> RunState:
    """The next owner's view of the run: the intent is recorded."""
    return make_state(make_draft("open_ticket", EntryKind.INTENT, KEY.encode(), args_digest=DIGEST))


def test_the_next_owner_takes_over_what_was_in_doubt_and_records_no_second_intent() -> None:
    rows = interrupted(KEYED)
    world = World(rows, LANDED).drive(perform(resumed(rows), FakeEffect()))
    take = ["Look", "RenewLease", "TakeEffect: took"]
    assert world.story == [*take, *AGAIN, *SEND, *CONFIRM]
    assert [kind for kind, _ in rows.slots] == [EntryKind.INTENT, EntryKind.OUTCOME]
    assert rows.effects[KEY].first_sent_at == 100.0


def test_an_intent_whose_row_is_gone_is_damage_and_nothing_is_sent() -> None:
    state = resumed(live_rows())
    world = World(live_rows()).drive(perform(state, FakeEffect()))
    assert isinstance(world.raised, Damaged)
    assert world.story == ["Look", "RenewLease", "TakeEffect: absent"]
    assert state.open_effects == {} and state.working == {}


def test_a_recorded_outcome_asks_for_nothing() -> None:
    value = b'{"status":"confirmed","key":"k","receipt":"T-1"}'
    state = make_state(make_draft("open_ticket", EntryKind.OUTCOME, value, args_digest=DIGEST))
    world = World(Rows()).drive(perform(state, FakeEffect()))
    effect, settled = world.result
    assert (world.story, effect, settled.status, bytes(settled.receipt)) == ([], None, S.CONFIRMED, b'"T-1"')


def test_an_effect_that_another_run_has_settled_is_recorded_here_with_its_receipt() -> None:
    rows = performed(KEYED, LANDED).rows
    rows.entries.clear()
    world = World(rows).drive(perform(make_state(), FakeEffect()))
    assert world.story == ["Look", "RenewLease", "TakeEffect: exists", "Record open_ticket"]
    assert bytes(world.result[1].receipt) == b'"T-1"'


def test_an_effect_in_live_hands_is_suspected_once_and_then_waited_for() -> None:
    rows = interrupted(KEYED)
    rows.put_effect(replace(rows.effects[KEY], owner=2, holder="r2", run="r2"))
    busy = ["Look", "RenewLease", "TakeEffect: busy"]
    world = World(rows, LANDED)
    takes = []

    def leave(command: Any) -> None:
        takes.append(command)
        if len(takes) == 3:
            rows.put_effect(replace(rows.effects[KEY], owner=0))

    world.before_commit = leave
    world.drive(perform(make_state(), FakeEffect()))
    assert world.story[:10] == [*busy, *busy, "Sleep 0.05", "Look", "RenewLease", "TakeEffect: took"]
    assert status_of(world) is S.CONFIRMED


def test_another_request_under_the_identity_is_a_disagreement_and_nothing_is_sent() -> None:
    rows = interrupted(KEYED)
    call = FakeEffect()
    call.arguments = b'{"who":"bolt"}'
    state = make_state()
    world = World(rows).drive(perform(state, call))
    assert isinstance(world.raised, Disagreement)
    assert (world.raised.held, world.raised.asked) == ('open_ticket("who":"acme")', 'open_ticket("who":"bolt")')
    assert world.story == ["Look", "RenewLease", "TakeEffect: disagrees"]
    assert state.open_effects == {}


def test_an_unread_entry_stops_it_before_anything_is_written() -> None:
    world = World(live_rows()).drive(perform(make_state(make_draft("gone")), FakeEffect()))
    assert isinstance(world.raised, Diverged) and world.story == []


@pytest.mark.parametrize(
    ("run", "signal"), [(make_run(cancel_at=5.0), CancelRequested), (make_run(fence=4), LeaseLost)]
)
def test_a_run_that_is_cancelled_or_taken_makes_no_intent(run: Any, signal: type[BaseException]) -> None:
    rows = Rows(run)
    world = World(rows).drive(perform(make_state(), FakeEffect()))
    assert isinstance(world.raised, signal) and not world.sent and rows.effects == {}


def test_an_answer_that_comes_after_the_run_was_taken_is_kept_and_the_owner_stops() -> None:
    world = World(live_rows(), LANDED)

    def take_the_run(command: Any) -> None:
        if type(command.write).__name__ == "RecordEffect":
            world.rows.put_run(make_run(fence=4))

    world.before_commit = take_the_run
    world.drive(perform(make_state(), FakeEffect()))
    assert isinstance(world.raised, LeaseLost)
    held = world.rows.effects[KEY]
    assert held.status is S.ATTEMPTED
    assert [(e.kind, e.found, e.value) for e in held.evidence] == [("late", "landed", b'"T-1"')]


def test_the_late_answer_is_adopted_by_whoever_has_it_now() -> None:
    rows = interrupted(opaque())
    late = make_evidence("late", "landed", value=b'"T-1"')
    rows.put_effect(replace(rows.effects[KEY], evidence=(late,)))
    world = World(rows).drive(perform(resumed(rows), FakeEffect(opaque())))
    assert world.story == ["Look", "RenewLease", "TakeEffect: took", "Look", *CONFIRM]
    assert bytes(world.result[1].receipt) == b'"T-1"'


def test_two_branches_that_ask_for_one_identity_take_turns() -> None:
    state = make_state()
    state.working[KEY] = other = object()
    flow = perform(state, FakeEffect())
    world = World(live_rows(), LANDED)
    assert [world.answer(flow.send(None)), world.story] == [None, ["Sleep 0.05"]]
    assert state.working.pop(KEY) is other
    world.drive(flow)
    assert world.story == ["Sleep 0.05", *TAKE, *SEND, *CONFIRM]


def test_outside_a_run_nothing_is_recorded_in_any_journal() -> None:
    world = World(Rows(), LANDED).drive(perform(make_state(run_id=""), FakeEffect()))
    assert world.story == [*TAKE, *SEND, *CONFIRM]
    assert (status_of(world), world.rows.entries) == (S.CONFIRMED, {})


def test_an_undo_compensates_its_original_with_its_own_confirmation() -> None:
    rows = performed(KEYED, LANDED).rows
    undo = FakeEffect(compensates=KEY)
    undo.names, undo.identity = ("close_ticket",), f"undo:{KEY}"
    world = World(rows, LANDED).drive(perform(make_state(), undo))
    assert world.result[0].status is S.CONFIRMED
    assert rows.effects[KEY].status is S.COMPENSATED


# --- the end of a run, and what a workflow was told --------------------------------------------------------------


def test_what_a_cancelled_branch_left_open_is_settled_before_the_run_ends() -> None:
    state, rows = make_state(), live_rows()
    World(rows, KeyboardInterrupt()).drive(perform(state, FakeEffect()))
    world = World(rows, LANDED).drive(settle_open(state))
    assert world.story == ["Look", "RenewLease", "TakeEffect: took", *AGAIN, *SEND, *CONFIRM]
    assert (world.result, state.open_effects) == ([], {})
    assert [settled.status for _, settled in state.settled_late] == [S.CONFIRMED]


def test_what_only_a_person_can_settle_is_handed_back_when_the_run_ends() -> None:
    state, rows = make_state(), live_rows()
    World(rows, KeyboardInterrupt()).drive(perform(state, FakeEffect(opaque())))
    world = World(rows).drive(settle_open(state))
    assert [effect.status for effect in world.result] == [S.PARKED]


@pytest.mark.parametrize("unread", [True, False])
def test_an_intent_that_the_code_no_longer_asks_for_is_parked_when_the_run_ends(unread: bool) -> None:
    rows = interrupted(KEYED)
    world = World(rows).drive(settle_open(resumed(rows), unread=unread))
    assert world.story == (["Look", "ParkUnasked: done"] if unread else [])
    assert rows.effects[KEY].status is (S.PARKED if unread else S.IN_DOUBT)


def test_a_doubt_that_a_workflow_was_told_of_is_told_again_whatever_was_decided_since() -> None:
    state = make_state()
    state.root.next_slot("open_ticket")
    world = World(live_rows()).drive(doubt_told(state, state.root, "open_ticket", "nobody knows"))
    assert (world.story, world.result) == (["Record in_doubt:open_ticket:0"], "nobody knows")
    state = make_state(make_draft("in_doubt:open_ticket:0", EntryKind.MARK, b'"nobody knows"'))
    state.root.next_slot("open_ticket")
    world = World(live_rows()).drive(doubt_told(state, state.root, "open_ticket", ""))
    assert (world.story, world.result) == ([], "nobody knows")


def test_an_effect_that_was_settled_when_it_was_asked_for_records_no_doubt() -> None:
    state = make_state()
    state.root.next_slot("open_ticket")
    world = World(live_rows()).drive(doubt_told(state, state.root, "open_ticket", ""))
    assert (world.story, world.result) == ([], "")


# --- a used-up key, and another place ----------------------------------------------------------------------------

SPENT = Answered(kind="spent", code=500, reason="stored error")
ABSENT = make_evidence("lookup", "absent", 0.0)
REQUEST = digest(b'{"who":"acme"}')


def test_a_used_up_key_is_replaced_after_proved_absence_and_the_new_one_is_recorded_before_it_is_sent() -> None:
    world = performed(keyed(1000.0, lag=10.0), SPENT, ABSENT, ABSENT, ABSENT, LANDED)
    first, second = (sent.effect for sent in world.sent)
    assert (first.sent_key, first.generation) == (render_key(KEY, "uuid"), 0)
    assert (second.sent_key, second.generation) == (render_key(next_key(KEY, 1), "uuid"), 1)
    assert second.first_sent_at > first.deadline_at and second.request == first.request
    assert status_of(world) is S.CONFIRMED


def test_without_a_lookup_a_used_up_key_is_never_sent_again() -> None:
    world = performed(keyed(1000.0), SPENT, can_ask=False)
    assert len(world.sent) == 1 and status_of(world) is S.PARKED


@pytest.mark.parametrize("status", [S.INTENDED, S.ATTEMPTED, S.IN_DOUBT])
def test_nothing_is_sent_or_asked_in_another_account_than_the_intents(status: Status) -> None:
    pinned = {"request_digest": REQUEST, "scope": (("account", "acct_1"),)}
    held = make_effect(status, natural(), key=KEY, unresolved=status is S.IN_DOUBT, **pinned)
    call = FakeEffect(natural())
    call.scope = (("account", "acct_2"),)
    world = World(live_rows(held)).drive(perform(make_state(), call))
    assert isinstance(world.raised, ScopeChanged)
    assert "account=acct_1, the code now says account=acct_2" in str(world.raised)
    left = world.rows.effects[KEY]
    assert not world.sent and "Ask" not in world.story and left.owner == 0 and left.status not in TERMINAL


def test_what_is_settled_does_not_depend_on_the_scope() -> None:
    call = FakeEffect(KEYED)
    call.scope = (("account", "acct_2"),)
    held = make_effect(
        S.CONFIRMED, KEYED, key=KEY, receipt=b'"T-1"', request_digest=REQUEST, scope=(("account", "acct_1"),)
    )
    assert World(live_rows(held)).drive(perform(make_state(), call)).result[1].status is S.CONFIRMED
