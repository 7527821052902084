"""What every store must do, as tests that ship: write a store, give them a way to open it, and run them all.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check, tmp_path):
        def place():
            path = tmp_path / uuid4().hex
            return Place(lambda: MyStore(path), fresh=place)

        check(place())

Each check goes through the protocol of `stores.base` alone. Rules live in the core, so these checks are about what a
store adds: that writes are atomic, ordered, seen by other processes at once, recognised when they come again, and
that changed bytes are reported and never replayed.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..core.digest import blob_hash
from ..core.effect import Do, Status
from ..core.errors import Damaged
from ..core.journal import Draft, EntryKind
from ..core.run import RunDo, RunStatus
from ..core.writes import Answer, Append, CancelRun, ParkUnasked, Verdict, View, Write
from ..stores.base import Store
from .place import ALIVE, AT, STRANGER, Place, in_threads, one, seen_by, slots


class Explode(Write, frozen=True, kw_only=True):
    """A write that fails while it decides."""

    def decide(self, view: View) -> Answer:
        """Fail, after having put something."""
        view.append("r", Draft(EntryKind.STEP, "half", b"", "", b"1", AT))
        raise RuntimeError("planned")


# --- atomic and ordered -------------------------------------------------------------------------------------------


def a_batch_is_decided_and_saved_in_order(place: Place) -> None:
    """Later writes of a batch see earlier ones; each gets its own answer."""
    with place.open() as store:
        answers = store.transact([place.join(), place.start(), place.append("a"), place.append("b"), place.start()])
        assert [a.verdict for a in answers] == [Verdict.DONE] * 4 + [Verdict.EXISTS]
        assert slots(store) == ["a", "b"]


def a_batch_that_fails_leaves_nothing(place: Place) -> None:
    """All or nothing, and what was remembered between transactions is not ahead of what is stored."""
    with place.open() as store:
        store.transact([place.start(), place.append("a")])
        try:
            store.transact([place.append("b"), place.start("other"), Explode(run_id="r")])
        except Exception:  # which one is the store's business
            pass
        else:
            raise AssertionError("a write that cannot decide must fail its transaction")
        assert slots(store) == ["a"] and store.read_run("other") is None
        one(store, place.append("c"))
        assert slots(store) == ["a", "c"]


def what_was_committed_is_there_after_reopening(place: Place) -> None:
    """Runs, entries, effects, owners and blobs, byte for byte; and the chain goes on."""
    value = bytes(range(256)) * 3
    big = b"x" * 300_000
    with place.open() as store:
        take = place.take()
        blob = replace(place.append("big", b"\0" + blob_hash(big)), blobs=((blob_hash(big), big),))
        store.transact([place.join(), place.start(), place.append("bytes", value), take, blob])
        before = store.read_run("r"), store.read_effect(take.effect.key), store.read_owner(ALIVE)
    with place.open() as store:
        after = store.read_run("r"), store.read_effect(take.effect.key), store.read_owner(ALIVE)
        assert after == before and after[0] is not None
        assert after[0][1][0].value == value and store.read_blob(blob_hash(big)) == big
        one(store, place.append("next"))
        assert slots(store) == ["bytes", "pay", "big", "next"]


def what_is_not_there_is_none(place: Place) -> None:
    """Reading and writing what nobody made."""
    with place.open() as store:
        assert (store.read_run("no"), store.read_effect("0" * 32), store.read_owner(5)) == (None, None, None)
        assert one(store, place.append("a")).verdict is Verdict.MISSING
        assert one(store, place.claim(seen_by(ALIVE))).verdict is Verdict.MISSING
        assert one(store, place.decide("0" * 32, Do.ABANDON)).verdict is Verdict.MISSING
        assert store.find_runs() == [] and store.find_effects() == []


def many_threads_keep_one_chain(place: Place) -> None:
    """A store may be used by several threads at once."""
    with place.open() as store:
        one(store, place.start())
        work = [[place.append(f"{t}-{n}") for n in range(20)] for t in range(4)]

        def append_all(mine: list[Append]) -> None:
            for write in mine:
                one(store, write)

        in_threads(append_all, work)
        found = slots(store)
        assert len(found) == 80
        for t in range(4):
            assert [s for s in found if s.startswith(f"{t}-")] == [f"{t}-{n}" for n in range(20)]


def processes_see_each_others_writes_at_once(place: Place) -> None:
    """What a store remembers of a run must not outlive another process's commit."""
    with place.open() as mine, place.open() as theirs:
        mine.transact([place.start(), place.append("a")])
        assert one(theirs, place.claim(seen_by(STRANGER))).verdict is Verdict.TOOK
        assert one(theirs, place.append("b", fence=2)).verdict is Verdict.DONE
        assert one(mine, place.append("stale")).verdict is Verdict.FENCED
        one(theirs, place.end(RunDo.RELEASE, fence=2))
        assert one(mine, place.claim(seen_by(ALIVE))).verdict is Verdict.TOOK
        assert one(mine, place.append("c", fence=3)).verdict is Verdict.DONE
        assert slots(mine) == slots(theirs) == ["a", "b", "c"]


# --- runs ---------------------------------------------------------------------------------------------------------


def a_run_is_started_once(place: Place) -> None:
    """A second start shows who has the id, and changes nothing."""
    with place.open() as store:
        first = place.start()
        one(store, first)
        answer = one(store, place.start(owner=STRANGER))
        assert answer.verdict is Verdict.EXISTS and answer.run == first.run
        assert store.read_run("r") == (first.run, [])


def a_run_is_claimed_by_one_asker(place: Place) -> None:
    """Of many askers one gets it, with a higher fence token, and the others learn that it is held."""
    with place.open() as store:
        store.transact([place.start(), place.end(RunDo.RELEASE)])
        store.transact([place.join(owner_id) for owner_id in range(100, 108)])
        claims = [place.claim(seen_by(owner_id)) for owner_id in range(100, 108)]
        answers: list[Answer] = []
        in_threads(lambda claim: answers.append(one(store, claim)), claims)
        assert sorted(a.verdict for a in answers) == [Verdict.BUSY] * 7 + [Verdict.TOOK]
        took = next(a.run for a in answers if a.verdict is Verdict.TOOK)
        assert took is not None and took.fence == 2


def a_live_owner_keeps_its_run_and_a_dead_one_loses_it(place: Place) -> None:
    """Busy while the lease lives; free when the process is gone, its lease is over, or the machine was restarted."""
    with place.open() as store:
        store.transact([place.join(), place.start()])
        busy = one(store, place.claim(seen_by(STRANGER)))
        assert busy.verdict is Verdict.BUSY and busy.holder
        assert one(store, place.claim(seen_by(STRANGER, gone=[ALIVE]))).verdict is Verdict.TOOK
        store.transact([place.join(), place.start("late"), place.join(lease_until=40.0)])
        assert one(store, place.claim(seen_by(STRANGER), "late")).verdict is Verdict.TOOK
        store.transact([place.start("reboot"), place.join(boot="another boot")])
        assert one(store, place.claim(seen_by(STRANGER), "reboot")).verdict is Verdict.TOOK


def a_stale_fence_token_changes_nothing(place: Place) -> None:
    """Every kind of write of an owner that lost its run is refused."""
    with place.open() as store:
        take = place.take()
        store.transact([place.start(), place.append("a"), take])
        one(store, place.claim(seen_by(STRANGER)))
        before = store.read_run("r"), store.read_effect(take.effect.key)
        for write in (place.append("x"), place.end(), place.take("order:2")):
            assert one(store, write).verdict is Verdict.FENCED
        park = ParkUnasked(run_id="r", key=take.effect.key, fence=1, vantage=seen_by(ALIVE), stamp=next(place.stamps))
        assert one(store, park).verdict is Verdict.FENCED
        assert (store.read_run("r"), store.read_effect(take.effect.key)) == before


def an_ended_run_is_sealed(place: Place) -> None:
    """Its length and last digest stand in its record; nothing follows, and nobody claims it."""
    with place.open() as store:
        store.transact([place.start(), place.append("a"), place.append("b"), place.end()])
        assert one(store, place.append("c")).verdict is Verdict.FENCED
        assert one(store, place.claim(seen_by(STRANGER))).verdict is Verdict.ENDED
        read = store.read_run("r")
        assert read is not None and read[0].status is RunStatus.SUCCEEDED and read[0].result == b"7"
        assert (read[0].length, read[0].head) == (2, read[1][-1].digest)


def a_cancelled_run_makes_no_new_intent(place: Place) -> None:
    """What is being done is still recorded; a new effect is refused."""
    with place.open() as store:
        one(store, place.start())
        cancel = CancelRun(run_id="r", vantage=seen_by(STRANGER), reason="", stamp=next(place.stamps))
        assert one(store, cancel).verdict is Verdict.DONE
        assert one(store, place.append("a")).verdict is Verdict.CANCELLED
        take = place.take()
        assert one(store, take).verdict is Verdict.CANCELLED
        assert slots(store) == ["a"] and store.read_effect(take.effect.key) is None


def runs_are_found_by_status_newest_first(place: Place) -> None:
    """All, some, and no more than asked for."""
    with place.open() as store:
        for number in range(5):
            one(store, place.start(f"r{number}", created_at=AT + number))
        one(store, place.end(run_id="r1"))
        assert [run.id for run in store.find_runs()] == ["r4", "r3", "r2", "r1", "r0"]
        assert [run.id for run in store.find_runs([RunStatus.SUCCEEDED])] == ["r1"]
        assert [run.id for run in store.find_runs([RunStatus.RUNNING], limit=2)] == ["r4", "r3"]
        assert store.find_runs([RunStatus.PENDING, RunStatus.FAILED]) == []


# --- effects ------------------------------------------------------------------------------------------------------


def an_identity_is_claimed_once(place: Place) -> None:
    """The first asker sends; a second with the same request learns who holds it, or gets the receipt."""
    with place.open() as store:
        take = place.take()
        store.transact([place.join(), place.start(), place.start("s", owner=STRANGER)])
        assert one(store, take).verdict is Verdict.DONE and slots(store) == ["pay"]
        second = one(store, place.take(run_id="s", vantage=seen_by(STRANGER)))
        assert second.verdict is Verdict.BUSY and second.effect == store.read_effect(take.effect.key)
        assert slots(store, "s") == []
        assert one(store, place.record(take.effect.key, Do.CONFIRM)).verdict is Verdict.DONE
        third = one(store, place.take(run_id="s", vantage=seen_by(STRANGER)))
        assert third.verdict is Verdict.EXISTS and third.effect is not None
        assert (third.effect.status, third.effect.receipt) == (Status.CONFIRMED, b'{"id":1}')
        assert slots(store) == ["pay", "pay"] and slots(store, "s") == ["pay"]


def a_taken_over_attempt_is_in_doubt(place: Place) -> None:
    """A dead sender's effect goes to the next owner with a higher fence token; it may have acted."""
    with place.open() as store:
        take = place.take()
        store.transact([place.join(), place.start(), take])
        one(store, place.claim(seen_by(STRANGER, gone=[ALIVE])))
        again = replace(place.take(fence=2, vantage=seen_by(STRANGER, gone=[ALIVE])), draft=None)
        answer = one(store, again)
        assert answer.verdict is Verdict.TOOK and answer.effect == store.read_effect(take.effect.key)
        held = answer.effect
        assert held is not None and (held.status, held.fence, held.owner) == (Status.IN_DOUBT, 2, STRANGER)
        assert (held.unresolved, held.first_sent_at) == (1, AT)


def another_request_under_an_identity_is_kept_and_not_sent(place: Place) -> None:
    """Both proposals stand in the record, each once, and the first is what it was."""
    with place.open() as store:
        take = place.take()
        store.transact([place.join(), place.start(), place.start("s", owner=STRANGER), take])
        other = place.take(run_id="s", request=b'{"amount":35}', vantage=seen_by(STRANGER))
        for _ in range(2):
            assert one(store, replace(other, stamp=next(place.stamps))).verdict is Verdict.DISAGREES
        held = store.read_effect(take.effect.key)
        assert held is not None and held.request == b'{"amount":40}' and held.status is Status.ATTEMPTED
        assert [(e.kind, e.value, e.who) for e in held.evidence] == [("disagreement", b'{"amount":35}', "s")]
        assert slots(store, "s") == []


def a_late_answer_is_kept_as_evidence_and_moves_nothing(place: Place) -> None:
    """What a fenced sender learned is kept once, beside the status that its successor wrote."""
    with place.open() as store:
        take = place.take()
        store.transact([place.join(), place.start(), take])
        one(store, place.claim(seen_by(STRANGER, gone=[ALIVE])))
        one(store, replace(place.take(fence=2, vantage=seen_by(STRANGER, gone=[ALIVE])), draft=None))
        before = store.read_effect(take.effect.key)
        for _ in range(2):
            assert one(store, place.record(take.effect.key, Do.CONFIRM)).verdict is Verdict.FENCED
        held = store.read_effect(take.effect.key)
        assert before is not None and held is not None and slots(store) == ["pay"]
        late = [e for e in held.evidence if e.kind == "late"]
        assert [(e.found, e.value) for e in late] == [("landed", b'{"id":1}')]
        assert replace(held, evidence=before.evidence) == before


def an_effect_that_moved_on_is_not_written_by_its_old_owner(place: Place) -> None:
    """Its run is still the old owner's, but another run has the effect now: an effect has a fence token of its own."""
    with place.open() as store:
        take = place.take()
        store.transact([place.join(), place.start(), place.start("s", owner=STRANGER), take])
        moved = place.take(run_id="s", vantage=seen_by(STRANGER, gone=[ALIVE]))
        assert one(store, moved).verdict is Verdict.TOOK
        before = store.read_effect(take.effect.key)
        assert one(store, place.record(take.effect.key, Do.CONFIRM)).verdict is Verdict.EXISTS
        held = store.read_effect(take.effect.key)
        assert before is not None and held is not None and slots(store) == ["pay"]
        assert replace(held, evidence=before.evidence) == before and held.evidence[-1].kind == "late"


def a_person_decides_only_what_is_parked(place: Place) -> None:
    """Happened, did not happen, abandon: each from parked alone, with who and why kept."""
    ends = {Do.HAPPENED: Status.CONFIRMED, Do.DID_NOT_HAPPEN: Status.INTENDED, Do.ABANDON: Status.ABANDONED}
    with place.open() as store:
        one(store, place.start())
        for do, status in ends.items():
            take = place.take(f"order:{do}")
            key = take.effect.key
            one(store, take)
            assert one(store, place.decide(key, do)).verdict is Verdict.ILLEGAL
            place.park(store, key)
            assert one(store, place.decide(key, do)).verdict is Verdict.DONE
            held = store.read_effect(key)
            assert held is not None and held.status is status and held.owner == 0
            assert (held.evidence[-1].who, held.evidence[-1].text) == ("ann", "saw it")
            assert one(store, place.decide(key, do)).verdict is Verdict.ILLEGAL


def effects_are_found_by_status_and_run(place: Place) -> None:
    """Any status or some, any run or one."""
    with place.open() as store:
        takes = [place.take("a"), place.take("b"), place.take("c", run_id="s")]
        store.transact([place.start(), place.start("s"), *takes, place.record(takes[0].effect.key, Do.CONFIRM)])

        def found(*statuses: Status, run_id: str = "") -> set[str]:
            return {effect.identity for effect in store.find_effects(statuses, run_id=run_id)}

        assert (found(), found(run_id="s"), found(Status.CONFIRMED)) == ({"a", "b", "c"}, {"c"}, {"a"})
        assert found(Status.ATTEMPTED, run_id="r") == {"b"} and found(Status.PARKED) == set()
        assert len(store.find_effects(limit=2)) == 2


# --- a write that comes again -------------------------------------------------------------------------------------

Story = Callable[[Place, Store], Write]
"""Prepares a store, and returns the write whose outcome will not be known."""


def _stories(place: Place) -> dict[str, Story]:
    def with_run(make: Callable[[], Write]) -> Story:
        def prepare(place: Place, store: Store) -> Write:
            store.transact([place.join(), place.start()])
            return make()

        return prepare

    def with_effect(make: Callable[[str], Write], *, parked: bool = False, claimed: bool = False) -> Story:
        def prepare(place: Place, store: Store) -> Write:
            take = place.take()
            store.transact([place.join(), place.start(), take])
            if parked:
                place.park(store, take.effect.key)
            if claimed:
                one(store, place.claim(seen_by(STRANGER, gone=[ALIVE])))
            return make(take.effect.key)

        return prepare

    big = b"y" * 100_000
    after_death = seen_by(STRANGER, gone=[ALIVE])
    return {
        "join": lambda place, store: place.join(),
        "start": lambda place, store: place.start(),
        "append": with_run(lambda: place.append("a")),
        "append a blob": with_run(lambda: replace(place.append("a"), blobs=((blob_hash(big), big),))),
        "claim": with_run(lambda: place.claim(seen_by(STRANGER, gone=[ALIVE]))),
        "end": with_run(lambda: place.end()),
        "cancel": with_run(
            lambda: CancelRun(run_id="r", vantage=seen_by(STRANGER), reason="", stamp=next(place.stamps))
        ),
        "take": with_run(lambda: place.take()),
        "take over": with_effect(
            lambda key: replace(place.take(fence=2, vantage=after_death), draft=None), claimed=True
        ),
        "disagree": with_effect(lambda key: place.take(request=b"{}")),
        "record": with_effect(lambda key: place.record(key, Do.CONFIRM)),
        "record a doubt": with_effect(lambda key: place.record(key, Do.LOSE, ends=False)),
        "record late": with_effect(lambda key: place.record(key, Do.CONFIRM), claimed=True),
        "decide": with_effect(lambda key: place.decide(key, Do.HAPPENED), parked=True),
        "park": with_effect(
            lambda key: ParkUnasked(run_id="r", key=key, fence=1, vantage=seen_by(ALIVE), stamp=next(place.stamps))
        ),
    }


def _picture(store: Store) -> tuple[object, ...]:
    run = store.read_run("r")
    return run, store.find_effects(), store.read_owner(ALIVE)


def a_write_that_comes_again_is_done_once(place: Place) -> None:
    """After a commit of unknown outcome the same write answers the same, whether it had been applied or not (R10)."""
    for name, prepare in _stories(place).items():
        for applied in (True, False):
            other = place.fresh()
            with other.open() as store:
                write = prepare(other, store)
                if applied:
                    first = one(store, write)
                    wanted = _picture(store)
                    second = one(store, write, again=True)
                    assert (second.verdict, _picture(store)) == (first.verdict, wanted), f"{name}: done twice"
                else:
                    before = _picture(store)
                    one(store, write, again=True)
                    assert _picture(store) != before, f"{name}: not done at all"


def a_batch_that_comes_again_is_done_once(place: Place) -> None:
    """The group as a whole, as the committer retries it."""
    with place.open() as store:
        batch = [place.join(), place.start(), place.append("a"), place.take(), place.append("b")]
        first = store.transact(batch)
        wanted = _picture(store)
        second = store.transact(batch, again=True)
        assert [a.verdict for a in second] == [a.verdict for a in first] and _picture(store) == wanted


# --- large values, presence, damage -------------------------------------------------------------------------------


def a_large_value_is_stored_once_and_checked(place: Place) -> None:
    """Under the hash of its content; a name that nobody stored is damage, not emptiness."""
    big = bytes(range(256)) * 20_000
    name = blob_hash(big)
    with place.open() as store:
        writes = [replace(place.append(f"s{n}", b"\0" + name), blobs=((name, big),)) for n in range(3)]
        store.transact([place.start(), *writes])
        one(store, replace(place.append("s3", b"\0" + name), blobs=((name, big),)))
        assert store.read_blob(name) == big
        inline = bytes(range(256)) * 4_000
        one(store, place.append("inline", inline))
        read = store.read_run("r")
        assert read is not None and read[1][-1].value == inline
        _reports(lambda: store.read_blob(b"\1" * 32))


def a_process_is_present_until_it_is_gone(place: Place) -> None:
    """Presence goes with the process, not with a call; a stranger was never there."""
    with place.open() as watcher:
        worker = place.open_store()
        worker.appear(ALIVE)
        assert not watcher.is_gone(ALIVE)
        assert watcher.is_gone(12345)
        place.vanish(worker, ALIVE)
        assert watcher.is_gone(ALIVE)


def closing_twice_is_harmless(place: Place) -> None:
    """As `with` and an explicit close do."""
    store = place.open_store()
    one(store, place.start())
    store.close()
    store.close()


def a_changed_byte_is_reported_and_never_replayed(place: Place) -> None:
    """In an entry, a run's record or an effect's record; the other runs stay readable."""
    if place.damage is None:
        return
    for what in ("entry", "run", "effect"):
        other = place.fresh()
        take = place.take()
        with other.open() as store:
            store.transact([place.start(), place.append("a", b'"40"'), take, place.start("healthy")])
        assert other.damage is not None
        other.damage(what, take.effect.key if what == "effect" else "r")
        with other.open() as store:
            _reports(lambda: store.read_effect(take.effect.key) if what == "effect" else store.read_run("r"))  # noqa: B023
            assert store.read_run("healthy") is not None


def _reports(read: Callable[[], object]) -> None:
    try:
        found = read()
    except Damaged:
        return
    raise AssertionError(f"damage was not reported; the store answered {found!r}")


Check = Callable[[Place], None]
CHECKS: tuple[Check, ...] = (
    a_batch_is_decided_and_saved_in_order,
    a_batch_that_fails_leaves_nothing,
    what_was_committed_is_there_after_reopening,
    what_is_not_there_is_none,
    many_threads_keep_one_chain,
    processes_see_each_others_writes_at_once,
    a_run_is_started_once,
    a_run_is_claimed_by_one_asker,
    a_live_owner_keeps_its_run_and_a_dead_one_loses_it,
    a_stale_fence_token_changes_nothing,
    an_ended_run_is_sealed,
    a_cancelled_run_makes_no_new_intent,
    runs_are_found_by_status_newest_first,
    an_identity_is_claimed_once,
    a_taken_over_attempt_is_in_doubt,
    another_request_under_an_identity_is_kept_and_not_sent,
    a_late_answer_is_kept_as_evidence_and_moves_nothing,
    an_effect_that_moved_on_is_not_written_by_its_old_owner,
    a_person_decides_only_what_is_parked,
    effects_are_found_by_status_and_run,
    a_write_that_comes_again_is_done_once,
    a_batch_that_comes_again_is_done_once,
    a_large_value_is_stored_once_and_checked,
    a_process_is_present_until_it_is_gone,
    closing_twice_is_harmless,
    a_changed_byte_is_reported_and_never_replayed,
)
"""Every check, in the order in which a new store meets them."""
