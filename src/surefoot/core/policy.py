"""What may be done with an effect that is not settled: a function of its record, the time, and nothing else.

In doubt is one state with one way out per contract, whether the process died, the answer was lost, or a 500 came
back. The same function serves a live process, a resumed run, `doubts` and the model check.
"""

from __future__ import annotations

import msgspec

from .contract import Kind
from .effect import Do, Effect, Evidence, Status
from .outcome import Answered

SEND_SLACK_SECONDS = 2.0
"""The longest time between the recorded intent and the first byte; later than that the attempt is not made."""

CLEAR_NOS = 2
LOOKUP_ERRORS_MAX = 8
FIRST_DELAY_SECONDS = 0.5
DELAY_SECONDS_MAX = 60.0


class Send(msgspec.Struct, frozen=True):
    """Send now, under the recorded key and request, and not after `until` (0: no limit of the receiver's)."""

    until: float = 0.0


class Ask(msgspec.Struct, frozen=True):
    """Ask the receiver now."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing may be done before `until`."""

    until: float
    why: str


class Park(msgspec.Struct, frozen=True):
    """Only a person can tell."""

    why: str


class Adopt(msgspec.Struct, frozen=True):
    """A late answer proves that it happened; `receipt` is its proof."""

    receipt: bytes


class Absent(msgspec.Struct, frozen=True):
    """Enough clear answers say that it did not happen."""

    why: str


class GiveUp(msgspec.Struct, frozen=True):
    """It was certainly never sent, and its budget is spent."""

    why: str


Move = Send | Ask | Wait | Park | Adopt | Absent | GiveUp


def delay_seconds(tries: int) -> float:
    """Exponential back-off without jitter: 0.5 s, 1 s, 2 s ... 60 s."""
    return min(DELAY_SECONDS_MAX, FIRST_DELAY_SECONDS * 2 ** min(max(tries - 1, 0), 16))


def next_move(effect: Effect, now: float, *, can_ask: bool) -> Move:
    """What may be done next with an effect that is intended, in doubt or parked."""
    for evidence in reversed(effect.evidence):
        if evidence.kind == "late" and evidence.found == "landed" and effect.status is not Status.INTENDED:
            return Adopt(evidence.value)
    if effect.status is Status.PARKED:
        return Park(effect.reason)
    if effect.status is Status.INTENDED:
        return _send_unsent(effect, now)
    contract = effect.contract
    match contract.kind:
        case Kind.SAME_TRANSACTION:
            return _repeat(effect, now, 0.0, can_ask)
        case Kind.NATURAL:
            return _repeat(effect, now, 0.0, can_ask)
        case Kind.KEYED:
            return _repeat(effect, now, effect.first_sent_at + contract.protected_seconds, can_ask)
        case Kind.LOOKUP:
            return _ask(effect, now) if can_ask else Park("its contract is lookup, but it has no @x.lookup function")
        case Kind.OPAQUE:
            if contract.at_least_once:
                return _repeat(effect, now, 0.0, False)
            return Park("the receiver promises nothing about duplicates")


def _send_unsent(effect: Effect, now: float) -> Move:
    if effect.unsent and now > effect.unsent_at + effect.budget_seconds:
        return GiveUp(f"it could not be sent for {effect.budget_seconds:g} s ({effect.unsent} tries): {effect.reason}")
    due = effect.attempted_at + delay_seconds(effect.unsent) if effect.unsent else 0.0
    return Send() if now >= due else Wait(due, "waiting to try again what was certainly not sent")


def _repeat(effect: Effect, now: float, until: float, can_ask: bool) -> Move:
    """A repeat is harmless until `until` (0: for ever); later, ask; else park."""
    spent = now > effect.doubted_at + effect.budget_seconds
    if until and now >= until:
        why = f"first sent at {effect.first_sent_at:.0f}, protected until {until:.0f}: the key no longer protects"
    elif _last_answer(effect) == "refused":
        why = "an earlier try is unresolved and a later one was refused, which proves nothing about the first"
    elif _last_answer(effect) == "exists" and not can_ask:
        why = "the receiver says it exists; nobody can tell whether it is ours"
    elif _last_answer(effect) == "exists":
        return _ask(effect, now)
    elif spent:
        why = f"in doubt for more than {effect.budget_seconds:g} s and {effect.unresolved} tries"
    else:
        due = effect.attempted_at + (delay_seconds(effect.unresolved) if _last_answer(effect) else 0.0)
        return Send(until) if now >= due else Wait(due, "a repeat under the same key is harmless; backing off")
    return _ask(effect, now) if can_ask else Park(why)


def _last_answer(effect: Effect) -> str:
    for evidence in reversed(effect.evidence):
        if evidence.kind == "answer":
            return evidence.found if evidence.attempt == effect.attempts else ""
    return ""


def settled_at(effect: Effect) -> float:
    """From when on an empty answer counts: the attempt's deadline plus the receiver's lag."""
    return effect.deadline_at + effect.contract.lag_seconds


def _ask(effect: Effect, now: float) -> Move:
    answers = [e for e in effect.evidence if e.kind == "lookup" and e.attempt == effect.attempts]
    if any(e.found == "several" for e in answers):
        return Park("the receiver shows several that could be ours")
    errors = [e for e in answers if e.found == "error"]
    if len(errors) >= LOOKUP_ERRORS_MAX:
        return Park(f"the lookup failed {len(errors)} times: {errors[-1].text}")
    lag, settled = effect.contract.lag_seconds, settled_at(effect)
    clear = [e.at for e in answers if e.found == "absent" and e.at >= settled]
    if len(clear) >= CLEAR_NOS:
        return Absent(f"the receiver showed nothing at {clear[0]:.3f} and at {clear[-1]:.3f}")
    due = 0.0
    if clear:
        due = clear[-1] + lag
    elif any(e.found == "absent" for e in answers):
        due = settled
    if errors and answers[-1].found == "error":
        due = max(due, errors[-1].at + delay_seconds(len(errors)))
    return Ask() if now >= due else Wait(due, "letting the attempt settle before an empty answer counts")


def judge(effect: Effect, answer: Answered) -> Do:
    """The event that an attempt's answer stands for, given what is unresolved already."""
    match answer.kind:
        case "landed":
            return Do.CONFIRM
        case "refused":
            earlier = effect.unresolved > 0
            return Do.LOSE if earlier and not effect.contract.stores_refusals else Do.REFUSE
        case "unsent":
            return Do.REDOUBT if effect.unresolved else Do.UNSEND
        case "exists" if effect.contract.owned:
            return Do.CONFIRM
        case "exists" if not effect.unresolved:
            return Do.REFUSE
        case _:
            return Do.LOSE


def answer_evidence(effect: Effect, answer: Answered, at: float, kind: str = "answer") -> Evidence:
    """The answer as evidence of the attempt it belongs to."""
    text = answer.reason if answer.code is None else f"{answer.code}: {answer.reason}"
    return Evidence(at=at, kind=kind, found=answer.kind, text=text[:500], value=answer.receipt, attempt=effect.attempts)


def send_until(now: float, until: float) -> float:
    """The last moment at which this attempt may begin."""
    return min(now + SEND_SLACK_SECONDS, until) if until else now + SEND_SLACK_SECONDS


def explain(effect: Effect, now: float) -> str:
    """The arithmetic behind an effect that is not settled, for people."""
    contract = effect.contract
    parts = [f"{effect.status}, {contract.kind}"]
    if effect.first_sent_at:
        parts.append(f"first sent {_ago(now - effect.first_sent_at)} ago")
    if contract.kind is Kind.KEYED and effect.first_sent_at:
        left = effect.first_sent_at + contract.protected_seconds - now
        state = f"protects for another {_ago(left)}" if left > 0 else "no longer protects"
        parts.append(
            f"window {_ago(contract.window_seconds)}, relied on for {contract.margin:.0%} of it: the key {state}"
        )
    if contract.kind is Kind.LOOKUP and effect.status is Status.IN_DOUBT:
        left = settled_at(effect) - now
        counts = f"counts in {_ago(left)}" if left > 0 else "counts now"
        parts.append(f"an empty answer {counts}; lag {contract.lag_seconds:g} s")
    if effect.reason:
        parts.append(effect.reason)
    return "; ".join(parts)


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
