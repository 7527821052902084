"""Where in which run the calling code is: a context variable, carried by tasks and by threads that copy the context."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from ..core.journal import Branch

if TYPE_CHECKING:
    from .session import Session


class Scope:
    """A branch of a run, or (`branch` is None) the inside of a step's body.

    A `loose` one is a call scope: tasks that are started in it belong to a framework, which may order them as it likes.
    """

    __slots__ = ("branch", "loose", "session")

    def __init__(self, session: Session, branch: Branch | None, *, loose: bool = False) -> None:
        """Made when a run starts, a branch or a call scope is opened, or a body runs."""
        self.session, self.branch, self.loose = session, branch, loose


current: ContextVar[Scope | None] = ContextVar("surefoot_scope", default=None)


def require(what: str) -> tuple[Session, Branch]:
    """The run and branch that the caller is in; UsageError outside a workflow or inside a step's body."""
    scope = current.get()
    if scope is None:
        raise UsageError(f"{what} is recorded in a run's journal; call it inside a workflow that `Surefoot.run` runs")
    if scope.branch is None:
        raise UsageError(f"{what} was called inside a step's body; call it in the workflow, outside of steps")
    return scope.session, scope.branch
