"""Frees the runs of processes that died, so that any worker may go on with them at once.

Who died is told by presence, which the operating system drops with the process, or by a lapsed lease. Both may be wrong
(a process that was stopped comes back): then its fence token is too low, and it can change and send nothing.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from ..core.dispatch import DEATHS_MAX
from ..core.dispatch_writes import FreeRun, Leave
from ..core.lease import Owner, Vantage
from ..core.run import Run, RunStatus
from ..core.writes import Verdict
from .clock import random_number
from .engine import EVERYTHING, Engine

LOOK_SECONDS = 0.2
LOOKS = 4
"""How many workers look at each process in one round, on average: so the looks grow with the fleet, not faster."""


class Reaper:
    """One worker's look at the other processes of its store."""

    def __init__(self, engine: Engine, *, deaths_max: int = DEATHS_MAX) -> None:
        """`deaths_max`: a run that was there when so many processes died is started no more."""
        self._engine, self._deaths_max = engine, deaths_max
        self._orphans_at = self._due_at = 0.0
        self._term = 0

    def look_if_due(self) -> None:
        """Look, if the last look was long enough ago."""
        now = self._engine.clock.lease_now()
        if now >= self._due_at:
            self._due_at = now + LOOK_SECONDS * (0.75 + random_number() / 2)
            self.look()

    def look(self) -> int:
        """Free what dead processes held, and take their rows away; how many runs were freed."""
        engine = self._engine
        owners = [owner for owner in engine.store.board.find_owners() if owner.id != engine.owner]
        share = _share(owners)
        dead = [owner for owner in owners if self._is_dead(owner, share)]
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


def _share(owners: list[Owner]) -> float:
    """The part of all processes whose presence one worker looks at in one round."""
    workers = 1 + sum(owner.serves is not None for owner in owners)
    return 1.0 if workers <= LOOKS + 1 else LOOKS / workers
