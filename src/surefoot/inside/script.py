"""In a plain script under a supervisor (systemd, Kubernetes, supervisord, a shell loop): the exit code says what to do.

0: done. 75 (EX_TEMPFAIL): try again later; the run is parked and waits, or the store is out. 78 (EX_CONFIG): starting
it again would end the same, a person has to look: the code diverged from its journal, the id has other arguments, a
record is damaged. 1: the run has failed, or was cancelled; starting it again gives the same failure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ..core.errors import Damaged, Diverged, RunBusy, StoreError, SurefootError, UsageError
from ..runtime.app import Surefoot
from .parked import Parked
from .riding import AnyWorkflow, Done, attempt, attempt_async


class Exit(IntEnum):
    """The exit codes, from sysexits(3)."""

    DONE = 0
    FAILED = 1
    AGAIN = 75
    LOOK = 78


def code_of(end: Done | Parked | BaseException) -> Exit:
    """The exit code that tells a supervisor about this end."""
    match end:
        case Done():
            return Exit.DONE
        case Parked() | StoreError() | RunBusy():
            return Exit.AGAIN
        case Diverged() | Damaged() | UsageError():
            return Exit.LOOK
        case _:
            return Exit.FAILED


def ride(
    sf: Surefoot,
    workflow: AnyWorkflow,
    *args: Any,
    id: str,
    done: Callable[[Any], object] = lambda value: None,
    **kwargs: Any,
) -> Exit:
    """Run the workflow, resume it, or read its result, which `done` gets; returns the exit code for `sys.exit`.

    Why it is not 0 is said on standard error, with the command that helps. What the workflow itself raised is 1.
    """
    try:
        if workflow.is_async:
            import asyncio

            end = asyncio.run(attempt_async(sf, workflow, args, kwargs, id))
        else:
            end = attempt(sf, workflow, args, kwargs, id)
    except SurefootError as error:
        _say(f"run {id!r}: {type(error).__name__}: {error}")
        return code_of(error)
    except Exception as error:
        _say(f"run {id!r} has failed: {type(error).__name__}: {error}")
        return code_of(error)
    if isinstance(end, Done):
        done(end.value)
    else:
        _say(f"run {id!r} is parked: {end.reason}")
    return code_of(end)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
