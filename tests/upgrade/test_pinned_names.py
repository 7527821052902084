"""Names and numbers that stand in users' files and scripts: added now and then, never changed or taken away."""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

import surefoot
from surefoot.core.approval import Asked, Decision
from surefoot.core.budget import Budget, Spent
from surefoot.core.child import Joined
from surefoot.core.contract import Answers, Bound, Contract, Kind, Margins, Meaning, Place
from surefoot.core.dispatch import Limits, Queue, Ready
from surefoot.core.effect import Do, Effect, Evidence, Status
from surefoot.core.journal import Entry, EntryKind
from surefoot.core.lease import Owner
from surefoot.core.mail import Mail
from surefoot.core.run import Claimed, Run, RunDo, RunStatus, Waits
from surefoot.core.schedule import Schedule

A_CONTRACT = "names in users' journals are a contract: add a name here with the code that writes it, and change none"
PINNED: dict[type[Enum], str] = {
    Status: "intended attempted in_doubt parked confirmed refused compensated abandoned",
    Do: "attempt confirm refuse unsend redoubt lose absent park give_up happened did_not_happen abandon compensate",
    RunStatus: "pending running waiting diverged damaged quarantined succeeded failed cancelled",
    RunDo: "claim release suspend diverge damage quarantine retry succeed fail cancel",
    Kind: "same_transaction keyed natural lookup opaque",
    Bound: "exact at_least configurable state for_ever unknown",
    Place: "header body query path mail_header property none",
    Meaning: "landed exists in_flight changed_payload spent expired not_processed refused",
}
ENTRY_KINDS = {"STEP": 1, "FAILURE": 2, "INTENT": 3, "OUTCOME": 4, "MARK": 5}
EVIDENCE_KINDS = {"answer", "lookup", "late", "decision", "disagreement", "claim"}
FIELDS = {
    Run: "id workflow status arguments args_digest fence owner created_at updated_at reason result length head"
    " cancel_at tentative claims stamp queue version key priority parent wake_at waits mail deaths"
    " undo budget budget_until",
    Schedule: "name workflow version arguments args_digest queue cron zone every anchor jitter catch_up budget"
    " created_at fired_until next_at paused last_run last_at skipped_from skipped_until revision stamp",
    Budget: "wall attempts tokens money currency",
    Spent: "tokens money",
    Joined: "status value",
    Waits: "kind name until detail who digest",
    Asked: "id by digest artifact asked_at until effect releases",
    Decision: "decision digest who at why",
    Ready: "run_id queue workflow version key priority since due_at owner",
    Queue: "name limits recent stamp",
    Limits: "concurrency per_worker per_key rate period_seconds",
    Mail: "run_id number id name at value who",
    Claimed: "at owner fence why who",
    Effect: "key namespace identity name run slot status contract request request_digest sent_key timeout_seconds"
    " budget_seconds fence owner created_at updated_at receipt reason attempts unresolved unsent unsent_at"
    " first_sent_at attempted_at deadline_at doubted_at compensates evidence stamp holder scope can_ask taken_over"
    " generation",
    Evidence: "at kind found text value who attempt retry_after",
    Contract: "kind receiver window_seconds bound margins lag_seconds asks_by absence place key_name quoted shape"
    " length prefix answers stores_refusals at_least_once owned",
    Margins: "window_factor safety_seconds clock_skew_seconds unknown_window_seconds short_window_seconds"
    " in_flight_seconds clear_nos",
    Answers: "landed exists in_flight changed_payload spent expired not_processed refused",
    Owner: "id pid host boot started_at lease_until stamp",
    Entry: "seq kind slot args_digest preview value at attempts digest",
}
"""What schema 1 began with. A field that is not named here came later, so bytes without it have to read."""


@pytest.mark.parametrize("enum", PINNED, ids=lambda enum: enum.__name__)
def test_the_members_of_a_stored_enum_are_these(enum: type[Enum]) -> None:
    assert {member.name: member.value for member in enum} == {v.upper(): v for v in PINNED[enum].split()}, A_CONTRACT


def test_the_numbers_of_an_entrys_kind_are_these() -> None:
    assert {member.name: member.value for member in EntryKind} == ENTRY_KINDS, A_CONTRACT


@pytest.mark.parametrize("record", FIELDS, ids=lambda record: record.__name__)
def test_the_fields_of_a_stored_record_are_these_and_later_ones_have_defaults(record: Any) -> None:
    pinned = set(FIELDS[record].split())
    fields = {field.name: field for field in msgspec.structs.fields(record)}
    assert pinned <= set(fields) and all(field.encode_name == name for name, field in fields.items()), A_CONTRACT
    assert not [name for name in set(fields) - pinned if fields[name].required], "yesterday's records could not be read"


def test_the_kinds_of_evidence_are_these() -> None:
    """Those that the code writes, and those that its docstring lists."""
    written: set[str] = set()
    for path in Path(surefoot.__file__).parent.rglob("*.py"):
        if "testing" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                written |= kinds_written(node)
    assert written == EVIDENCE_KINDS, A_CONTRACT
    listed = {kind for kind in EVIDENCE_KINDS if f"`{kind}`" in (Evidence.__doc__ or "")}
    assert listed == EVIDENCE_KINDS


def kinds_written(node: ast.AST) -> set[str]:
    """Constants that become an Evidence's kind: in a call that makes one, or as the default of a function that does."""
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        names = {keyword.arg for keyword in node.keywords}
        if name == "Evidence" or (name in ("replace", "answer_evidence") and names & {"kind"}):
            return {k.value.value for k in node.keywords if k.arg == "kind" and isinstance(k.value, ast.Constant)}
    if isinstance(node, ast.FunctionDef) and node.name == "answer_evidence":
        return {default.value for default in node.args.defaults if isinstance(default, ast.Constant)}
    return set()
