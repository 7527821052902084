"""Runs that the clock starts: defined once, fired by whichever worker looks first.

Every worker looks about once a second. Time is `engine.time()`, which nobody can set, and what an occurrence means is
fixed by the definition alone, so that all workers of a store see the same occurrences.

Daylight saving, for cron with a time zone: a time of day that does not exist (spring) fires once, at the first instant
after the gap; one that exists twice (autumn) fires once, the first time. Patterns that go by (`*` or `*/n` as minute or
hour) follow real time through both. That is what Debian's cron does, and what cronsim computes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core import schedule as core
from ..core.digest import digest
from ..core.dispatch import DEFAULT_QUEUE
from ..core.errors import StoreRefused, UsageError
from ..core.ids import check_id
from ..core.run import Run, RunStatus
from ..core.schedule import CatchUp, DropSchedule, FireSchedule, PauseSchedule, Schedule, SetSchedule
from ..core.view import Verdict
from .engine import Engine
from .queues import refuse_lost_arguments
from .step import budget_until

if TYPE_CHECKING:
    from .ending import Plan

EVERY_SECONDS_MIN, EVERY_SECONDS_MAX = 1.0, 366 * 86400.0
NAME_CHARACTERS_MAX = 150
CRON_FIELDS = 5
LOOK_SECONDS = 1.0
log = logging.getLogger("surefoot")


@dataclass(frozen=True, kw_only=True)
class ScheduleView:
    """A schedule as people read it. Instants are in UTC; `next` are the next occurrences, none while it is paused."""

    name: str
    workflow: str
    when: str
    queue: str
    catch_up: str
    paused: bool
    next: tuple[datetime, ...]
    last_run: str
    last_at: datetime | None
    skipped: tuple[datetime, datetime] | None


# --- defining ---------------------------------------------------------------------------------------------------------


def define(
    engine: Engine,
    plan: Plan,
    name: str,
    *,
    cron: str | None,
    tz: str,
    every: timedelta | float | None,
    catch_up: str,
    queue: str,
    jitter: timedelta | float,
) -> ScheduleView:
    """Define a schedule, or leave it as it is if it is defined so already; see `Surefoot.schedule`."""
    refuse_lost_arguments(plan.workflow)
    now = engine.time()
    schedule = Schedule(
        name=check_name(name),
        workflow=plan.workflow.name,
        version=plan.workflow.version,
        arguments=plan.proposal.arguments,
        args_digest=plan.proposal.args_digest,
        queue=check_id(queue, "a queue's name"),
        cron="" if cron is None else check_id(cron, f"schedule {name!r}: cron"),
        zone=tz,
        every=0.0 if every is None else _seconds(every, name, "every", EVERY_SECONDS_MIN, EVERY_SECONDS_MAX),
        anchor=now,
        jitter=_seconds(jitter, name, "jitter", 0.0, 86400.0),
        catch_up=_check_catch_up(catch_up, name),
        budget=plan.workflow.budget,
        created_at=now,
        fired_until=now,
    )
    _check_when(schedule)
    first = next(times_of(schedule)(now), None)
    if first is None:
        raise UsageError(f"schedule {name!r}: cron {cron!r} never fires; expected a date that exists")
    write = SetSchedule(schedule=replace(schedule, next_at=first), blobs=plan.blobs, stamp=next(engine.stamps))
    engine.committer.commit(write)
    return find(engine, schedule.name)


def check_name(name: object) -> str:
    """A schedule's name is part of its runs' ids."""
    text = check_id(name, "a schedule's name")
    if len(text) > NAME_CHARACTERS_MAX:
        raise UsageError(f"a schedule's name may have {NAME_CHARACTERS_MAX} characters, found {len(text)}")
    return text


def _seconds(value: object, name: str, what: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise UsageError(f"schedule {name!r}: {what} must be a timedelta or seconds, found {value!r}")
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not low <= seconds <= high:
        bound = f"{low:g} to {high:.0f} seconds ({high / 86400:g} days)"
        raise UsageError(f"schedule {name!r}: {what} must be {bound}, found {value!r}")
    return seconds


def _check_when(schedule: Schedule) -> None:
    """What is defined now; a pattern of six fields that an older Surefoot took goes on firing."""
    if bool(schedule.cron) == bool(schedule.every):
        raise UsageError(f"schedule {schedule.name!r} takes cron= or every=, one of them")
    if schedule.every and schedule.zone != "UTC":
        raise UsageError(
            f"schedule {schedule.name!r}: tz={schedule.zone!r} belongs to cron=; every= counts seconds, which are the "
            "same in all time zones. Leave tz= out, or say the time of day with cron="
        )
    if schedule.cron and (fields := len(schedule.cron.split())) != CRON_FIELDS:
        raise _unreadable(schedule, f"{fields} fields")


def _unreadable(schedule: Schedule, why: object) -> UsageError:
    return UsageError(
        f"schedule {schedule.name!r}: cron {schedule.cron!r} cannot be read ({why}); expected five fields, such "
        'as "0 3 * * *": minute, hour, day of month, month, day of week (for seconds there is every=)'
    )


def _check_catch_up(catch_up: str, name: str) -> CatchUp:
    try:
        return CatchUp(catch_up)
    except ValueError:
        raise UsageError(f'schedule {name!r}: catch_up must be "none", "last" or "all", found {catch_up!r}') from None


def times_of(schedule: Schedule) -> core.Times:
    """The schedule's occurrences; UsageError for a pattern or a time zone that cannot be read."""
    if schedule.every:
        return core.interval_times(schedule.anchor, schedule.every)
    zone = _zone_of(schedule)
    simulator, refused = _cronsim()
    try:
        simulator(schedule.cron, datetime.fromtimestamp(0, zone))
    except refused as error:
        if str(error) == "Bad day-of-month":
            return lambda after: iter(())
        raise _unreadable(schedule, error) from None

    def times(after: float) -> Iterator[float]:
        last = after
        for moment in simulator(schedule.cron, datetime.fromtimestamp(after, zone)):
            at = moment.timestamp()
            if at > last:  # where an hour comes twice, cronsim may begin with what is over
                last = at
                yield at

    return times


def _zone_of(schedule: Schedule) -> Any:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(schedule.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise UsageError(
            f"schedule {schedule.name!r}: time zone {schedule.zone!r} is not known here; expected a name such as "
            "'Europe/Berlin' (machines without time zones need: pip install 'surefoot[schedules]')"
        ) from None


def _cronsim() -> tuple[Any, type[Exception]]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise StoreRefused("schedules with cron= need cronsim: pip install 'surefoot[schedules]'") from None
    return CronSim, CronSimError


# --- looking, pausing, taking away ------------------------------------------------------------------------------------


def view_of(schedule: Schedule, now: float, *, count: int = 3) -> ScheduleView:
    """A schedule with its next `count` occurrences."""
    upcoming: list[datetime] = []
    if not schedule.paused:
        for at in times_of(schedule)(max(now, schedule.fired_until)):
            upcoming.append(_instant(at))
            if len(upcoming) == count:
                break
    when = f"{schedule.cron} {schedule.zone}" if schedule.cron else f"every {timedelta(seconds=schedule.every)}"
    skipped = (_instant(schedule.skipped_from), _instant(schedule.skipped_until)) if schedule.skipped_until else None
    return ScheduleView(
        name=schedule.name,
        workflow=schedule.workflow,
        when=when,
        queue=schedule.queue,
        catch_up=str(schedule.catch_up),
        paused=schedule.paused,
        next=tuple(upcoming),
        last_run=schedule.last_run,
        last_at=_instant(schedule.last_at) if schedule.last_run else None,
        skipped=skipped,
    )


def _instant(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def list_schedules(engine: Engine, *, count: int = 3, now: float | None = None) -> list[ScheduleView]:
    """All schedules, by name; `now` is `engine.time()` unless it is given."""
    now = engine.time() if now is None else now
    return [view_of(schedule, now, count=count) for schedule in engine.store.board.find_schedules()]


def _held(engine: Engine, name: str) -> Schedule:
    found = next((s for s in engine.store.board.find_schedules() if s.name == name), None)
    if found is None:
        raise _missing(name)
    return found


def _missing(name: str) -> UsageError:
    return UsageError(f"no schedule {name!r} in this store; `surefoot schedules` lists those that exist")


def find(engine: Engine, name: str) -> ScheduleView:
    """One schedule; UsageError if there is none."""
    return view_of(_held(engine, name), engine.time())


def remove(engine: Engine, name: str) -> None:
    """Take a schedule away; UsageError if there is none."""
    check_name(name)
    if engine.committer.commit(DropSchedule(name=name, stamp=next(engine.stamps))).verdict is Verdict.MISSING:
        raise _missing(name)


def pause(engine: Engine, name: str, *, paused: bool) -> ScheduleView:
    """Pause it, or let it go on from now; UsageError if there is none."""
    check_name(name)
    now = engine.time()
    next_at = next(times_of(_held(engine, name))(now), 0.0)
    stamp = next(engine.stamps)
    write = PauseSchedule(name=name, paused=paused, fired_until=now, next_at=next_at, stamp=stamp)
    if engine.committer.commit(write).verdict is Verdict.MISSING:
        raise _missing(name)
    return find(engine, name)


# --- firing -----------------------------------------------------------------------------------------------------------


class Alarm:
    """One worker's look at the schedules, about once a second."""

    def __init__(self, engine: Engine) -> None:
        """The first look comes at once."""
        self._engine = engine
        self._due_at = 0.0
        self._told: set[str] = set()

    def look_if_due(self) -> int:
        """Look, if the last look was long enough ago; how many runs were started."""
        now = self._engine.clock.lease_now()
        if now < self._due_at:
            return 0
        self._due_at = now + LOOK_SECONDS
        return self.look()

    def look(self) -> int:
        """Start the runs whose time has come; how many were started here. A schedule that cannot be read is told of."""
        count = 0
        for schedule in self._engine.store.board.find_schedules():
            try:
                count += fire(self._engine, schedule, self._engine.time())
            except (UsageError, StoreRefused) as error:
                if schedule.name not in self._told:
                    self._told.add(schedule.name)
                    log.error("schedule %r does not fire here: %s", schedule.name, error)
        return count


def fire_due(engine: Engine, now: float | None = None) -> int:
    """Start the runs of all schedules whose time has come by `now` (`engine.time()`); how many were started here."""
    at = engine.time() if now is None else now
    return sum(fire(engine, schedule, at) for schedule in engine.store.board.find_schedules())


def fire(engine: Engine, schedule: Schedule, now: float) -> int:
    """Start the runs of one schedule as it was seen; 0 when nothing has come, or somebody else was first."""
    if schedule.paused or not schedule.next_at or now < schedule.next_at:
        return 0
    firing = core.look(schedule, times_of(schedule), now)
    runs = tuple(_run(engine, schedule, at) for at in firing.fire)
    after = replace(schedule, fired_until=now, next_at=firing.next_at)
    if runs:
        after = replace(after, last_run=runs[-1].id, last_at=firing.fire[-1])
    if firing.skipped is not None:
        after = replace(after, skipped_from=firing.skipped[0], skipped_until=firing.skipped[1])
    answer = engine.committer.commit(FireSchedule(seen=schedule, after=after, runs=runs, stamp=next(engine.stamps)))
    if answer.verdict is not Verdict.DONE:
        return 0
    if firing.skipped is not None:
        begin, until = map(core.occurrence_name, firing.skipped)
        policy = f'catch_up="{schedule.catch_up}", at most {core.CATCH_UP_MAX} at once'
        log.warning(
            "schedule %r skipped its occurrences from %s to before %s (%s)", schedule.name, begin, until, policy
        )
    if answer.runs:
        engine.on_change()
    return len(answer.runs)


def _run(engine: Engine, schedule: Schedule, at: float) -> Run:
    """The run of an occurrence: the same for whoever makes it."""
    run_id = core.run_id_of(schedule.name, at)
    share = int.from_bytes(digest(run_id.encode())[:4]) / (1 << 32)
    return Run(
        id=run_id,
        workflow=schedule.workflow,
        status=RunStatus.PENDING,
        arguments=schedule.arguments,
        args_digest=schedule.args_digest,
        fence=0,
        owner=0,
        created_at=engine.clock.now(),
        updated_at=engine.time(),
        queue=schedule.queue or DEFAULT_QUEUE,
        version=schedule.version,
        budget=schedule.budget,
        budget_until=budget_until(schedule.budget, engine.time),
        wake_at=at + schedule.jitter * share if schedule.jitter else 0.0,
        stamp=next(engine.stamps),
    )
