"""Surefoot makes AI agents crash-safe: a journal, effects with a receiver's contract, and a crash test."""

from typing import TYPE_CHECKING, Any

from .core.approval import Approval
from .core.budget import Budget
from .core.contract import Answers, Contract, Margins, keyed, lookup, natural, opaque
from .core.errors import (
    Abandoned,
    ApprovalClosed,
    ApprovalNotFound,
    BudgetExceeded,
    CommitUnknown,
    Damaged,
    Denied,
    Disagreement,
    Diverged,
    Exists,
    ForkedStore,
    NotApproved,
    NotCommitted,
    NotDeterministic,
    NotSent,
    Refused,
    RunBusy,
    RunCancelled,
    RunEnded,
    RunMismatch,
    RunNotFound,
    RunWaiting,
    ScopeChanged,
    Several,
    StepFailed,
    StoreError,
    StoreRefused,
    StoreUnreachable,
    SurefootError,
    UsageError,
    ValueRefused,
)
from .core.outcome import Confirmed, InDoubt
from .effects.effect import Effect, compensate, effect
from .effects.same_transaction import same_transaction
from .runtime.app import Surefoot
from .runtime.budgets import spend
from .runtime.children import Child, call, start_child
from .runtime.choices import first, now, patched, random, sleep, sleep_until, timeout, uuid, wait_for
from .runtime.fork import gather
from .runtime.fork import map as map  # noqa: A004
from .runtime.handle import Handle
from .runtime.step import Step, Workflow, step, workflow
from .runtime.view import RunView

if TYPE_CHECKING:
    from .credentials import Credential
    from .effects.attempt import Attempt
    from .effects.reading import Reading, Unsuccessful
    from .effects.transactional import create_receipts_table
    from .integrations.tool import tool
    from .runtime.approvals import approve
    from .runtime.decisions import ApprovalView
    from .runtime.schedules import ScheduleView

__version__ = "0.1.0"

__all__ = [
    "Abandoned",
    "Answers",
    "Approval",
    "ApprovalClosed",
    "ApprovalNotFound",
    "ApprovalView",
    "Attempt",
    "Budget",
    "BudgetExceeded",
    "Child",
    "CommitUnknown",
    "Confirmed",
    "Contract",
    "Credential",
    "Damaged",
    "Denied",
    "Disagreement",
    "Diverged",
    "Effect",
    "Exists",
    "ForkedStore",
    "Handle",
    "InDoubt",
    "Margins",
    "NotApproved",
    "NotCommitted",
    "NotDeterministic",
    "NotSent",
    "Reading",
    "Refused",
    "RunBusy",
    "RunCancelled",
    "RunEnded",
    "RunMismatch",
    "RunNotFound",
    "RunView",
    "RunWaiting",
    "ScheduleView",
    "ScopeChanged",
    "Several",
    "Step",
    "StepFailed",
    "StoreError",
    "StoreRefused",
    "StoreUnreachable",
    "Surefoot",
    "SurefootError",
    "Unsuccessful",
    "UsageError",
    "ValueRefused",
    "Workflow",
    "approve",
    "call",
    "compensate",
    "create_receipts_table",
    "effect",
    "first",
    "gather",
    "keyed",
    "lookup",
    "map",
    "natural",
    "now",
    "opaque",
    "patched",
    "random",
    "same_transaction",
    "sleep",
    "sleep_until",
    "spend",
    "start_child",
    "step",
    "timeout",
    "tool",
    "uuid",
    "wait_for",
    "workflow",
]


_LAZY = {
    "ApprovalView": "runtime.decisions",
    "Attempt": "effects.attempt",
    "Credential": "credentials",
    "Reading": "effects.reading",
    "ScheduleView": "runtime.schedules",
    "Unsuccessful": "effects.reading",
    "approve": "runtime.approvals",
    "create_receipts_table": "effects.transactional",
    "tool": "integrations.tool",
}


def __getattr__(name: str) -> Any:
    """What most programs never name is imported when it is first asked for."""
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
