"""Approvals that a framework's tool waits for: asked in the tool's own place, decided in the one inbox.

Asking ends the agent's run here and now unless it is decided: nothing waits in memory for a person, and the run goes
on, by replay, when somebody has decided.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from ..core.approval import Approval
from ..core.ids import check_id
from ..runtime import approvals
from ..runtime.scope import require
from ..runtime.spans import optional_span


class Asks(msgspec.Struct, frozen=True):
    """That a person is asked before a tool runs: `by` says who may decide, `within` (seconds) for how long."""

    by: str
    within: timedelta | float

    def __post_init__(self) -> None:
        """UsageError for what cannot be asked."""
        check_id(self.by, "Asks(by=)")
        optional_span(self.within, "Asks(within=)")


def ask(asks: Asks, artifact: Any) -> Approval:
    """The approval of exactly this artifact. Raises Denied; suspends the run while nobody has decided."""
    session, branch = require("an approval of a tool")
    wanted = approvals.artifact_of(artifact, asks.by, asks.within, None)
    return approvals.approve_here(session, branch, wanted)


async def ask_async(asks: Asks, artifact: Any) -> Approval:
    """The same, on another thread: a framework's tasks are not the run's, so that nothing may stand still in them."""
    import asyncio

    return await asyncio.to_thread(ask, asks, artifact)
