"""An effect's life: every legal move in one table, made by one function.

    intended -> attempted -> confirmed | refused | in_doubt
    in_doubt -> confirmed | intended (proved absent) | attempted (a harmless repeat) | parked
    parked   -> confirmed | intended | abandoned            (a person, or a late answer that proves it)
    confirmed -> compensated

A move that is not in the table is a bug in Surefoot and raises. After `python-hyper/h11`'s `_state.py`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from .contract import Contract
from .ids import next_key, render_key


class Status(StrEnum):
    """Where an effect stands."""

    INTENDED = "intended"
    ATTEMPTED = "attempted"
    IN_DOUBT = "in_doubt"
    PARKED = "parked"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    COMPENSATED = "compensated"
    ABANDONED = "abandoned"


class Do(StrEnum):
    """What can happen to an effect."""

    ATTEMPT = "attempt"
    CONFIRM = "confirm"
    REFUSE = "refuse"
    UNSEND = "unsend"
    REDOUBT = "redoubt"
    LOSE = "lose"
    ABSENT = "absent"
    PARK = "park"
    GIVE_UP = "give_up"
    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    ABANDON = "abandon"
    COMPENSATE = "compensate"


S, D = Status, Do
TRANSITIONS: dict[tuple[Status, Do], Status] = {
    (S.INTENDED, D.ATTEMPT): S.ATTEMPTED,
    (S.INTENDED, D.GIVE_UP): S.REFUSED,
    (S.ATTEMPTED, D.CONFIRM): S.CONFIRMED,
    (S.ATTEMPTED, D.REFUSE): S.REFUSED,
    (S.ATTEMPTED, D.UNSEND): S.INTENDED,
    (S.ATTEMPTED, D.REDOUBT): S.IN_DOUBT,
    (S.ATTEMPTED, D.LOSE): S.IN_DOUBT,
    (S.IN_DOUBT, D.ATTEMPT): S.ATTEMPTED,
    (S.IN_DOUBT, D.CONFIRM): S.CONFIRMED,
    (S.IN_DOUBT, D.REFUSE): S.REFUSED,
    (S.IN_DOUBT, D.ABSENT): S.INTENDED,
    (S.IN_DOUBT, D.PARK): S.PARKED,
    (S.PARKED, D.CONFIRM): S.CONFIRMED,
    (S.PARKED, D.HAPPENED): S.CONFIRMED,
    (S.PARKED, D.DID_NOT_HAPPEN): S.INTENDED,
    (S.PARKED, D.ABANDON): S.ABANDONED,
    (S.CONFIRMED, D.COMPENSATE): S.COMPENSATED,
}
TERMINAL = frozenset({S.CONFIRMED, S.REFUSED, S.COMPENSATED, S.ABANDONED})
OPEN = frozenset(Status) - TERMINAL
EVIDENCE_MAX = 64


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that somebody learned about an effect: when, what kind, by whom, in words and as a value.

    Kinds: `answer` (of an attempt), `lookup` (found, absent, several, error), `late` (a stale owner's answer),
    `decision` (a person's), `disagreement` (another request under this identity), `claim` (a change of owner).
    `retry_after`: how many seconds later the receiver wants the next try.
    """

    at: float
    kind: str
    found: str
    text: str = ""
    value: bytes = b""
    who: str = ""
    attempt: int = 0
    retry_after: float = 0.0


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One intended action and all that is known of it. Instants are seconds since the epoch; 0.0 means never.

    `run` declared it; `owner` is the process and `holder` the run ("" outside any) in whose hands it is. `scope` is
    where it was first sent (account, region, ...); a resend elsewhere is refused. `taken_over` says that another
    process has had it since it was first sent; `generation` counts keys that were used up before it; `term` is
    that of the store (`core.term`) in which it was last taken.
    """

    key: str
    namespace: str
    identity: str
    name: str
    run: str
    slot: str
    status: Status
    contract: Contract
    request: bytes
    request_digest: bytes
    sent_key: str
    timeout_seconds: float
    budget_seconds: float
    fence: int = 1
    owner: int = 0
    holder: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    receipt: bytes = b""
    reason: str = ""
    attempts: int = 0
    unresolved: int = 0
    unsent: int = 0
    unsent_at: float = 0.0
    first_sent_at: float = 0.0
    attempted_at: float = 0.0
    deadline_at: float = 0.0
    doubted_at: float = 0.0
    compensates: str = ""
    scope: tuple[tuple[str, str], ...] = ()
    can_ask: bool = False
    taken_over: bool = False
    generation: int = 0
    evidence: tuple[Evidence, ...] = ()
    term: int = 0
    stamp: int = 0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One move: what, when, and what it brings along."""

    do: Do
    at: float
    receipt: bytes = b""
    reason: str = ""
    deadline_at: float = 0.0
    evidence: Evidence | None = None


class IllegalMove(Exception):
    """A move that the table does not hold: a bug in Surefoot, or a decision about an effect that is not parked."""


def with_evidence(effect: Effect, evidence: Evidence | None) -> Effect:
    """The effect with one more piece of evidence.

    What makes room, oldest first: lookups, answers and claims of earlier attempts, then disagreements, then those of
    this attempt. Decisions and late answers never do.
    """
    if evidence is None:
        return effect
    kept = (*effect.evidence, evidence)
    if len(kept) > EVIDENCE_MAX:
        drop = min(range(len(kept)), key=lambda i: (_worth(kept[i], effect.attempts), i))
        if _worth(kept[drop], effect.attempts) < _NEVER:
            kept = kept[:drop] + kept[drop + 1 :]
    return replace(effect, evidence=kept)


_NEVER = 3


def _worth(evidence: Evidence, attempt: int) -> int:
    if evidence.kind in ("decision", "late"):
        return _NEVER
    if evidence.kind == "disagreement":
        return 1
    return 0 if evidence.attempt < attempt else 2


def last_answer(effect: Effect) -> str:
    """What the answer to the last attempt was found to mean; "" when there was none."""
    for evidence in reversed(effect.evidence):
        if evidence.kind == "answer":
            return evidence.found if evidence.attempt == effect.attempts else ""
    return ""


def is_used_up(effect: Effect) -> bool:
    """True if the key can do no more: the receiver said so, or drops a number once a later one has passed."""
    return last_answer(effect) in ("spent", "expired") or effect.contract.shape == "sequence"


def key_of(contract: Contract, key: str, at: float, generation: int = 0) -> str:
    """The key as this receiver wants it, fixed when the intent is made, or when the one before is used up."""
    bits = next_key(key, generation)
    return render_key(bits, contract.shape, contract.length, prefix=contract.prefix, at=at)


def _key_age(effect: Effect) -> float:
    """Since when the key counts once nothing is unresolved: a receiver that stores refusals may hold one under it."""
    return effect.first_sent_at if effect.contract.stores_refusals else 0.0


def apply(effect: Effect, event: Event) -> Effect:
    """The effect after the event; raises IllegalMove for anything that the table does not hold.

    A refusal that follows an unresolved earlier send is not accepted here: `policy.judge` turns it into doubt unless
    the contract stores refusals under the key.
    """
    status = TRANSITIONS.get((effect.status, event.do))
    if status is None:
        raise IllegalMove(f"an effect that is {effect.status} cannot {event.do}")
    after = with_evidence(replace(effect, status=status, updated_at=event.at), event.evidence)
    match event.do:
        case Do.ATTEMPT:
            return replace(
                after,
                attempts=effect.attempts + 1,
                attempted_at=event.at,
                first_sent_at=effect.first_sent_at or event.at,
                deadline_at=max(effect.deadline_at, event.deadline_at),
                reason="",
            )
        case Do.UNSEND:
            if effect.unresolved:
                raise IllegalMove("an effect with an unresolved earlier send is still in doubt, not unsent")
            since, first = effect.unsent_at or event.at, _key_age(effect) if effect.attempts > 1 else 0.0
            return replace(after, unsent=effect.unsent + 1, unsent_at=since, first_sent_at=first, reason=event.reason)
        case Do.LOSE:
            doubted = effect.doubted_at or event.at
            return replace(after, unresolved=effect.unresolved + 1, doubted_at=doubted, reason=event.reason)
        case Do.ABSENT | Do.DID_NOT_HAPPEN:
            renewed = is_used_up(effect)
            generation = effect.generation + renewed
            return replace(
                after,
                unresolved=0,
                unsent=0,
                unsent_at=0.0,
                first_sent_at=0.0 if renewed else _key_age(effect),
                doubted_at=0.0,
                taken_over=False,
                sent_key=key_of(effect.contract, effect.key, event.at, generation) if renewed else effect.sent_key,
                generation=generation,
                reason=event.reason,
            )
        case Do.CONFIRM | Do.HAPPENED:
            return replace(after, unresolved=0, receipt=event.receipt, reason=event.reason)
        case Do.REFUSE if effect.unresolved and not effect.contract.stores_refusals and not event.receipt:
            raise IllegalMove("a refusal after an unresolved earlier send proves nothing")
        case _:
            return replace(after, reason=event.reason)
