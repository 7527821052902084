"""One try of a run inside an engine, and what its failure means: is another try of use, or would it end the same?"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

import msgspec

from ..core.errors import Damaged, Diverged, RunBusy, RunMismatch, RunWaiting, StoreError, UsageError
from ..core.run import FINAL, RunStatus
from ..runtime.app import Surefoot
from ..runtime.riding import ride
from ..runtime.step import Workflow
from .parked import Parked, parked_of

AnyWorkflow = Workflow[..., Any]
STANDS_STILL = FINAL | {RunStatus.DIVERGED, RunStatus.DAMAGED, RunStatus.QUARANTINED}
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 60.0, 3600.0


class Done(msgspec.Struct, frozen=True):
    """The run has succeeded with this value."""

    value: Any


def attempt(
    sf: Surefoot, workflow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any], id: str
) -> Done | Parked:
    """Run a `def` workflow under this id, resume it, or read its result; Parked where it has to wait.

    Raises what `Surefoot.run` raises; `is_final` tells whether another try may end otherwise. What was done is in the
    store when it returns; a crash inside leaves the run to the next attempt with the same id.
    """
    if workflow.is_async:
        raise UsageError(f"workflow {workflow.name!r} is async def, and is ridden from async code: await ride(...)")
    try:
        return Done(ride(sf, workflow, args, kwargs, id))
    except RunWaiting as waiting:
        return parked_of(sf, id, waiting.reason)


async def attempt_async(
    sf: Surefoot, workflow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any], id: str
) -> Done | Parked:
    """The same from async code; a `def` workflow runs in a thread, so that the engine's loop goes on."""
    import asyncio

    if not workflow.is_async:
        return await asyncio.to_thread(attempt, sf, workflow, args, kwargs, id)
    try:
        return Done(await cast("Awaitable[Any]", ride(sf, workflow, args, kwargs, id)))
    except RunWaiting as waiting:
        return await asyncio.to_thread(parked_of, sf, id, waiting.reason)


def is_final(sf: Surefoot, id: str, error: BaseException) -> bool:
    """True if the engine's next try would end with the same error: the run has ended with it, or the code is wrong.

    A store that is out, and a run that another process still has, are worth another try.
    """
    if isinstance(error, RunMismatch | Diverged | Damaged):
        return True
    if isinstance(error, StoreError | RunBusy):
        return False
    if isinstance(error, UsageError):
        return True
    run = sf.store.find_run(id)
    return run is not None and run.status in STANDS_STILL


def look_seconds(parked: Parked, looks: int, now: float) -> float:
    """How long an engine waits to be told before it looks by itself: longer each time, never past the run's time."""
    pause = min(LOOK_SECONDS_MIN * 2**looks, LOOK_SECONDS_MAX)
    return pause if not parked.until else min(pause, max(parked.until - now, 0.0))
