"""A run's life: every legal move in one table, made by one function."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from .effect import IllegalMove


class RunStatus(StrEnum):
    """Where a run stands. The last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
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
    (R.RUNNING, D.RELEASE): R.PENDING,
    (R.RUNNING, D.SUSPEND): R.WAITING,
    (R.RUNNING, D.DIVERGE): R.DIVERGED,
    (R.RUNNING, D.DAMAGE): R.DAMAGED,
    (R.RUNNING, D.SUCCEED): R.SUCCEEDED,
    (R.RUNNING, D.FAIL): R.FAILED,
    (R.RUNNING, D.CANCEL): R.CANCELLED,
    (R.PENDING, D.CANCEL): R.CANCELLED,
    (R.WAITING, D.CANCEL): R.CANCELLED,
    (R.DIVERGED, D.CANCEL): R.CANCELLED,
    (R.DAMAGED, D.CANCEL): R.CANCELLED,
}
CLAIMS_MAX = 50


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """One change of owner: when, to whom, with which fence token, and why."""

    at: float
    owner: int
    fence: int
    why: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One durable execution of a workflow. `length` and `head` seal its journal when it ends.

    `tentative`: entries that diverged attempts appended (from, below); their steps may be read and need not be.
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
    stamp: int = 0


def apply_run(run: Run, do: RunDo, at: float, *, owner: int = 0, why: str = "", result: bytes = b"") -> Run:
    """The run after the move; raises IllegalMove for anything that the table does not hold.

    A claim raises the fence token; every other move ends the ownership.
    """
    status = RUN_TRANSITIONS.get((run.status, do))
    if status is None:
        raise IllegalMove(f"a run that is {run.status} cannot {do}")
    if do is RunDo.CLAIM:
        claim = Claimed(at=at, owner=owner, fence=run.fence + 1, why=why)
        claims = (*run.claims, claim)[-CLAIMS_MAX:]
        kept = run.reason if run.cancel_at else ""
        return replace(run, status=status, fence=run.fence + 1, owner=owner, updated_at=at, claims=claims, reason=kept)
    return replace(run, status=status, owner=0, updated_at=at, reason=why, result=result)
