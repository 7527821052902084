"""What every store must do when a run changes hands while its owner may still be writing, as tests that ship.

See `contract` for how to run them. Whoever changes such a run from outside takes the next place in its journal, so a
store may fence an entry by its place alone, without looking at the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from ..core.dispatch_writes import FreeRun
from ..core.journal import FENCE
from ..core.writes import CancelRun, Verdict, Write
from ..stores.base import Store
from .contract import Check
from .place import ALIVE, STRANGER, Place, all_slots, one, seen_by

ROUNDS = 20


def a_run_that_is_taken_has_its_next_place_taken(place: Place) -> None:
    """By a claim, by whoever frees it from a dead owner, and by whoever asks it to stop; nobody else's run has."""
    with place.open() as store:
        store.transact([place.join(), place.start(), place.append("a")])
        one(store, place.claim(seen_by(STRANGER, gone=[ALIVE])))
        one(store, _cancel(place))
        one(store, replace(place.append("b", fence=2), undoing=True))
        one(store, _free(place, gone=STRANGER))
        one(store, place.claim(seen_by(ALIVE)))
        one(store, replace(place.append("c", fence=3), undoing=True))
        expected = ["a", f"{FENCE}1.claim", f"{FENCE}2.cancel", "b", f"{FENCE}3.free", "c"]
        assert all_slots(store) == expected
        read = store.read_run("r")
        assert read is not None and read[0].fences == 3


def an_owner_that_remembers_its_run_learns_of_the_change_at_its_next_entry(place: Place) -> None:
    """It may have read nothing since: the place behind the last entry that it knows is taken."""
    for name, change in _changes(place).items():
        with place.open() as mine, place.open() as theirs:
            mine.transact([place.join(), place.start(name), place.append("a", run_id=name)])
            assert one(mine, place.append("b", run_id=name)).verdict is Verdict.DONE
            one(theirs, replace(change(), run_id=name))
            verdict = one(mine, place.append("c", run_id=name)).verdict
            assert verdict is (Verdict.CANCELLED if name == "cancel" else Verdict.FENCED), name
            kept = ["a", "b", f"{FENCE}1.{name}"]
            assert all_slots(theirs, name) == ([*kept, "c"] if name == "cancel" else kept)


def an_entry_and_a_claim_at_once_leave_nothing_behind_the_fence(place: Place) -> None:
    """I5: what the old owner is told was recorded stands before the fence, and nothing of it behind."""
    for n in range(ROUNDS):
        with place.open() as mine, place.open() as theirs:
            _race(place, mine, theirs, f"r{n}")


def _race(place: Place, mine: Store, theirs: Store, run_id: str) -> None:
    mine.transact([place.join(), place.start(run_id)])
    writes = [place.append(f"mine-{i}", run_id=run_id) for i in range(200)]
    recorded: list[str] = []
    begun = threading.Event()

    def write_until_fenced() -> None:
        for write in writes:
            if one(mine, write).verdict is not Verdict.DONE:
                return
            recorded.append(write.draft.slot)
            begun.set()

    owner = threading.Thread(target=write_until_fenced)
    owner.start()
    begun.wait(10)
    assert one(theirs, place.claim(seen_by(STRANGER, gone=[ALIVE]), run_id)).verdict is Verdict.TOOK
    assert one(theirs, place.append("theirs", run_id=run_id, fence=2)).verdict is Verdict.DONE
    owner.join()
    assert recorded and all_slots(theirs, run_id) == [*recorded, f"{FENCE}1.claim", "theirs"]


def _cancel(place: Place) -> CancelRun:
    return CancelRun(run_id="r", vantage=seen_by(STRANGER), reason="", stamp=next(place.stamps))


def _free(place: Place, *, gone: int) -> FreeRun:
    other = STRANGER if gone == ALIVE else ALIVE
    return FreeRun(run_id="r", vantage=seen_by(other, gone=[gone]), stamp=next(place.stamps))


def _changes(place: Place) -> dict[str, Callable[[], Write]]:
    return {
        "claim": lambda: place.claim(seen_by(STRANGER, gone=[ALIVE])),
        "free": lambda: _free(place, gone=ALIVE),
        "cancel": lambda: _cancel(place),
    }


FENCE_CHECKS: tuple[Check, ...] = (
    a_run_that_is_taken_has_its_next_place_taken,
    an_owner_that_remembers_its_run_learns_of_the_change_at_its_next_entry,
    an_entry_and_a_claim_at_once_leave_nothing_behind_the_fence,
)
"""Every check of this module, in order."""
