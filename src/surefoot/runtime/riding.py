"""A run inside somebody else's engine: it is given back whenever it would wait, so that the engine waits and no thread.

Everything else is as in `Surefoot.run`: the same id resumes the run or returns its result; what was done stays done.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .app import Surefoot
from .ending import Plan
from .step import Workflow


class Position(msgspec.Struct, frozen=True):
    """How far a run has come in this process: steps and effects that its code has asked for since it was taken.

    While `replaying`, they are read from its journal; then each is new.
    """

    asked: int
    replaying: bool


def ride(sf: Surefoot, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], run_id: str) -> Any:
    """Run the workflow under this id as `Surefoot.run` does; await it if it is `async def`.

    Where the run has to wait, for a person, a message or its time, RunWaiting is raised at once and the run is waiting
    in the store; `Run.wake_at` says when it may go on. Raises what `Surefoot.run` raises.
    """
    sf.check_open()
    runner = sf._runner  # pyright: ignore[reportPrivateUsage]
    plan = runner.plan(workflow, args, kwargs, run_id, "wait")
    return runner.run(
        Plan(plan.workflow, plan.proposal, plan.blobs, plan.when_running, plan.args, plan.kwargs, rides=True)
    )


def position(sf: Surefoot, run_id: str) -> Position | None:
    """Where a run of this process stands now; None when it does not run here."""
    for session in list(sf._runner._sessions):  # pyright: ignore[reportPrivateUsage]
        if session.state.run_id == run_id:
            return Position(asked=session.moves, replaying=bool(session.state.replay.unread()))
    return None
