"""Riding inside engines: the engine owns the workflow, one step of it is one run of Surefoot.

The engine decides when and where the step runs, and runs it again when its process has died; the run inside it then
goes on where its journal ends, and what it had sent is not sent again. `surefoot.inside.temporal`, `.dbos`, `.restate`,
`.langgraph`, `.celery` and `.script` each have `ride`, which takes the run's id from the engine. An engine
without a module is ridden with what stands here: `attempt`, `leave_address` where the run is parked, and a `Waker`.
"""

from .parked import ADDRESS, Doubt, Parked, leave_address, run_id_of
from .riding import Done, attempt, attempt_async, is_final, look_seconds
from .waking import Waker

__all__ = [
    "ADDRESS",
    "Done",
    "Doubt",
    "Parked",
    "Waker",
    "attempt",
    "attempt_async",
    "is_final",
    "leave_address",
    "look_seconds",
    "run_id_of",
]
