"""Nothing is stuck in silence: every unfinished run and every open effect, with why, since when, and what to do."""

from __future__ import annotations

from ..core.dispatch import Ready, ready_of, unserved
from ..core.effect import OPEN, Effect, Status
from ..core.errors import Damaged
from ..core.journal import Entry
from ..core.run import FINAL, UNFINISHED, Run, RunStatus, Waits
from ..core.schedule import LATE_SECONDS, Schedule
from .desk import EVERYTHING, KEY_SHOWN, Desk
from .doubts import next_of
from .shapes import Checkup, EffectFinding, RunFinding, ScheduleFinding
from .text import moment

AGAIN = "run it again with the same id"
NAMED = ("signal", "approval", "child")
"""What a run waits for that somebody can give it."""


def examine(desk: Desk) -> Checkup:
    """Look at everything that is not finished; nothing is written."""
    damage = desk.store.check()
    runs = [found for run in _unfinished(desk, damage) if (found := _examine_run(desk, run)) is not None]
    effects = [found for effect in _open(desk, damage) if (found := _examine_effect(desk, effect)) is not None]
    overdue = _overdue(desk, damage)
    attention = bool(damage or overdue) or any(f.attention for f in runs) or any(f.attention for f in effects)
    return Checkup(runs=runs, effects=effects, damage=damage, attention=attention, schedules=overdue)


def _unfinished(desk: Desk, damage: list[str]) -> list[Run]:
    # one status at a time, so that a damaged record hides as little as possible
    found: list[Run] = []
    for status in sorted(UNFINISHED):
        try:
            found += desk.store.find_runs((status,), limit=EVERYTHING)
        except Damaged as damaged:
            damage.append(str(damaged))
    return sorted(found, key=lambda run: run.created_at)


def _open(desk: Desk, damage: list[str]) -> list[Effect]:
    found: list[Effect] = []
    for status in sorted(OPEN):
        try:
            found += desk.store.find_effects((status,), limit=EVERYTHING)
        except Damaged as damaged:
            damage.append(str(damaged))
    return sorted(found, key=lambda effect: effect.created_at)


def _examine_run(desk: Desk, run: Run) -> RunFinding | None:
    """What there is to say about a run, or None when it has ended since it was listed."""
    owner = desk.standing(run.owner)
    since, attention = run.updated_at, True
    if run.status is RunStatus.RUNNING and owner.is_live:
        why, follows, attention = f"{owner.name} is running it", "nothing to do", False
        if run.cancel_at:
            why, follows = f"{why}; cancel requested", "nothing to do: it stops at its next step"
    else:
        try:
            read = desk.store.read_run(run.id)
        except Damaged as damaged:
            why, follows = str(damaged), _restore(desk, run)
        else:
            if read is None or read[0].status in FINAL:
                return None
            if read[0].stamp != run.stamp:
                return _examine_run(desk, read[0])
            if run.status is RunStatus.RUNNING:
                since = max([since, *(entry.at for entry in read[1][-1:])])
            why, follows, attention = _stopped(desk, run, read[1], owner.why)
    name = owner.name if run.owner else ""
    return RunFinding(run=desk.run_row(run), why=why, since=since, owner=name, attention=attention, next=follows)


def _restore(desk: Desk, run: Run) -> str:
    return f"restore the store from a copy taken before the damage, or give it up: {desk.command('cancel', run.id)}"


def _stopped(desk: Desk, run: Run, entries: list[Entry], gone: str) -> tuple[str, str, bool]:
    """(why, next, needs attention) of a run that nobody works on."""
    row = ready_of(run)
    if row is not None and not row.owner:
        stuck = unserved(row, desk.serving())
        if not stuck:
            return *_queued(desk, run, row), False
        if run.queue:
            start = desk.command("worker", "MODULE", options=("--queue", row.queue))
            return f"{_state(desk, run, row)}; {stuck}", f"start one that does: {start}", True
    if run.status is RunStatus.WAITING and not run.cancel_at and not _parked(desk, run, entries):
        follows = [_named(desk, run, wait) for wait in run.waits if wait.kind in NAMED]
        if follows:
            return run.reason, "; ".join(follows), False
    return *_stuck(desk, run, entries, gone), True


def _named(desk: Desk, run: Run, wait: Waits) -> str:
    """What brings a run on that waits for something with a name: it is not stuck."""
    match wait.kind:
        case "signal":
            return f"it goes on when it is sent: {desk.command('signal', run.id, wait.name)} [JSON]"
        case "approval":
            name = wait.name.partition(":")[2]
            return f"decide it: {desk.command('approve', name)}, or {desk.command('deny', name)} --why TEXT"
        case _:
            return f"nothing to do: it goes on when run {wait.name!r} ends"


def _queued(desk: Desk, run: Run, row: Ready) -> tuple[str, str]:
    named = [_named(desk, run, wait) for wait in run.waits if wait.kind in NAMED]
    if run.status is RunStatus.WAITING and named and row.due_at > desk.sf.engine.time():
        return f"{run.reason}; it waits until {moment(row.due_at)}", "; ".join(named)
    return _state(desk, run, row), "nothing to do: a worker takes it"


def _state(desk: Desk, run: Run, row: Ready) -> str:
    """Where a queued run stands."""
    due = f"due at {moment(row.due_at)}" if row.due_at > desk.sf.engine.time() else "ready"
    why = f", {run.reason}" if run.reason else ""
    return f"in queue {row.queue!r}, {due}{why}"


def _stuck(desk: Desk, run: Run, entries: list[Entry], gone: str) -> tuple[str, str]:
    asked = f"cancel requested: {run.reason}" if run.cancel_at else run.reason
    match run.status:
        case RunStatus.RUNNING:
            why = f"{gone}; cancel requested" if run.cancel_at else gone
            return why, f"{AGAIN}: it {'ends as cancelled' if run.cancel_at else 'resumes at once'}"
        case RunStatus.WAITING:
            return asked, _decide(desk, run, entries)
        case RunStatus.DIVERGED:
            return asked, f"compare both sides: {desk.command('show', run.id, options=('--diverged',))}"
        case RunStatus.DAMAGED:
            return asked, _restore(desk, run)
        case RunStatus.QUARANTINED:
            return asked, f"then let it go on: {desk.command('retry', run.id)}"
        case _ if run.cancel_at:
            parked = _parked(desk, run, entries)
            return asked, _decide(desk, run, entries) if parked else f"{AGAIN} once more: what is open is settled"
        case _:
            return asked or "it was released", f"{AGAIN}: it goes on where it was"


def _parked(desk: Desk, run: Run, entries: list[Entry]) -> list[Effect]:
    return [effect for effect, _ in desk.effects_of(run.id, entries) if effect.status is Status.PARKED]


def _decide(desk: Desk, run: Run, entries: list[Entry]) -> str:
    parked = _parked(desk, run, entries)
    if not parked:
        return f"{AGAIN}: what it waited for is decided"
    named = ", ".join(f"{effect.name} {effect.key[:KEY_SHOWN]}" for effect in parked)
    return f"decide {named} (commands below), then {AGAIN}"


def _overdue(desk: Desk, damage: list[str]) -> list[ScheduleFinding]:
    """Schedules whose time came so long ago that a worker would have started their run."""
    try:
        schedules = desk.store.board.find_schedules()
    except Damaged as damaged:
        damage.append(str(damaged))
        return []
    firing = [schedule for schedule in schedules if not schedule.paused and schedule.next_at]
    late = desk.sf.engine.time() - LATE_SECONDS if firing else 0.0  # asking a store for the first time writes there
    missed = [schedule for schedule in firing if schedule.next_at < late]
    served = bool(missed and desk.serving())
    return [_missed(desk, schedule, served=served) for schedule in missed]


def _missed(desk: Desk, schedule: Schedule, *, served: bool) -> ScheduleFinding:
    if served:
        why, follows = "a worker is there, and could not start it", "look into the log of a worker, which says why"
    else:
        start = desk.command("worker", "MODULE", options=("--queue", schedule.queue))
        why, follows = "no worker is there to start it", f"start one: {start}"
    return ScheduleFinding(
        name=schedule.name,
        workflow=schedule.workflow,
        queue=schedule.queue,
        why=f"it was due at {moment(schedule.next_at)}; {why}",
        since=schedule.next_at,
        next=follows,
    )


def _examine_effect(desk: Desk, effect: Effect) -> EffectFinding | None:
    """What there is to say about an effect, or None when it has been settled since it was listed."""
    left = desk.unattended(effect)
    found = left or desk.store.read_effect(effect.key)
    if found is None or found.status not in OPEN:
        return None
    owner = desk.standing(found.owner)
    return EffectFinding(
        effect=desk.effect_row(found),
        since=found.doubted_at or found.attempted_at or found.created_at,
        owner=owner.name if found.owner else "",
        attention=left is not None,
        next=next_of(desk, found, owner),
    )
