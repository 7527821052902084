"""Schedules: which occurrences have come, which of them fire, and the one write by which they do. Pure.

An occurrence is an instant (UTC), and its run's id is made of it; the schedule's record says up to when everything has
been dealt with, and both are saved in one transaction. So two schedulers, a clock that is set back, or a process that
dies while it fires cannot start an occurrence twice or lose it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count, takewhile

import msgspec
from msgspec.structs import replace

from .budget import Budget
from .run import Run
from .view import Answer, Blobs, Verdict, View, Write

LATE_SECONDS = 60.0
"""An occurrence that is older than this when a worker looks was missed, and `catch_up` says what becomes of it."""
CATCH_UP_MAX = 1000
FIRST_WINDOW_SECONDS = 3600.0
Times = Callable[[float], Iterator[float]]
"""The occurrences after an instant, in order, each once."""


class CatchUp(StrEnum):
    """What becomes of occurrences that were missed while no worker was there."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow that is started by the clock; of `cron` (in time zone `zone`) and `every` (seconds) one is set.

    Intervals count from `anchor`. Everything up to `fired_until` has been dealt with; the next occurrence is at
    `next_at` (0: none). A run starts up to `jitter` seconds later. `skipped_until` ends the last stretch, from
    `skipped_from`, in which occurrences were skipped. `version` is the code's, `revision` counts changes of the record.
    """

    name: str
    workflow: str
    version: str
    arguments: bytes
    args_digest: bytes
    queue: str
    cron: str = ""
    zone: str = "UTC"
    every: float = 0.0
    anchor: float = 0.0
    jitter: float = 0.0
    catch_up: CatchUp = CatchUp.NONE
    budget: Budget | None = None
    created_at: float = 0.0
    fired_until: float = 0.0
    next_at: float = 0.0
    paused: bool = False
    last_run: str = ""
    last_at: float = 0.0
    skipped_from: float = 0.0
    skipped_until: float = 0.0
    revision: int = 0
    stamp: int = 0

    def says_the_same(self, other: Schedule) -> bool:
        """True if it was defined alike, whatever has become of it since."""
        return all(getattr(self, name) == getattr(other, name) for name in _DEFINED)


_DEFINED = ("workflow", "version", "args_digest", "queue", "cron", "zone", "every", "jitter", "catch_up", "budget")


class Firing(msgspec.Struct, frozen=True):
    """What a look at a schedule comes to: occurrences that fire, and the stretch in which some were skipped."""

    fire: tuple[float, ...]
    skipped: tuple[float, float] | None
    next_at: float


def interval_times(anchor: float, every: float) -> Times:
    """`anchor + n * every`: no firing moves the next one."""

    def times(after: float) -> Iterator[float]:
        first = max(int((after - anchor) // every), 0)
        return (at for n in count(first) if (at := anchor + n * every) > after)

    return times


def occurrence_name(at: float) -> str:
    """An occurrence as its run's id spells it: UTC, to the second (or finer where it is finer)."""
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="auto" if moment.microsecond else "seconds") + "Z"


def run_id_of(schedule: str, at: float) -> str:
    """The id of the run that this occurrence starts."""
    return f"schedule:{schedule}:{occurrence_name(at)}"


def look(schedule: Schedule, times: Times, now: float) -> Firing:
    """What has come since the last look: on time, missed, or too much of it."""
    after = schedule.fired_until
    on_time = max(after, now - LATE_SECONDS)
    match schedule.catch_up:
        case CatchUp.NONE:
            fire = _last(times, on_time, now, CATCH_UP_MAX)
        case CatchUp.LAST:
            fire = _last(times, on_time, now, CATCH_UP_MAX) or _last(times, after, now, 1)
        case CatchUp.ALL:
            fire = _last(times, after, now, CATCH_UP_MAX)
    first = next(times(after), None)
    missed = first is not None and first <= now and (not fire or first < fire[0])
    skipped = (first or 0.0, fire[0] if fire else now) if missed else None
    return Firing(tuple(fire), skipped, next(times(max(now, after)), 0.0))


def _last(times: Times, after: float, until: float, limit: int) -> list[float]:
    """The last occurrences in (after, until], at most `limit`; a year of minutes is not walked through for them."""
    window = FIRST_WINDOW_SECONDS
    while True:
        start = max(after, until - window)
        found = deque(takewhile(lambda at: at <= until, times(start)), maxlen=limit)
        if start == after or len(found) == limit:
            return list(found)
        window *= 4


# --- writes -------------------------------------------------------------------------------------------------------


class SetSchedule(Write, frozen=True, kw_only=True):
    """Define a schedule; the same definition again changes nothing, so that a program may say it at each start."""

    schedule: Schedule
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done, or exists: it stands there as it is."""
        held = view.desk.schedule(self.schedule.name)
        if held is not None and held.stamp == self.stamp:
            return Answer(Verdict.DONE)
        if held is not None and held.says_the_same(self.schedule):
            return Answer(Verdict.EXISTS)
        fresh = replace(self.schedule, stamp=self.stamp)
        if held is not None:
            kept = {name: getattr(held, name) for name in ("created_at", "paused", "last_run", "last_at")}
            fresh = replace(fresh, revision=held.revision + 1, **kept)
        view.desk.put_schedule(fresh)
        if self.blobs:
            view.put_blobs(self.blobs)
        return Answer(Verdict.DONE)


class PauseSchedule(Write, frozen=True, kw_only=True):
    """Pause a schedule, or let it go on from `fired_until`: what fell into the pause is not made up for."""

    name: str
    paused: bool
    fired_until: float
    next_at: float

    def decide(self, view: View) -> Answer:
        """Done, or missing."""
        held = view.desk.schedule(self.name)
        if held is None:
            return Answer(Verdict.MISSING)
        if held.stamp != self.stamp and held.paused != self.paused:
            fields = {"paused": self.paused, "revision": held.revision + 1, "stamp": self.stamp}
            if not self.paused:
                fields |= {"fired_until": max(self.fired_until, held.fired_until), "next_at": self.next_at}
            view.desk.put_schedule(replace(held, **fields))
        return Answer(Verdict.DONE)


class DropSchedule(Write, frozen=True, kw_only=True):
    """Take a schedule away; runs that it started stay."""

    name: str

    def decide(self, view: View) -> Answer:
        """Done, or missing."""
        if view.desk.schedule(self.name) is None:
            return Answer(Verdict.DONE if view.again else Verdict.MISSING)
        view.desk.drop_schedule(self.name)
        return Answer(Verdict.DONE)


class FireSchedule(Write, frozen=True, kw_only=True):
    """Start the runs of occurrences that have come, and remember up to when that was done, in one transaction."""

    seen: Schedule
    after: Schedule
    runs: tuple[Run, ...]

    def decide(self, view: View) -> Answer:
        """Done with the runs that are new; exists when somebody else has changed or fired it meanwhile; missing."""
        held = view.desk.schedule(self.seen.name)
        if held is None:
            return Answer(Verdict.MISSING)
        if held.stamp == self.stamp:
            return Answer(Verdict.DONE)
        if held.revision != self.seen.revision:
            return Answer(Verdict.EXISTS)
        fresh = tuple(run for run in self.runs if view.run(run.id) is None)
        for run in fresh:
            view.put_run(run)
        view.desk.put_schedule(replace(self.after, revision=held.revision + 1, stamp=self.stamp))
        return Answer(Verdict.DONE, runs=fresh)
