"""Runs that wait in a queue for a worker: how they are put there, what a queue allows, and how one is tried again.

A queued run is an ordinary run that nobody has yet: it is durable when `start` returns, its id is what keeps it from
being started twice, and whoever puts it there needs no lease and may end at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core.dispatch import Limits
from ..core.dispatch_writes import RetryRun, SetQueue
from ..core.errors import RunMismatch, RunNotFound, UsageError, ended
from ..core.flows import preview_of
from ..core.ids import check_id
from ..core.run import Run, RunDo, RunStatus, apply_run
from ..core.writes import StartRun, Verdict
from .engine import Engine
from .handle import Handle
from .spans import span_of
from .step import Workflow

if TYPE_CHECKING:
    from .app import Surefoot
    from .ending import Plan

PRIORITY_MAX = 1 << 31


def refuse_options(workflow: object, **given: Any) -> None:
    """Without a queue there is nothing that they could order."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"start(..., {name}=) says how a queued run is taken; give queue= too. If {name!r} is an argument of "
                f"{getattr(workflow, 'name', workflow)!r} itself, pass it by position"
            )


def id_of(workflow: object, run_id: str | None, dedupe: str | None) -> str | None:
    """The run's id: as given, or made of the workflow's name and `dedupe`."""
    if dedupe is None:
        return run_id
    if run_id is not None:
        raise UsageError("start() takes id= or dedupe=, not both: the id is what makes two starts the same run")
    return check_id(f"{getattr(workflow, 'name', '')}:{check_id(dedupe, 'dedupe')}", "the run id made of dedupe=")


def put(
    sf: Surefoot, plan: Plan, *, queue: str, priority: int | None, delay: timedelta | float | None, key: str | None
) -> Handle:
    """Put a checked run into a queue; see `Surefoot.start`."""
    engine, workflow = sf.engine, plan.workflow
    refuse_lost_arguments(workflow)
    length = _delay_seconds(delay)
    proposal = replace(
        apply_run(plan.proposal, RunDo.RELEASE, plan.proposal.created_at),  # nobody has it
        fence=0,
        claims=(),
        queue=check_id(queue, "a queue's name"),
        priority=_check_priority(priority),
        key="" if key is None else check_id(key, "key"),
        wake_at=engine.time() + length if length else 0.0,
    )
    write = StartRun(run_id=proposal.id, run=proposal, stamp=proposal.stamp, blobs=plan.blobs)
    engine.committer.forgive(proposal.id)
    held = engine.committer.commit(write).run
    if held is not None and (held.args_digest, held.workflow) != (proposal.args_digest, proposal.workflow):
        raise RunMismatch(proposal.id, _asked(held), _asked(proposal))
    engine.on_change()
    return Handle(proposal.id, sf, workflow=workflow)


def _asked(run: Run) -> str:
    return f"{run.workflow}({preview_of(run.arguments)})"


def refuse_lost_arguments(workflow: Workflow[..., Any]) -> None:
    if workflow.skip:
        raise UsageError(
            f"workflow {workflow.name!r} is a method: its object is not part of the record, so a worker could not "
            "call it. Make it a function, or run it here with run() or start() without queue="
        )
    needed = workflow.arguments.ignored_without_default()
    if needed:
        raise UsageError(
            f"workflow {workflow.name!r} keeps {', '.join(map(repr, needed))} out of the record (ignore=), so a worker "
            "could not know it; give it a default, or let a step get it"
        )


def _delay_seconds(delay: timedelta | float | None) -> float:
    return 0.0 if delay is None else span_of(delay, "delay")


def _check_priority(priority: int | None) -> int:
    if priority is None:
        return 0
    if type(priority) is not int or abs(priority) >= PRIORITY_MAX:
        raise UsageError(f"priority must be a whole number (higher goes first, 0 is usual), found {priority!r}")
    return priority


# --- what a queue allows --------------------------------------------------------------------------------------------


def read_limits(
    name: str,
    *,
    concurrency: int | None,
    per_worker: int | None,
    per_key: int | None,
    rate: tuple[int, timedelta | float] | None,
) -> Limits:
    """The limits as they are stored; UsageError for one that lets nothing through."""
    check_id(name, "a queue's name")
    asked = {"concurrency": concurrency, "per_worker": per_worker, "per_key": per_key}
    for what, value in asked.items():
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(
                f"queue {name!r}: {what} must be a whole number, 1 or more, found {value!r}; leave it out for no limit"
            )
    starts, period = 0, 1.0
    if rate is not None:
        starts, period = _read_rate(name, rate)
    limits = Limits(
        concurrency=concurrency or 0,
        per_worker=per_worker or 0,
        per_key=per_key or 0,
        rate=starts,
        period_seconds=period,
    )
    return limits.check(name)


def _read_rate(name: str, rate: object) -> tuple[int, float]:
    match rate:
        case (int() as starts, (int() | float() | timedelta()) as period) if not isinstance(starts, bool):
            seconds = period.total_seconds() if isinstance(period, timedelta) else float(period)
            if starts >= 1 and 0 < seconds < float("inf"):
                return starts, seconds
        case _:
            pass
    raise UsageError(
        f"queue {name!r}: rate must be (starts, seconds), both more than 0, such as (100, 60); found {rate!r}"
    )


def set_limits(engine: Engine, name: str, limits: Limits) -> None:
    """Store a queue's limits."""
    engine.committer.commit(SetQueue(name=name, limits=limits, at=engine.time(), stamp=next(engine.stamps)))
    engine.on_change()


# --- trying again ---------------------------------------------------------------------------------------------------


def retry(engine: Engine, run_id: str, why: str) -> Run:
    """Let a run go on that stands still; see `Surefoot.retry`."""
    check_id(run_id, "run id")
    check_id(why, "why")
    engine.committer.forgive(run_id)
    write = RetryRun(run_id=run_id, at=engine.time(), why=why, stamp=next(engine.stamps))
    answer = engine.committer.commit(write)
    run = answer.run
    if answer.verdict is Verdict.MISSING or run is None:
        raise RunNotFound(run_id)
    if answer.verdict is Verdict.ENDED:
        raise UsageError(f"run {run_id!r} {ended(run.status)}; what has ended is not tried again, start another run")
    if answer.verdict is Verdict.ILLEGAL:
        state = "runs now" if run.status is RunStatus.RUNNING else "is ready already, and waits for a worker"
        raise UsageError(f"run {run_id!r} {state}; there is nothing to retry")
    engine.on_change()
    return run
