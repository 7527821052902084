"""Where a store under test lives, and the writes that the contract's checks are made of."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ..core.contract import Contract, keyed
from ..core.digest import digest
from ..core.effect import Do, Effect, Event, Evidence, Status
from ..core.ids import derive_key
from ..core.journal import FENCE, Draft, EntryKind, verify
from ..core.lease import Owner, Vantage
from ..core.run import Run, RunDo, RunStatus
from ..core.writes import (
    Answer,
    Append,
    ClaimRun,
    DecideEffect,
    EndRun,
    Join,
    RecordEffect,
    StartRun,
    TakeEffect,
    Write,
)
from ..stores.base import Store

T = TypeVar("T")
AT = 1_800_000_000.0
ALIVE, STRANGER = 11, 22
"""Owner ids: one that has joined with a lease, and one that asks for its work."""


class Place:
    """Where a store lives. `open()` is called once for each process that a check plays; all of them share one place.

    `fresh()` returns another, empty place. `vanish(store, owner_id)` makes that owner's process end without a word;
    closing its store will do where presence is a lock. `damage(what, name)` changes a byte of a stored `"entry"` or
    `"run"` (name: run id) or `"effect"` (name: key);
    without it the checks of damage pass over.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        fresh: Callable[[], Place],
        vanish: Callable[[Store, int], None] = lambda store, owner_id: store.close(),
        damage: Callable[[str, str], None] | None = None,
    ) -> None:
        """`open_store` returns a store on the same place each time."""
        self.open_store, self.fresh, self.vanish, self.damage = open_store, fresh, vanish, damage
        self.stamps = itertools.count(1)

    @contextmanager
    def open(self) -> Generator[Store]:
        """A process's view of the place."""
        store = self.open_store()
        try:
            yield store
        finally:
            store.close()

    # --- records that checks are made of --------------------------------------------------------------------------

    def start(self, run_id: str = "r", *, owner: int = ALIVE, created_at: float = AT) -> StartRun:
        """The start of a run, owned by its creator with fence token 1."""
        run = Run(
            id=run_id,
            workflow="w",
            status=RunStatus.RUNNING,
            arguments=b"{}",
            args_digest=digest(b"{}"),
            fence=1,
            owner=owner,
            created_at=created_at,
            updated_at=created_at,
            stamp=next(self.stamps),
        )
        return StartRun(run_id=run_id, run=run, stamp=run.stamp)

    def append(self, slot: str, value: bytes = b"1", *, run_id: str = "r", fence: int = 1) -> Append:
        """One step's entry."""
        draft = Draft(EntryKind.STEP, slot, digest(b"a"), "a", value, AT + 0.123)
        return Append(run_id=run_id, fence=fence, draft=draft, stamp=next(self.stamps))

    def end(self, do: RunDo = RunDo.SUCCEED, *, run_id: str = "r", fence: int = 1) -> EndRun:
        """The end of an owner's work."""
        return EndRun(run_id=run_id, fence=fence, do=do, at=AT, result=b"7", stamp=next(self.stamps))

    def join(self, owner_id: int = ALIVE, *, lease_until: float = 100.0, boot: str = "boot") -> Join:
        """A process appears, with a lease until then."""
        owner = Owner(id=owner_id, pid=1, host="h", boot=boot, started_at=AT, lease_until=lease_until)
        return Join(owner=owner, stamp=next(self.stamps))

    def claim(self, vantage: Vantage, run_id: str = "r") -> ClaimRun:
        """Somebody asks for a run."""
        return ClaimRun(run_id=run_id, vantage=vantage, why="", stamp=next(self.stamps))

    def take(
        self,
        identity: str = "order:1",
        *,
        request: bytes = b'{"amount":40}',
        run_id: str = "r",
        fence: int = 1,
        vantage: Vantage | None = None,
        contract: Contract | None = None,
    ) -> TakeEffect:
        """An intent with its first attempt, or the wish to take what stands under the identity."""
        vantage = vantage or seen_by(ALIVE)
        effect = Effect(
            key=derive_key("default", identity),
            namespace="default",
            identity=identity,
            name="pay",
            run=run_id,
            slot="pay",
            status=Status.ATTEMPTED,
            contract=contract or keyed(window=3600),
            request=request,
            request_digest=digest(request),
            sent_key="k",
            timeout_seconds=1.0,
            budget_seconds=900.0,
            owner=vantage.owner,
            created_at=AT,
            attempts=1,
            first_sent_at=AT,
            attempted_at=AT,
            deadline_at=AT + 3,
        )
        draft = Draft(EntryKind.INTENT, "pay", effect.request_digest, "", effect.key.encode(), AT)
        stamp = next(self.stamps)
        return TakeEffect(run_id=run_id, fence=fence, effect=effect, vantage=vantage, draft=draft, stamp=stamp)

    def record(self, key: str, do: Do, *, run_fence: int = 1, effect_fence: int = 1, ends: bool = True) -> RecordEffect:
        """What came of an attempt, with its journal entry if it `ends` the effect."""
        learned = Evidence(at=AT + 1, kind="answer", found="landed", value=b'{"id":1}', attempt=1)
        event = Event(do=do, at=AT + 1, receipt=b'{"id":1}', evidence=None if ends else learned)
        return RecordEffect(
            run_id="r",
            key=key,
            effect_fence=effect_fence,
            run_fence=run_fence,
            event=event,
            late=learned,
            draft=Draft(EntryKind.OUTCOME, "pay", digest(b"o"), "", b"{}", AT + 1) if ends else None,
            stamp=next(self.stamps),
        )

    def park(self, store: Store, key: str) -> None:
        """Bring an attempted effect of run "r" to a person."""
        one(store, self.record(key, Do.LOSE, ends=False))
        one(store, self.record(key, Do.PARK, ends=False))

    def decide(self, key: str, do: Do) -> DecideEffect:
        """A person's decision."""
        said = Evidence(at=AT + 9, kind="decision", found=do, who="ann", text="saw it")
        event = Event(do=do, at=AT + 9, receipt=b'{"id":9}' if do is Do.HAPPENED else b"", evidence=said)
        return DecideEffect(key=key, event=event, stamp=next(self.stamps))


def seen_by(owner: int, *, lease_now: float = 50.0, gone: Sequence[int] = ()) -> Vantage:
    """What an asker knows: leases until 100 are live at 50."""
    return Vantage(owner=owner, boot="boot", lease_now=lease_now, at=AT, gone=frozenset(gone))


def one(store: Store, write: Write, *, again: bool = False) -> Answer:
    """Commit a single write."""
    return store.transact([write], again=again)[0]


def slots(store: Store, run_id: str = "r") -> list[str]:
    """The slots of what a run's owners have recorded, in order; its chain is verified."""
    return [slot for slot in all_slots(store, run_id) if not slot.startswith(FENCE)]


def all_slots(store: Store, run_id: str = "r") -> list[str]:
    """The same, with the fences."""
    read = store.read_run(run_id)
    assert read is not None
    assert verify(run_id, read[1]).length == len(read[1])
    return [entry.slot for entry in read[1]]


def in_threads(do: Callable[[T], object], items: Sequence[T]) -> None:
    """Do it to all at the same time, and wait for the end."""
    threads = [threading.Thread(target=do, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
