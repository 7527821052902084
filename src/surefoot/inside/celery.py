"""Inside a Celery task: one task is one run, under the task's id, which a redelivered or retried task keeps.

A task that is acknowledged before it runs is lost with its worker, so `ride` refuses one that is not `acks_late`; and
without `reject_on_worker_lost` Celery acknowledges it when its process dies.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from ..core.errors import UsageError
from ..runtime.app import Surefoot
from .parked import leave_address, run_id_of
from .riding import AnyWorkflow, Done, attempt, is_final, look_seconds

TRY_SECONDS = 5.0
FOR_EVER = math.inf
"""None would be the task's own limit, three by default; a person may take longer."""


class StillParked(Exception):
    """What Celery shows as the reason of a retry; made of a text alone, so that it can be pickled."""


def run_id(task: Any) -> str:
    """The id of this task's run; UsageError when the task is not being run by a worker."""
    own = task.request.id
    if not own:
        raise UsageError(f"task {task.name!r} has no id; it is not run by a worker (bind=True, and call it with delay)")
    return run_id_of(own)


def ride(
    task: Any,
    sf: Surefoot,
    workflow: AnyWorkflow,
    *args: Any,
    look: float | None = None,
    id: str | None = None,
    **kwargs: Any,
) -> Any:
    """In a bound task: run a `def` workflow, resume it, or return its result.

    While the run is parked the task is retried every `look` seconds (else after a minute, two, four, up to an hour), so
    no worker is held. A store that is out is retried too. Any other failure is the task's.
    """
    _check(task)
    own = id or run_id(task)
    try:
        done = attempt(sf, workflow, args, kwargs, own)
    except Exception as error:
        if is_final(sf, own, error):
            raise
        raise task.retry(exc=error, countdown=TRY_SECONDS, max_retries=FOR_EVER) from error
    if isinstance(done, Done):
        return done.value
    leave_address(sf, own, "celery", {"task": task.name, "id": task.request.id})
    pause = look or look_seconds(done, min(task.request.retries, 10), sf.engine.time())
    raise task.retry(exc=StillParked(f"run {own!r} is parked: {done.reason}"), countdown=pause, max_retries=FOR_EVER)


def _check(task: Any) -> None:
    conf: Any = import_module("celery").current_app.conf if task.app is None else task.app.conf
    late = conf.task_acks_late if task.acks_late is None else task.acks_late
    lost = conf.task_reject_on_worker_lost if task.reject_on_worker_lost is None else task.reject_on_worker_lost
    if not late or not lost:
        raise UsageError(
            f"task {task.name!r} has acks_late={late} and reject_on_worker_lost={lost}: when its worker dies, Celery "
            "drops it, and its run stays unfinished. Set both: @app.task(bind=True, acks_late=True, "
            "reject_on_worker_lost=True)"
        )
