"""Each test here is the shortest story in which the model check caught the core doing something wrong.

They stay after the fix: each names a rule that somebody once forgot.
"""

from __future__ import annotations

from msgspec.structs import replace

from surefoot.core import policy
from surefoot.core.contract import keyed, opaque
from surefoot.core.effect import Do, Effect, Event, Evidence, Status, apply
from surefoot.core.journal import Draft, Entry, EntryKind, Head, first_head, seal
from surefoot.core.lease import Owner, Vantage
from surefoot.core.outcome import Answered
from surefoot.core.run import Run, RunDo, RunStatus
from surefoot.core.term import FIRST
from surefoot.core.writes import Blobs, DecideEffect, EndRun, ParkUnasked, RecordEffect, TakeEffect, Verdict


class Rows:
    """A view over dictionaries, saved as it goes."""

    again = False
    term = FIRST

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.effects: dict[str, Effect] = {}
        self.owners: dict[int, Owner] = {}
        self.entries: list[tuple[str, Entry]] = []
        self.heads: dict[str, Head] = {}

    def run(self, run_id: str) -> Run | None:
        return self.runs.get(run_id)

    def effect(self, key: str) -> Effect | None:
        return self.effects.get(key)

    def owner(self, owner_id: int) -> Owner | None:
        return self.owners.get(owner_id)

    def put_run(self, run: Run) -> None:
        self.runs[run.id] = run

    def put_effect(self, effect: Effect) -> None:
        self.effects[effect.key] = effect

    def put_owner(self, owner: Owner) -> None:
        self.owners[owner.id] = owner

    def put_blobs(self, blobs: Blobs) -> None:
        pass

    def append(self, run_id: str, draft: Draft) -> None:
        entry, self.heads[run_id] = seal(self.heads.get(run_id) or first_head(run_id), draft)
        self.entries.append((run_id, entry))

    def has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        return any(r == run_id and (e.slot, e.kind) == (slot, kind) for r, e in self.entries)

    def seal_of(self, run_id: str) -> tuple[int, bytes]:
        head = self.heads.get(run_id) or first_head(run_id)
        return head.length, head.digest


def running(name: str, owner: int) -> Run:
    return Run(
        id=name,
        workflow="w",
        status=RunStatus.RUNNING,
        arguments=b"{}",
        args_digest=b"",
        fence=1,
        owner=owner,
        created_at=1.0,
        updated_at=1.0,
    )


def attempted(owner: int, run: str) -> Effect:
    return Effect(
        key="k",
        namespace="n",
        identity="ticket:acme",
        name="open_ticket",
        run=run,
        holder=run,
        slot="open_ticket",
        status=Status.ATTEMPTED,
        contract=opaque(),
        request=b"{}",
        request_digest=b"d",
        sent_key="k",
        timeout_seconds=1.0,
        budget_seconds=60.0,
        owner=owner,
        created_at=100.0,
        attempts=1,
        first_sent_at=100.0,
        attempted_at=100.0,
        deadline_at=103.0,
        stamp=1,
    )


def rows_of_two_runs() -> Rows:
    """Two live processes, a run each; the first has sent the effect that both ask for."""
    rows = Rows()
    for owner in (1, 2):
        rows.put_owner(Owner(id=owner, pid=owner, host="h", boot="b", started_at=1.0, lease_until=99.0))
        rows.put_run(running(f"run-{owner}", owner))
    rows.put_effect(attempted(1, "run-1"))
    return rows


def take(rows: Rows, owner: int, stamp: int, gone: frozenset[int] = frozenset()) -> tuple[Verdict, Effect]:
    vantage = Vantage(owner=owner, boot="b", lease_now=50.0, at=200.0, gone=gone)
    intent = Draft(EntryKind.INTENT, "open_ticket", b"d", "", b"k", 200.0)
    write = TakeEffect(
        run_id=f"run-{owner}",
        fence=1,
        effect=attempted(owner, f"run-{owner}"),
        vantage=vantage,
        draft=None if rows.has_entry(f"run-{owner}", "open_ticket", EntryKind.INTENT) else intent,
        stamp=stamp,
    )
    answer = write.decide(rows)
    assert answer.effect is not None
    return answer.verdict, answer.effect


def drop(rows: Rows) -> None:
    """The first run's code no longer asks for its effect."""
    vantage = Vantage(owner=1, boot="b", lease_now=50.0, at=205.0)
    ParkUnasked(run_id="run-1", fence=1, key="k", vantage=vantage, stamp=31).decide(rows)


def record(run: int, held: Effect, do: Do, stamp: int) -> RecordEffect:
    event = Event(do=do, at=210.0, receipt=b'"T-1"' if do is Do.CONFIRM else b"")
    return RecordEffect(run_id=f"run-{run}", key="k", effect_fence=held.fence, run_fence=1, event=event, stamp=stamp)


def parked_with_proof(rows: Rows) -> None:
    """The first worker's process is gone, the second parked the effect, and then the first's late answer came in."""
    _, taken = take(rows, 2, 11, gone=frozenset({1}))
    assert record(2, taken, Do.PARK, 12).decide(rows).verdict is Verdict.DONE
    late = Evidence(at=205.0, kind="answer", found="landed", value=b'"T-1"', attempt=1)
    stale = RecordEffect(
        run_id="run-1",
        key="k",
        effect_fence=1,
        run_fence=1,
        event=Event(do=Do.CONFIRM, at=205.0, receipt=b'"T-1"'),
        late=late,
        stamp=13,
    )
    assert stale.decide(rows).verdict is Verdict.EXISTS
    assert isinstance(policy.next_move(rows.effects["k"], 210.0, can_ask=False), policy.Adopt)


def test_two_askers_that_both_adopt_a_late_proof_do_not_crash_the_store() -> None:
    """Both are shown the parked effect under one fence token; the second one's CONFIRM then meets `confirmed`."""
    rows = rows_of_two_runs()
    parked_with_proof(rows)
    _, first = take(rows, 1, 21)
    _, second = take(rows, 2, 22)
    assert record(1, first, Do.CONFIRM, 23).decide(rows).verdict is Verdict.DONE
    assert record(2, second, Do.CONFIRM, 24).decide(rows).verdict is Verdict.EXISTS
    assert rows.effects["k"].status is Status.CONFIRMED


def test_a_park_of_unknown_outcome_that_is_tried_again_after_an_adoption_does_not_crash_the_store() -> None:
    """PARK was applied and its answer lost; another run adopts the late proof; then PARK comes again."""
    rows = rows_of_two_runs()
    _, taken = take(rows, 2, 11, gone=frozenset({1}))
    park = record(2, taken, Do.PARK, 12)
    assert park.decide(rows).verdict is Verdict.DONE
    _, shown = take(rows, 1, 21)
    assert record(1, shown, Do.CONFIRM, 22).decide(rows).verdict is Verdict.DONE
    assert park.decide(rows).verdict is Verdict.EXISTS
    assert rows.effects["k"].status is Status.CONFIRMED


def test_a_run_that_dropped_an_effect_does_not_park_it_under_a_live_holder_of_another_run() -> None:
    """ParkUnasked looks at its own run only; the effect may meanwhile be in another live run's hands."""
    rows = rows_of_two_runs()
    rows.append("run-1", Draft(EntryKind.INTENT, "open_ticket", b"d", "", b"k", 100.0))
    _, taken = take(rows, 2, 11, gone=frozenset({1}))
    assert taken.owner == 2
    drop(rows)
    assert rows.effects["k"].owner == 2, (
        "the live holder lost the effect, and its flow would stop as if its run were lost"
    )
    assert rows.effects["k"].status is not Status.PARKED


def test_did_not_happen_leaves_nothing_intended_that_nobody_will_send() -> None:
    """The code dropped the effect, the run ended, and a person says that it did not happen: that is its end."""
    rows = rows_of_two_runs()
    drop(rows)
    assert rows.effects["k"].status is Status.PARKED
    rows.put_run(replace(rows.runs["run-1"], owner=0, status=RunStatus.SUCCEEDED))
    decision = DecideEffect(key="k", event=Event(do=Do.DID_NOT_HAPPEN, at=300.0), stamp=41)
    assert decision.decide(rows).verdict is Verdict.DONE
    assert rows.effects["k"].status is not Status.INTENDED, "it is intended for ever, and no run will ever send it"


def test_did_not_happen_is_followed_by_a_send_even_if_the_first_try_was_unsent_long_ago() -> None:
    """The budget for what cannot be sent counts from the creation; a person's word comes much later."""
    rows = rows_of_two_runs()
    parked = replace(rows.effects["k"], unsent=1)
    rows.put_effect(parked)
    drop(rows)
    DecideEffect(key="k", event=Event(do=Do.DID_NOT_HAPPEN, at=9_000.0), stamp=41).decide(rows)
    intended = rows.effects["k"]
    if intended.status is Status.INTENDED:
        assert isinstance(policy.next_move(intended, 9_001.0, can_ask=False), policy.Send)


def taken_over_while_the_first_owner_slept(rows: Rows) -> None:
    """Process 1 slept past its lease, process 2 claimed its run, process 1 woke and renewed its lease."""
    rows.put_run(replace(rows.runs["run-1"], fence=2, owner=2))
    rows.put_owner(replace(rows.owners[1], lease_until=99.0))


def test_an_effect_of_our_own_run_is_not_left_to_a_former_owner_that_woke_up() -> None:
    """Who owns the run owns what is held for it; else the new owner waits as long as the old process lives."""
    rows = rows_of_two_runs()
    taken_over_while_the_first_owner_slept(rows)
    vantage = Vantage(owner=2, boot="b", lease_now=50.0, at=200.0)
    draft = Draft(EntryKind.INTENT, "open_ticket", b"d", "", b"k", 200.0)
    write = TakeEffect(
        run_id="run-1",
        fence=2,
        effect=attempted(2, "run-1"),
        vantage=vantage,
        names=("open_ticket",),
        draft=draft,
        stamp=51,
    )
    assert write.decide(rows).verdict is Verdict.TOOK
    assert (rows.effects["k"].status, rows.effects["k"].owner) == (Status.IN_DOUBT, 2)


def test_a_dropped_effect_of_our_own_run_is_parked_although_a_former_owner_woke_up() -> None:
    """Else the run ends, the former owner is fenced, and the effect stays attempted for ever."""
    rows = rows_of_two_runs()
    taken_over_while_the_first_owner_slept(rows)
    vantage = Vantage(owner=2, boot="b", lease_now=50.0, at=205.0)
    ParkUnasked(run_id="run-1", fence=2, key="k", vantage=vantage, stamp=31).decide(rows)
    assert rows.effects["k"].status is Status.PARKED


def test_did_not_happen_right_before_the_run_ends_leaves_nothing_intended_either() -> None:
    """The code dropped the effect and it was parked; a person was faster than the end of the run."""
    rows = rows_of_two_runs()
    drop(rows)
    assert rows.effects["k"].status is Status.PARKED
    decision = DecideEffect(key="k", event=Event(do=Do.DID_NOT_HAPPEN, at=300.0), stamp=41)
    assert decision.decide(rows).verdict is Verdict.DONE
    end = EndRun(run_id="run-1", fence=1, do=RunDo.SUCCEED, at=301.0, stamp=42)
    assert end.decide(rows).verdict is Verdict.DONE
    assert rows.effects["k"].status is not Status.INTENDED, (
        "its run asked for it no more and has ended: nobody sends it"
    )


def test_a_stored_refusal_is_not_trusted_when_the_receiver_may_have_stored_it_before_the_record_begins() -> None:
    """A stored refusal lives as long as the key, and the key is older than the record says after `did not happen`.

    First try: refused and stored, answer lost. A person says truly that it did not happen. The second try is on its
    way, late; a third is answered with the stored refusal, which then expires; the second arrives and is performed.
    So either the first send is still remembered, and no third try is made, or the refusal is not believed.
    """
    contract = keyed(100.0, stores_refusals=True)
    first = replace(attempted(1, "run-1"), contract=contract)
    parked = apply(apply(first, Event(do=Do.LOSE, at=110.0)), Event(do=Do.PARK, at=160.0))
    again = apply(parked, Event(do=Do.DID_NOT_HAPPEN, at=195.0))
    second = apply(again, Event(do=Do.ATTEMPT, at=196.0, deadline_at=210.0))
    doubted = apply(second, Event(do=Do.LOSE, at=197.0, reason="its sender stopped"))
    if isinstance(policy.next_move(doubted, 198.0, can_ask=False), policy.Send):
        third = apply(doubted, Event(do=Do.ATTEMPT, at=198.0, deadline_at=210.0))
        assert policy.judge(third, Answered(kind="refused")) is not Do.REFUSE


def test_an_effect_that_was_already_parked_when_the_code_dropped_it_is_not_left_intended_either() -> None:
    """The former owner parked it, the new owner's code does not ask for it, and a person is faster than its end."""
    rows = rows_of_two_runs()
    assert record(1, rows.effects["k"], Do.LOSE, 11).decide(rows).verdict is Verdict.DONE
    assert record(1, rows.effects["k"], Do.PARK, 12).decide(rows).verdict is Verdict.DONE
    drop(rows)
    DecideEffect(key="k", event=Event(do=Do.DID_NOT_HAPPEN, at=300.0), stamp=41).decide(rows)
    assert rows.effects["k"].status is not Status.INTENDED, "its run asks for it no more: nobody sends it"


def test_an_older_send_that_may_be_stored_as_refused_is_not_forgotten_by_an_unsent_try() -> None:
    """As with `did not happen`: the receiver's window counts from the first send, not from the first after a denial."""
    first = replace(attempted(1, "run-1"), contract=keyed(100.0, stores_refusals=True))
    parked = apply(apply(first, Event(do=Do.LOSE, at=110.0)), Event(do=Do.PARK, at=160.0))
    again = apply(apply(parked, Event(do=Do.DID_NOT_HAPPEN, at=195.0)), Event(do=Do.ATTEMPT, at=196.0))
    unsent = apply(apply(again, Event(do=Do.UNSEND, at=196.5)), Event(do=Do.ATTEMPT, at=197.0, deadline_at=210.0))
    doubted = apply(unsent, Event(do=Do.LOSE, at=198.0))
    assert not isinstance(policy.next_move(doubted, 199.0, can_ask=False), policy.Send)
