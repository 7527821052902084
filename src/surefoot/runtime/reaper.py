"""Frees the runs of processes that died, so that any worker may go on with them at once.

Who died is told by presence, which the operating system drops with the process, or by a lapsed lease. Both may be wrong
(a process that was stopped comes back): then its fence token is too low, and it can change and send nothing.

Everybody looks at everybody now and then. Where the store can tell an end in its moment, each worker also waits for the
end of the next one, in the order of their ids, so that each is waited for by one.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from ..core.dispatch import DEATHS_MAX
from ..core.dispatch_writes import FreeRun, Leave
from ..core.errors import SurefootError
from ..core.lease import Owner, Vantage
from ..core.run import Run, RunStatus
from ..core.writes import Verdict
from ..stores.base import Watches
from .clock import random_number
from .engine import EVERYTHING, Engine

LOOK_SECONDS = 0.2
WATCH_PAUSE_SECONDS = 0.2
LOOKS = 4
"""How many workers look at each process in one round, on average: so the looks grow with the fleet, not faster."""


class Reaper:
    """One worker's look at the other processes of its store."""

    def __init__(self, engine: Engine, *, deaths_max: int = DEATHS_MAX) -> None:
        """`deaths_max`: a run that was there when so many processes died is started no more."""
        self._engine, self._deaths_max = engine, deaths_max
        self._orphans_at = self._due_at = 0.0
        self._term = 0
        self._ended: set[int] = set()
        self.next_worker = 0
        """The owner whose end is waited for; 0 while there is no other worker."""
        self._alike: list[int] = []

    @property
    def is_told(self) -> bool:
        """True if somebody seems to be gone, so that a look is likely to free runs."""
        return bool(self._ended)

    def look_if_due(self) -> int:
        """Look, if the last look was long enough ago or an end was told; how many runs were freed."""
        now = self._engine.clock.lease_now()
        if now < self._due_at and not self._ended:
            return 0
        self._due_at = now + LOOK_SECONDS * (0.75 + random_number() / 2)
        return self.look()

    def behind(self, number: int) -> int:
        """How many workers that serve the same come before this one at that turn; each turn is led by another."""
        alike = self._alike
        mine = bisect_left(alike, self._engine.owner)
        return (mine + number) % (len(alike) + 1)

    def hurry(self, ended: int) -> None:
        """This owner seems to be gone: look when asked next."""
        self._ended.add(ended)

    def look(self) -> int:
        """Free what dead processes held, and take their rows away; how many runs were freed."""
        engine = self._engine
        owners = [owner for owner in engine.store.board.find_owners() if owner.id != engine.owner]
        share, hinted = _share(owners), self._ended
        self._ended = set[int]()
        dead = [owner for owner in owners if self._is_dead(owner, 1.0 if owner.id in hinted else share)]
        others = [owner for owner in owners if owner not in dead]
        self.next_worker = _next(engine.owner, others)
        self._alike = sorted(owner.id for owner in others if owner.serves == engine.serves)
        orphans_due = engine.clock.lease_now() >= self._orphans_at
        term = engine.term()
        if not dead and not orphans_due and term == self._term:
            return 0
        self._term = term
        self._orphans_at = engine.clock.lease_now() + engine.lease_seconds
        living = {owner.id for owner in owners} - {owner.id for owner in dead} | {engine.owner}
        running = engine.store.find_runs([RunStatus.RUNNING], limit=EVERYTHING)
        left = [run for run in running if run.owner not in living or run.term < term]
        vantage = replace(engine.look(0), at=engine.time(), gone=frozenset(owner.id for owner in dead))
        had = Counter(run.owner for run in left)
        answers = engine.committer.commit_all([self._free(run, vantage, had[run.owner] - 1) for run in left])
        engine.committer.commit_all([self._leave(owner) for owner in dead])
        return sum(answer.verdict is Verdict.DONE for answer in answers)

    def _is_dead(self, owner: Owner, share: float) -> bool:
        asked = share >= 1 or random_number() < share
        return self._engine.look(owner.id if asked else 0).may_take_from(owner.id, owner)

    def _free(self, run: Run, vantage: Vantage, beside: int) -> FreeRun:
        stamp = next(self._engine.stamps)
        return FreeRun(run_id=run.id, vantage=vantage, deaths_max=self._deaths_max, beside=beside, stamp=stamp)

    def _leave(self, owner: Owner) -> Leave:
        return Leave(owner_id=owner.id, seen=owner.stamp, stamp=next(self._engine.stamps))


class Lookout:
    """Waits for the end of the next worker on a thread of its own; a store that cannot tell has none."""

    def __init__(self, engine: Engine, reaper: Reaper, tell: Callable[[], None]) -> None:
        """`tell` is called when the reaper should look."""
        self._engine, self._reaper, self._tell = engine, reaper, tell
        self._over = threading.Event()

    def start(self) -> None:
        """Begin, if this store can tell."""
        store = self._engine.store
        if isinstance(store, Watches):
            threading.Thread(target=self._watch, args=(store,), name="surefoot-lookout", daemon=True).start()

    def stop(self) -> None:
        """End soon; returns at once."""
        self._over.set()

    def _watch(self, store: Watches) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            pause = WATCH_PAUSE_SECONDS
            watched = self._reaper.next_worker
            if not watched:
                continue
            try:
                ended = store.await_end(watched)
            except SurefootError:
                continue
            if ended:
                self._reaper.hurry(watched)
                self._tell()
            elif ended is False:
                pause = 0.0


def _next(mine: int, owners: list[Owner]) -> int:
    """The worker that follows in the order of ids, the first one after the last; 0 if there is no other."""
    workers = sorted(owner.id for owner in owners if owner.serves is not None)
    return next((owner_id for owner_id in workers if owner_id > mine), workers[0] if workers else 0)


def _share(owners: list[Owner]) -> float:
    """The part of all processes whose presence one worker looks at in one round."""
    workers = 1 + sum(owner.serves is not None for owner in owners)
    return 1.0 if workers <= LOOKS + 1 else LOOKS / workers
