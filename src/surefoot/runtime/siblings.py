"""Lets whoever runs beside a call, or an effect, read what is recorded, before what is unread counts as not asked for.

Calls are not ordered by the code's places, so a task that has reached what is new may be ahead of others that are still
reading. It waits for them, as long as there is one that could get on.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..core.commands import Flow, Now, Sleep, ask
from ..core.journal import Branch
from .step import runs_loop

if TYPE_CHECKING:
    import asyncio

    from .session import Session

CATCH_UP_SECONDS = 0.005
QUIET_SECONDS = 10.0
"""So long those beside may stand still before what they have recorded counts as no longer asked for."""


def catch_up(session: Session, branch: Branch) -> Flow[None]:
    """Wait while unread entries of the branch's call scope may still be asked for by whoever runs beside this.

    It ends when they are read, when nobody is there who could, or when nothing has moved for QUIET_SECONDS.
    """
    replay = session.state.replay
    waiting = session.caught_up
    me = _myself()
    waiting.add(me)
    try:
        moved, since = -1, 0.0
        while replay.lags(branch) and _others(session, me):
            now = yield from ask(Now())
            if session.moves != moved:
                moved, since = session.moves, now
            elif now - since > QUIET_SECONDS:
                return
            yield Sleep(CATCH_UP_SECONDS)
    finally:
        waiting.discard(me)


def _myself() -> asyncio.Task[Any] | threading.Thread:
    if runs_loop():
        import asyncio

        task = asyncio.current_task()
        if task is not None:
            return task
    return threading.current_thread()


def _others(session: Session, me: Any) -> bool:
    """True if somebody of this run may still read something: a task or thread that waits for nobody."""
    here = threading.current_thread()
    for thread in list(session.threads):
        if not thread.is_alive():
            session.threads.discard(thread)
        elif thread is not here and thread not in session.caught_up:
            return True
    if not runs_loop():
        return False
    import asyncio

    from .tasks import stands_still

    mine = asyncio.all_tasks() if not session.asynchronous else session.tasks | session.loose
    free = (task for task in mine if task is not me and task not in session.caught_up and not task.done())
    return any(not stands_still(session, task) for task in free)
