"""`surefoot.spend`: says what a step, an effect or the workflow itself has used up.

In a body the report goes into the journal at once, in an entry of its own: a body that is killed has paid all the same,
and one that runs again pays again. In the workflow's code it has a slot, so a replay does not pay twice.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from ..core.budget import Spent, amount
from ..core.errors import OverBudget, UsageError
from ..core.journal import SPENT, Draft, EntryKind
from ..core.meter import SPEND
from .scope import current
from .session import Session
from .step import has_lost_context


def spend(*, tokens: int = 0, money: Any = None) -> None:
    """Report tokens, or money (a Decimal, in the budget's currency), that this run has used.

    The report is in the journal no later than whatever is recorded next. If it passes the run's budget, the run stops
    here, as failed; an effect's body goes on first, so that its answer is recorded. Outside a run it does nothing. In a
    thread that has lost its run's context it raises UsageError: nobody would know whose budget it is.
    """
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"surefoot.spend(tokens=) must be a whole number, 0 or more, found {tokens!r}")
    spent = Spent(tokens=tokens, money=None if money is None else amount(money, "surefoot.spend(money=)"))
    scope = current.get()
    if scope is None and has_lost_context():
        raise UsageError(
            f"surefoot.spend() was called in thread {threading.current_thread().name!r}, which does not know of any "
            "run, while runs are live in this process; nobody's budget would count it. Start the thread with "
            "contextvars.copy_context().run, or with asyncio.to_thread"
        )
    if scope is None or not scope.session.state.run_id:
        return
    session, branch = scope.session, scope.branch
    if branch is None:
        report(session, spent)
        if scope is session.step_scope and isinstance(session.stopped, OverBudget):
            raise session.stopped
        return
    session.enter(branch, "surefoot.spend()")
    branch.busy = ""
    try:
        slot, entry = session.state.replay.take(branch, (SPEND,), b"", "", "mark")
    except BaseException as error:
        raise session.stop(error, branch) from None
    if entry is None:
        session.report(Draft(EntryKind.MARK, slot, b"", "", msgspec.json.encode(spent), 0.0))
        count(session, spent)
        if session.stopped is not None:
            raise session.stopped


def report(session: Session, spent: Spent) -> None:
    """Queue a report from a body, in an entry of its own, and count it."""
    slot = f"{SPENT}{session.state.fence}.{next(session.reports)}"
    session.report(Draft(EntryKind.MARK, slot, b"", "", msgspec.json.encode(spent), 0.0))
    count(session, spent)


def count(session: Session, spent: Spent) -> None:
    """Count it against the run's budget; what passes it stops the run at whatever it begins next."""
    meter = session.meter
    if meter is None:
        return
    with session.counting:
        meter.used.add(spent)
        exceeded = meter.over(session.engine.time())
    if exceeded is not None and session.stopped is None:
        session.stopped = OverBudget(exceeded)
