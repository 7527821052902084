"""Effects that are not settled, and what comes next for each: `doubts`, and half of `doctor`.

What comes next is asked of `core.policy`, with the record as the next owner would find it.
"""

from __future__ import annotations

from ..core import policy
from ..core.contract import Kind
from ..core.effect import OPEN, Do, Effect, Event, Status, apply
from .desk import KEY_SHOWN, Desk, Standing
from .shapes import Doubt, Doubts, Proposal
from .text import ago

SCANNED_MAX = 100_000
"""Disagreements stand on settled effects too; the newest of this many are looked through."""


def list_doubts(desk: Desk) -> Doubts:
    """Parked, in doubt, left behind by a dead sender, or asked for with another request; newest first."""
    doubted: dict[str, Effect] = {}
    for effect in desk.store.find_effects((Status.PARKED, Status.IN_DOUBT, Status.ATTEMPTED), limit=SCANNED_MAX):
        found = desk.unattended(effect) if effect.status is Status.ATTEMPTED else effect
        if found is not None:
            doubted[found.key] = found
    for effect in desk.store.find_effects(limit=SCANNED_MAX):
        if _proposals(desk, effect):
            doubted.setdefault(effect.key, effect)
    return Doubts(doubts=[_doubt(desk, effect) for effect in doubted.values()])


def _doubt(desk: Desk, effect: Effect) -> Doubt:
    follows = next_of(desk, effect, desk.standing(effect.owner)) if effect.status in OPEN else ""
    return Doubt(effect=desk.effect_row(effect), next=follows, proposals=_proposals(desk, effect))


def _proposals(desk: Desk, effect: Effect) -> list[Proposal]:
    others = [e for e in effect.evidence if e.kind == "disagreement"]
    if not others:
        return []
    first = Proposal(at=effect.created_at, run=effect.run, name=effect.name, request=desk.value(effect.request))
    return [first, *(Proposal(at=e.at, run=e.who, name=e.text, request=desk.value(e.value)) for e in others)]


def next_of(desk: Desk, effect: Effect, owner: Standing) -> str:
    """What happens to an open effect without a person, or what a person has to do."""
    if effect.status is Status.PARKED and not isinstance(_move(effect, desk.now), policy.Adopt):
        return f"look there whether it happened, then decide it; it was sent under the key {effect.sent_key}"
    if effect.owner and owner.is_live:
        return f"nothing to do: {owner.name} is working on it"
    whose = f"when run {effect.run!r} is run again" if effect.run else "when it is called again"
    return f"{whose}: {_outlook(effect, desk.now)}"


def _outlook(effect: Effect, now: float) -> str:
    """The next owner's move, in words."""
    match _move(effect, now):
        case policy.Send():
            return "it is sent" if effect.status is Status.INTENDED else "the same request is sent under the same key"
        case policy.Ask():
            return "the receiver is asked"
        case policy.Wait(until, why):
            return f"in {max(until - now, 0):.1f} s; {why}"
        case policy.Park(why):
            return f"it is parked for a person: {why}"
        case policy.Adopt():
            return "it is confirmed by a late answer"
        case policy.Absent(why):
            return f"it is sent again: {why}"
        case policy.GiveUp(why):
            return f"it ends refused: {why}"


def _move(effect: Effect, now: float) -> policy.Move:
    """The next owner's move. Whether its code can look it up is guessed from the contract and the evidence."""
    if effect.status is Status.ATTEMPTED:
        effect = apply(effect, Event(do=Do.LOSE, at=now))
    can_ask = effect.contract.kind is Kind.LOOKUP or any(e.kind == "lookup" for e in effect.evidence)
    return policy.next_move(effect, now, can_ask=can_ask)


def described(effect: Effect, now: float) -> str:
    """One effect on one line, for lists of candidates."""
    where = f"run {effect.run!r}" if effect.run else "outside any run"
    return f"{effect.key[:KEY_SHOWN]}  {effect.slot}  {effect.status}, {where}, {ago(now - effect.created_at)}"
