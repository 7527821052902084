"""What `Surefoot.get` and `list` return: a run as people read it."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.run import FINAL, Run, RunStatus


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run. Instants are seconds since the epoch; `result` is plain JSON (None until it succeeded)."""

    id: str
    workflow: str
    status: RunStatus
    arguments: dict[str, Any]
    result: Any
    reason: str
    created_at: float
    updated_at: float
    claims: int
    cancel_requested: bool

    @property
    def finished(self) -> bool:
        """True when it has succeeded, failed or been cancelled."""
        return self.status in FINAL


def view_of(run: Run, arguments: bytes, result: bytes) -> RunView:
    """The view of a run whose large values have been fetched."""
    return RunView(
        id=run.id,
        workflow=run.workflow,
        status=run.status,
        arguments=msgspec.json.decode(arguments or b"{}"),
        result=msgspec.json.decode(result) if result and run.status is RunStatus.SUCCEEDED else None,
        reason=run.reason,
        created_at=run.created_at,
        updated_at=run.updated_at,
        claims=run.fence,
        cancel_requested=bool(run.cancel_at),
    )
