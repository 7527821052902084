"""A run's life: every legal move in one table, made by one function."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from .budget import Budget
from .effect import IllegalMove


class RunStatus(StrEnum):
    """Where a run stands. The last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
    QUARANTINED = "quarantined"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunDo(StrEnum):
    """What can happen to a run."""

    CLAIM = "claim"
    RELEASE = "release"
    SUSPEND = "suspend"
    DIVERGE = "diverge"
    DAMAGE = "damage"
    QUARANTINE = "quarantine"
    RETRY = "retry"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


R, D = RunStatus, RunDo
FINAL = frozenset({R.SUCCEEDED, R.FAILED, R.CANCELLED})
UNFINISHED = frozenset(RunStatus) - FINAL
RUN_TRANSITIONS: dict[tuple[RunStatus, RunDo], RunStatus] = {
    (R.PENDING, D.CLAIM): R.RUNNING,
    (R.RUNNING, D.CLAIM): R.RUNNING,
    (R.WAITING, D.CLAIM): R.RUNNING,
    (R.DIVERGED, D.CLAIM): R.RUNNING,
    (R.DAMAGED, D.CLAIM): R.RUNNING,
    (R.QUARANTINED, D.CLAIM): R.RUNNING,
    (R.RUNNING, D.RELEASE): R.PENDING,
    (R.RUNNING, D.SUSPEND): R.WAITING,
    (R.RUNNING, D.DIVERGE): R.DIVERGED,
    (R.RUNNING, D.DAMAGE): R.DAMAGED,
    (R.RUNNING, D.QUARANTINE): R.QUARANTINED,
    (R.QUARANTINED, D.RETRY): R.PENDING,
    (R.WAITING, D.RETRY): R.PENDING,
    (R.DIVERGED, D.RETRY): R.PENDING,
    (R.DAMAGED, D.RETRY): R.PENDING,
    (R.RUNNING, D.SUCCEED): R.SUCCEEDED,
    (R.RUNNING, D.FAIL): R.FAILED,
    (R.RUNNING, D.CANCEL): R.CANCELLED,
    (R.PENDING, D.CANCEL): R.CANCELLED,
    (R.WAITING, D.CANCEL): R.CANCELLED,
    (R.DIVERGED, D.CANCEL): R.CANCELLED,
    (R.DAMAGED, D.CANCEL): R.CANCELLED,
    (R.QUARANTINED, D.CANCEL): R.CANCELLED,
}
CLAIMS_MAX = 50


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """One change of owner: when, to whom (its number, and `who` for people), with which fence token, and why."""

    at: float
    owner: int
    fence: int
    why: str
    who: str = ""


class Waits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a waiting run waits for: `kind` is timer, signal, approval, child, doubt or budget.

    `name` says which (a signal's name, an approval's or run's id, an effect's key); `until` is when it stops waiting
    (0: never). `detail` is for people; of an approval, `digest` names exactly what is asked for and `who` may grant it.
    """

    kind: str
    name: str = ""
    until: float = 0.0
    detail: str = ""
    who: str = ""
    digest: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One durable execution of a workflow. `length` and `head` seal its journal when it ends.

    `tentative`: entries that diverged attempts appended (from, below); their steps may be read and need not be.
    `queue` is "" for a run that no queue started; `wake_at` is from when on a worker may take it (0: not by time);
    `mail` counts what was ever sent to it; `deaths` counts owners that died in a row while they had it and its journal
    held `deaths_length` entries, the `fences` in it not counted. `undo`: it was cancelled, and its confirmed effects
    are to be undone first.
    `budget_until` is when the wall time of its `budget` ends, by the store's clock.
    `born` and `term`: the store's term in which it was made, and that of its last claim (`core.term`).
    """

    id: str
    workflow: str
    status: RunStatus
    arguments: bytes
    args_digest: bytes
    fence: int
    owner: int
    created_at: float
    updated_at: float
    reason: str = ""
    result: bytes = b""
    length: int = 0
    head: bytes = b""
    cancel_at: float = 0.0
    tentative: tuple[tuple[int, int], ...] = ()
    claims: tuple[Claimed, ...] = ()
    queue: str = ""
    version: str = ""
    key: str = ""
    priority: int = 0
    parent: str = ""
    wake_at: float = 0.0
    waits: tuple[Waits, ...] = ()
    mail: int = 0
    deaths: int = 0
    deaths_length: int = 0
    fences: int = 0
    undo: bool = False
    budget: Budget | None = None
    budget_until: float = 0.0
    born: int = 0
    term: int = 0
    stamp: int = 0


def apply_run(
    run: Run, do: RunDo, at: float, *, owner: int = 0, who: str = "", why: str = "", result: bytes = b""
) -> Run:
    """The run after the move; raises IllegalMove for anything that the table does not hold.

    A claim raises the fence token; every other move ends the ownership. What a run waited for ends with any move, but
    an approval that was asked for stays asked for, whoever has the run, until the run ends.
    """
    status = RUN_TRANSITIONS.get((run.status, do))
    if status is None:
        raise IllegalMove(f"a run that is {run.status} cannot {do}")
    asked = () if status in FINAL else tuple(wait for wait in run.waits if wait.kind == "approval")
    if do is RunDo.CLAIM:
        claim = Claimed(at=at, owner=owner, fence=run.fence + 1, why=why, who=who)
        claims = (*run.claims, claim)[-CLAIMS_MAX:]
        kept = run.reason if run.cancel_at else ""
        return replace(
            run,
            status=status,
            fence=run.fence + 1,
            owner=owner,
            updated_at=at,
            claims=claims,
            reason=kept,
            wake_at=0.0,
            waits=asked,
        )
    deaths = 0 if do is RunDo.RETRY else run.deaths
    return replace(
        run,
        status=status,
        owner=0,
        updated_at=at,
        reason=why,
        result=result,
        wake_at=0.0,
        waits=asked,
        deaths=deaths,
    )
