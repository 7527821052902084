"""What one attempt at a batch has seen: each record with the digest under which it was stored.

A record may be a guess, remembered from an earlier commit of this process. That is safe because a save names the exact
digests that its decisions rest on, and the database compares them under row locks before it writes: a wrong guess, a
stale owner, or a message that arrives late or twice changes nothing. Entries alone need no look at their run: each has
one place, which whoever takes the run from its owner takes. So a batch of live runs reads nothing beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...core.dispatch import Queue, Ready, Served
from ...core.effect import Effect
from ...core.journal import Head, first_head
from ...core.lease import Owner
from ...core.mail import Mail
from ...core.run import Run, RunStatus
from ...core.schedule import Schedule
from ...core.writes import Join, StartRun, TakeEffect, Write
from ..base import Overlay
from ..records import open_effect, open_mail, open_owner, open_queue, open_run, open_schedule
from .desk import Fronts, Read, ready_rows, row_of

REMEMBERED_MAX = 20_000


class SeenRun(msgspec.Struct, frozen=True, gc=False):
    """A stored run, and where its journal ends."""

    num: int
    run: Run
    digest: bytes
    head: Head


class SeenEffect(msgspec.Struct, frozen=True, gc=False):
    """A stored effect."""

    effect: Effect
    digest: bytes


class Memory:
    """What this process last saved of the runs, effects and owners that it works on."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.runs: dict[str, SeenRun] = {}
        self.effects: dict[str, SeenEffect] = {}
        self.owners: dict[int, bytes] = {}
        self.last_keys: dict[str, str] = {}
        self.fronts = Fronts()

    def forget(self) -> None:
        """From now on everything is read first."""
        self.runs.clear()
        self.effects.clear()
        self.owners.clear()
        self.fronts.clear()

    def tidy(self) -> None:
        """Keep it small."""
        if len(self.runs) + len(self.effects) > REMEMBERED_MAX:
            self.forget()


class Sight:
    """Loads records for one attempt, from memory or from the database, and keeps what was assumed."""

    def __init__(self, memory: Memory, read: Read, *, fresh: bool) -> None:
        """`fresh`: guess nothing, read everything."""
        self._memory, self._read, self._fresh = memory, read, fresh
        self.guessed = False
        self.runs: dict[str, SeenRun | None] = {}
        self.effects: dict[str, SeenEffect | None] = {}
        self.owners: dict[int, Owner | None] = {}
        self.owner_digests: dict[int, bytes] = {}
        self.queue_changes: dict[str, int] = {}
        self.schedule_digests: dict[str, bytes] = {}
        self._runs_at_hand: dict[str, tuple[Any, ...]] = {}
        self._queues_at_hand: dict[str, tuple[Any, ...]] = {}

    def prepare(self, writes: Sequence[Write]) -> None:
        """Guess, or read in as few queries as possible, what these writes will ask for."""
        runs, effects, owners = set[str](), set[str](), set[int]()
        for write in writes:
            if write.run_id:
                runs.add(write.run_id)
            if isinstance(write, StartRun):
                self._suppose_absent(self.runs, write.run.id, runs, self._memory.runs)
            elif isinstance(write, TakeEffect):
                if write.draft is not None:
                    self._suppose_absent(self.effects, write.effect.key, effects, self._memory.effects)
                else:
                    effects.add(write.effect.key)
            elif isinstance(write, Join):
                self._suppose_owner(write.owner.id, owners)
            elif key := getattr(write, "key", ""):
                effects.add(key)
        self._look_up_runs(runs)
        self._look_up_effects(effects)
        self._look_up_owners(owners)

    def _suppose_absent(self, seen: dict[str, Any], name: str, wanted: set[str], memory: dict[str, Any]) -> None:
        """What is about to be made is new, in most cases; making it is what proves it."""
        if self._fresh or name in memory:
            wanted.add(name)
        elif name not in seen:
            seen[name] = None
            self.guessed = True

    def _suppose_owner(self, owner_id: int, wanted: set[int]) -> None:
        if self._fresh or owner_id not in self._memory.owners:
            wanted.add(owner_id)
        else:
            self.owner_digests[owner_id] = self._memory.owners[owner_id]

    # --- looking up -------------------------------------------------------------------------------------------------

    def _look_up_runs(self, names: Iterable[str]) -> None:
        missing: list[str] = []
        for name in names:
            if name in self.runs:
                continue
            known = None if self._fresh else self._memory.runs.get(name)
            if name in self._runs_at_hand:
                self.runs[name] = _seen(self._runs_at_hand[name])
            elif known is None:
                missing.append(name)
            else:
                self.runs[name] = known
                self.guessed = True
        if missing:
            self.runs.update(dict.fromkeys(missing))
            self.runs.update((row[0], _seen(row)) for row in self._read("load_runs", (missing,)))

    def _look_up_effects(self, keys: Iterable[str]) -> None:
        missing: list[str] = []
        for key in keys:
            if key in self.effects:
                continue
            known = None if self._fresh else self._memory.effects.get(key)
            if known is None:
                missing.append(key)
            else:
                self.effects[key] = known
                self.guessed = True
        if not missing:
            return
        self.effects.update(dict.fromkeys(missing))
        for key, content, digest, status in self._read("load_effects", (missing,)):
            self.effects[key] = SeenEffect(open_effect(key, content, digest, status), digest)

    def _look_up_owners(self, owner_ids: Iterable[int]) -> None:
        missing = [owner_id for owner_id in owner_ids if owner_id not in self.owners]
        if not missing:
            return
        self.owners.update(dict.fromkeys(missing))
        for owner_id, content, digest in self._read("load_owners", (missing,)):
            self.owners[owner_id] = open_owner(owner_id, content, digest)
            self.owner_digests[owner_id] = digest

    # --- what an overlay asks for -----------------------------------------------------------------------------------

    def load_run(self, run_id: str) -> Run | None:
        """One run as it was seen."""
        seen = self.seen_run(run_id)
        return None if seen is None else seen.run

    def seen_run(self, run_id: str) -> SeenRun | None:
        """The same, with its number and its head."""
        if run_id not in self.runs:
            self._look_up_runs((run_id,))
        return self.runs[run_id]

    def load_effect(self, key: str) -> Effect | None:
        """One effect as it was seen."""
        if key not in self.effects:
            self._look_up_effects((key,))
        seen = self.effects[key]
        return None if seen is None else seen.effect

    def load_owner(self, owner_id: int) -> Owner | None:
        """One owner as it stands: a lease is never guessed."""
        self._look_up_owners((owner_id,))
        return self.owners[owner_id]

    def load_head(self, run_id: str) -> Head:
        """The end of the run's journal."""
        seen = self.seen_run(run_id)
        return first_head(run_id) if seen is None else seen.head

    def load_has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        """True if the journal holds such an entry."""
        seen = self.seen_run(run_id)
        return seen is not None and bool(self._read("has_entry", (seen.num, slot, kind)))

    # --- queues and mail: never guessed ------------------------------------------------------------------------------

    def load_ready(self, served: Served, now: float, limit: int) -> list[Ready]:
        """Rows that nobody has; runs and queues are read along, and count as seen once they are asked for."""
        rows, runs, queues = ready_rows(self._read, served, now, limit, self._memory.last_keys, self._memory.fronts)
        lacking = [row.run_id for row in rows if row.run_id not in runs and row.run_id not in self.runs]
        if lacking:
            runs.update((row[0], row) for row in self._read("load_runs", (lacking,)))
        self._runs_at_hand.update(runs)
        self._queues_at_hand.update(queues)
        return rows

    def load_taken(self, queues: tuple[str, ...]) -> list[Ready]:
        """Rows that somebody has."""
        return [row_of(row) for row in self._read("find_taken", (list(queues),))]

    def load_queue(self, name: str) -> Queue | None:
        """One queue that has limits; of two batches that saw the same, the database lets one save."""
        at_hand = self._queues_at_hand.get(name)
        rows = [at_hand] if at_hand is not None else self._read("load_queue", (name,))
        for content, digest, changes in rows:
            if content is not None:
                self.queue_changes[name] = changes
                return open_queue(content, digest)
        return None

    def load_schedule(self, name: str) -> Schedule | None:
        """One schedule; of two batches that saw the same, the database lets one save."""
        for content, digest in self._read("load_schedule", (name,)):
            self.schedule_digests[name] = digest
            return open_schedule(name, content, digest)
        return None

    def load_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run; a new one changes the run's record too."""
        return [open_mail(run_id, *row) for row in self._read("load_mail", (run_id,))]

    # --- afterwards -------------------------------------------------------------------------------------------------

    def rests_on_guesses(self, overlay: Overlay) -> bool:
        """True if something was supposed that the save of this overlay would not prove."""
        if not self.guessed:
            return False
        if not (overlay.entries or changes_records(overlay)):
            return True
        supposed = [key for key, seen in self.effects.items() if seen is None and key not in overlay.effects]
        return bool(supposed) or any(seen is None and name not in overlay.runs for name, seen in self.runs.items())


def _seen(row: tuple[Any, ...]) -> SeenRun:
    name, num, content, digest, status, seq, link = row
    head = first_head(name) if seq is None else Head(seq + 1, link)
    return SeenRun(num, open_run(name, content, digest, status), digest, head)


def changes_records(overlay: Overlay) -> bool:
    """True if a batch has put anything but entries."""
    records = overlay.runs or overlay.effects or overlay.owners or overlay.blobs
    return bool(records or overlay.queues or overlay.letters or overlay.dropped or overlay.schedules)


def remember(memory: Memory, sight: Sight, overlay: Overlay, nums: dict[str, int], digests: dict[str, bytes]) -> None:
    """After a commit: what was saved is what is stored. `nums`: of new runs; `digests`: of saved records, by name."""
    for name, seen in sight.runs.items():
        run = overlay.runs.get(name) or (seen.run if seen else None)
        if run is None or run.status is not RunStatus.RUNNING:
            memory.runs.pop(name, None)
            continue
        num = seen.num if seen else nums[name]
        digest = digests[name] if name in overlay.runs or seen is None else seen.digest
        head = overlay.heads.get(name) or (seen.head if seen else first_head(name))
        memory.runs[name] = SeenRun(num, run, digest, head)
    for key, seen in sight.effects.items():
        effect = overlay.effects.get(key) or (seen.effect if seen else None)
        if effect is None or not effect.owner:
            memory.effects.pop(key, None)
        elif key in overlay.effects:
            memory.effects[key] = SeenEffect(effect, digests[key])
        elif seen is not None:
            memory.effects[key] = seen
    for owner_id in overlay.dropped:
        memory.owners.pop(owner_id, None)
    for owner_id in overlay.owners:
        memory.owners[owner_id] = digests[f"owner {owner_id}"]
    memory.tidy()
