"""A run's story in order: journal entries, changes of owner and people's decisions, with tokens where a step kept them.

Entries keep their recorded order; the others are put between them by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

from ..core.calls import is_call, is_try, unpack
from ..core.child import children_of
from ..core.effect import Effect
from ..core.journal import FENCE, NOTE, Entry, EntryKind
from ..core.meter import Used
from ..core.run import FINAL, Run, RunStatus
from .desk import Desk
from .shapes import Divergence, Limit, Moment, Shown, Tokens
from .text import compact

DEPTH_MAX = 20
_KINDS = {
    EntryKind.STEP: "step",
    EntryKind.FAILURE: "failure",
    EntryKind.INTENT: "intent",
    EntryKind.OUTCOME: "outcome",
    EntryKind.MARK: "mark",
}


def show_run(desk: Desk, run_id: str) -> Shown:
    """Everything about one run."""
    run, entries, damage = desk.read_run(run_id)
    effects = [effect for effect, _ in desk.effects_of(run.id, entries)]
    moments = list(_merged(desk, run, entries, effects))
    used = Used(entries)
    return Shown(
        run=desk.run_row(run),
        arguments=desk.value(run.arguments),
        result=desk.value(run.result) if run.status is RunStatus.SUCCEEDED else None,
        tokens=used.tokens or sum(moment.tokens or 0 for moment in moments),
        parent=run.parent,
        children=children_of(entries),
        budget=limits_of(run, used, desk.now),
        timeline=moments,
        effects=[desk.effect_row(effect, run.id) for effect in effects],
        diverged=divergence_of(run),
        damage=damage,
        calls=sum(moment.kind == "call" for moment in moments),
        usage=_added(moment.usage for moment in moments),
        money=str(used.money) if used.money else "",
        notes=[moment.text for moment in moments if moment.kind == "note"],
    )


def _added(parts: Iterable[Tokens | None]) -> Tokens | None:
    found = [part for part in parts if part is not None]
    names = Tokens.__struct_fields__
    return Tokens(**{name: sum(getattr(part, name) for part in found) for name in names}) if found else None


def limits_of(run: Run, used: Used, now: float) -> list[Limit]:
    """Each limit of a run's budget with what it has used; wall time goes on until the run has ended."""
    budget = run.budget
    if budget is None:
        return []
    wall = budget.wall_seconds()
    gone = (run.updated_at if run.status in FINAL else now) - (run.budget_until - wall)
    limits = [
        (wall, "wall", f"{max(gone, 0.0):.1f}", f"{wall:g}", "s"),
        (budget.attempts, "attempts", str(used.attempts), str(budget.attempts), ""),
        (budget.tokens, "tokens", str(used.tokens), str(budget.tokens), ""),
        (budget.money, "money", str(used.money), str(budget.money), budget.currency),
    ]
    return [Limit(name=n, used=u, allowed=a, unit=unit) for limit, n, u, a, unit in limits if limit]


def divergence_of(run: Run) -> Divergence | None:
    """Both sides of a diverged run, from the reason that it was stopped with."""
    if run.status is not RunStatus.DIVERGED:
        return None
    lines = [line.strip() for line in run.reason.splitlines()]
    recorded = [line.removeprefix("recorded: ") for line in lines if line.startswith("recorded: ")]
    asks = "the code asks for: "
    asked = next((line.removeprefix(asks) for line in lines if line.startswith(asks)), "")
    return Divergence(reason=run.reason, recorded=recorded, asked=asked)


def _merged(desk: Desk, run: Run, entries: list[Entry], effects: list[Effect]) -> Iterator[Moment]:
    between = sorted([*_claims(desk, run), *_decisions(effects)], key=lambda moment: moment.at)
    attempts = {effect.key: effect.attempts for effect in effects}
    for entry in entries:
        while between and round(between[0].at, 3) <= entry.at:
            yield between.pop(0)
        if not entry.slot.startswith(FENCE):  # what was done to the run is told with its claims
            yield _moment_of(desk, entry, attempts)
    yield from between
    if run.status is not RunStatus.RUNNING:
        yield Moment(at=run.updated_at, kind="status", text=run.reason, status=str(run.status))


def _claims(desk: Desk, run: Run) -> Iterator[Moment]:
    before = ""
    for claim in run.claims:
        name = claim.who or desk.owner_name(claim.owner) or f"owner {claim.owner}"
        if claim.fence == 1:
            kind, text = "started", f"by {name}"
        elif claim.why == "the owner died":
            kind, text = "takeover", f"{before or 'its owner'} died; taken over by {name}, fence {claim.fence}"
        else:
            kind, text = "resumed", f"by {name}, fence {claim.fence}; before: {claim.why}"
        yield Moment(at=claim.at, kind=kind, text=text)
        before = name


def _decisions(effects: list[Effect]) -> Iterator[Moment]:
    for effect in effects:
        for evidence in effect.evidence:
            if evidence.kind == "decision":
                text = f"{evidence.found} ({evidence.who}: {evidence.text})"
                yield Moment(at=evidence.at, kind="decision", text=text, slot=effect.slot, key=effect.key)


def _call_of(entry: Entry) -> Moment:
    called, _ = unpack(entry.value, entry.slot)
    used, money = called.usage, "" if called.money is None else str(called.money)
    usage = None
    if used is not None:
        usage = Tokens(
            input=used.input_tokens,
            output=used.output_tokens,
            cached=used.cached_tokens,
            reasoning=used.reasoning_tokens,
            written=used.written_tokens,
        )
    tokens = None if used is None else used.total
    text, seq = entry.preview, entry.seq
    return Moment(
        at=entry.at, kind="call", text=text, slot=entry.slot, entry=seq, tokens=tokens, usage=usage, money=money
    )


def _attempt_of(entry: Entry) -> Moment:
    _, answer = unpack(entry.value, entry.slot)
    head = _plain(answer.partition(b"\n")[0])
    why = f"{_field(head, 'error')} {_field(head, 'text')}".strip() or f"status {_field(head, 'status')}"
    return Moment(at=entry.at, kind="attempt", text=why, slot=entry.slot, entry=entry.seq)


def _plain(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None


def _moment_of(desk: Desk, entry: Entry, attempts: dict[str, int]) -> Moment:
    kind = EntryKind(entry.kind)
    if kind is EntryKind.STEP and is_call(entry.slot):
        return _call_of(entry)
    if kind is EntryKind.MARK and is_try(entry.slot):
        return _attempt_of(entry)
    if kind is EntryKind.MARK and entry.slot.startswith(NOTE):
        return Moment(at=entry.at, kind="note", text=str(desk.value(entry.value)), entry=entry.seq)
    text, status, key = entry.preview, "", ""
    tries: int | None = entry.attempts
    tokens: int | None = None
    match kind:
        case EntryKind.STEP:
            tokens = tokens_of(desk.value(entry.value))
        case EntryKind.FAILURE:
            failure = desk.value(entry.value)
            text = f"{entry.preview} {_field(failure, 'type')}: {_field(failure, 'message')}".strip()
        case EntryKind.INTENT:
            key = entry.value.decode(errors="replace")
            tries = None
        case EntryKind.OUTCOME:
            settled = desk.value(entry.value)
            status, key, text = _field(settled, "status"), _field(settled, "key"), _field(settled, "reason")
            tries = attempts.get(key)
        case EntryKind.MARK:
            text, tries = compact(desk.value(entry.value)), None
    return Moment(
        at=entry.at,
        kind=_KINDS[kind],
        text=text,
        slot=entry.slot,
        entry=entry.seq,
        attempts=tries,
        tokens=tokens,
        key=key,
        status=status,
    )


def _field(value: Any, name: str) -> str:
    return str(cast("dict[str, Any]", value).get(name, "")) if isinstance(value, dict) else ""


def tokens_of(value: Any, depth: int = 0) -> int | None:
    """Tokens in a model's answer, as OpenAI (`total_tokens`) or Anthropic (input + output) report them, or None."""
    if depth > DEPTH_MAX:
        return None
    if isinstance(value, list):
        children = cast("list[Any]", value)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for candidate in (fields.get("usage"), fields):
            if isinstance(candidate, dict) and (total := _total(cast("dict[str, Any]", candidate))) is not None:
                return total
        children = list(fields.values())
    else:
        return None
    found = [total for child in children if (total := tokens_of(child, depth + 1)) is not None]
    return sum(found) if found else None


def _total(usage: dict[str, Any]) -> int | None:
    if (total := _count(usage.get("total_tokens"))) is not None:
        return total
    parts = _count(usage.get("input_tokens")), _count(usage.get("output_tokens"))
    return parts[0] + parts[1] if parts[0] is not None and parts[1] is not None else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
