"""Riding inside engines: the engine owns the workflow, one step of it is one run of Surefoot.

The engine decides when and where the step runs, and runs it again when its process has died; the run inside it then
goes on where its journal ends, and what it had sent is not sent again. `surefoot.inside.temporal`, `.dbos`, `.restate`,
`.langgraph`, `.celery` and `.script` each have `ride`, which takes the run's id from the engine.
"""

from .parked import ADDRESS, Doubt, Parked
from .riding import Done, attempt, attempt_async, is_final
from .waking import Waker

__all__ = ["ADDRESS", "Done", "Doubt", "Parked", "Waker", "attempt", "attempt_async", "is_final"]
