"""What may be done with an effect that is not settled: a function of its record, the time, and nothing else.

In doubt is one state with one way out per contract, whether the process died, the answer was lost, or a 500 came
back. The same function serves a live process, a resumed run, `doubts` and the model check.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import assert_never

import msgspec

from .contract import UNKEYED_CODES, Bound, Kind
from .effect import Do, Effect, Evidence, Status, last_answer
from .outcome import Answered

SEND_SLACK_SECONDS = 2.0
"""The longest time between the recorded intent and the first byte; later than that the attempt is not made."""

LOOKUP_ERRORS_MAX = 8
FIRST_DELAY_SECONDS = 0.5
DELAY_SECONDS_MAX = 60.0
RETRY_AFTER_SECONDS_MAX = 600.0


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
        proved = evidence.kind == "late" and evidence.found == "landed" and evidence.value
        if proved and effect.status is not Status.INTENDED:
            return Adopt(evidence.value)
    if effect.status is Status.PARKED:
        return Park(effect.reason)
    if effect.status is Status.INTENDED:
        return _send_unsent(effect, now)
    told = last_answer(effect)
    if told in _NOT_REPEATED:
        return _ask(effect, now) if can_ask and told != "changed_payload" else Park(_NOT_REPEATED[told])
    contract = effect.contract
    match contract.kind:
        case Kind.SAME_TRANSACTION | Kind.NATURAL:
            return _repeat(effect, now, 0.0, can_ask)
        case Kind.KEYED:
            return _repeat(effect, now, protected_until(effect), can_ask)
        case Kind.LOOKUP:
            return _ask(effect, now) if can_ask else Park("its contract is lookup, but it has no @x.lookup function")
        case Kind.OPAQUE:
            if contract.at_least_once:
                return _repeat(effect, now, 0.0, False)
            return Park("the receiver promises nothing about duplicates")
        case _:
            assert_never(contract.kind)


_NOT_REPEATED = {
    "landed": "the receiver says that a request under this key took effect; its answer holds no receipt of ours",
    "changed_payload": "the receiver holds another request under this key, so what it did under it is not ours alone",
    "spent": "the key is used up and the receiver does not tell what became of the request",
    "expired": "the receiver no longer knows the key, so it cannot tell a repeat from a new request",
}
"""Answers after which the same request under the same key can do no good: ask, or let a person tell."""


def protected_until(effect: Effect) -> float:
    """Until when a repeat under the same key is harmless; 0: for ever.

    A window that is too short to survive a restart protects only while nobody else has taken the effect.
    """
    contract = effect.contract
    if contract.protected_seconds == math.inf:
        return 0.0
    if contract.is_short and effect.taken_over:
        return effect.first_sent_at
    return effect.first_sent_at + contract.protected_seconds


def _send_unsent(effect: Effect, now: float) -> Move:
    if effect.unsent and now > effect.unsent_at + effect.budget_seconds:
        return GiveUp(f"it could not be sent for {effect.budget_seconds:g} s ({effect.unsent} tries): {effect.reason}")
    due = max(effect.attempted_at + delay_seconds(effect.unsent), retry_at(effect)) if effect.unsent else 0.0
    return Send() if now >= due else Wait(due, "waiting to try again what was certainly not sent")


def _repeat(effect: Effect, now: float, until: float, can_ask: bool) -> Move:
    """A repeat is harmless until `until` (0: for ever); later, ask; else park."""
    told, margins = last_answer(effect), effect.contract.margins
    if until and now >= until:
        why = f"first sent at {effect.first_sent_at:.0f}, protected until {until:.0f}: the key no longer protects"
    elif told == "refused":
        why = "an earlier try is unresolved and a later one was refused, which proves nothing about the first"
    elif told == "exists":
        why = "the receiver says it exists; nobody can tell whether it is ours"
    elif told == "in_flight" and now > effect.doubted_at + margins.in_flight_seconds:
        why = (
            f"the receiver has said for more than {margins.in_flight_seconds:g} s that an earlier try is still running"
        )
    elif now > effect.doubted_at + effect.budget_seconds:
        why = f"in doubt for more than {effect.budget_seconds:g} s and {effect.unresolved} tries"
    else:
        due = max(effect.attempted_at + (delay_seconds(effect.unresolved) if told else 0.0), retry_at(effect))
        return Send(until) if now >= due else Wait(due, "a repeat under the same key is harmless; backing off")
    return _ask(effect, now) if can_ask else Park(why)


def retry_at(effect: Effect) -> float:
    """From when on the receiver wants to be asked again, by its answer to the last attempt; at most ten minutes off."""
    for evidence in reversed(effect.evidence):
        if evidence.kind == "answer" and evidence.attempt == effect.attempts:
            return evidence.at + min(evidence.retry_after, RETRY_AFTER_SECONDS_MAX) if evidence.retry_after else 0.0
    return 0.0


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
    contract, settled = effect.contract, settled_at(effect)
    lag = contract.lag_seconds
    clear = [e.at for e in answers if e.found == "absent" and e.at >= settled]
    if len(clear) >= contract.margins.clear_nos:
        why = f"the receiver showed nothing at {clear[0]:.3f} and at {clear[-1]:.3f}"
        if last_answer(effect) == "landed":
            return Park(f"the receiver said that it happened, but {why}")
        if not contract.absence:
            return Park(f"{why}, which proves nothing: it may drop or delay what it shows")
        return Absent(why)
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
            # a refusal that says "landed" is ours only if something of ours may have been there before
            ours = answer.code is None or effect.unresolved
            return Do.CONFIRM if answer.receipt and ours else Do.LOSE
        case "refused":
            stored = effect.contract.stores_refusals and answer.code not in UNKEYED_CODES
            return Do.LOSE if effect.unresolved and not stored else Do.REFUSE
        case "unsent" | "not_processed":
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
    return Evidence(
        at=at,
        kind=kind,
        found=answer.kind,
        text=text[:500],
        value=answer.receipt,
        attempt=effect.attempts,
        retry_after=answer.retry_after,
    )


def send_until(now: float, until: float) -> float:
    """The last moment at which this attempt may begin."""
    return min(now + SEND_SLACK_SECONDS, until) if until else now + SEND_SLACK_SECONDS


def explain(effect: Effect, now: float) -> str:
    """The arithmetic behind an effect that is not settled, and what happens next, for people."""
    contract = effect.contract
    parts = [f"{effect.status}, {contract.kind}"]
    if effect.first_sent_at:
        parts.append(f"first sent {_ago(now - effect.first_sent_at)} ago")
    if contract.kind is Kind.KEYED and effect.first_sent_at:
        parts.append(_window(effect, now))
    if effect.status is Status.PARKED:
        return "; ".join([*parts, effect.reason] if effect.reason else parts)
    if effect.reason:
        parts.append(effect.reason)
    match next_move(effect, now, can_ask=effect.can_ask):
        case Send():
            again = " again under the same key" if effect.status is Status.IN_DOUBT else ""
            parts.append(f"the next owner sends it{again}")
        case Ask():
            parts.append(f"the next owner asks the receiver{_by(effect)}, lag {contract.lag_seconds:g} s")
        case Wait(until, why):
            asks = f", then asking{_by(effect)}; lag {contract.lag_seconds:g} s" if _is_asking(effect) else ""
            parts.append(f"{why} until {_clock(until)}{asks}")
        case Park(why):
            parts.append(f"a person has to tell: {why}")
        case Adopt():
            parts.append("a late answer proves that it happened")
        case Absent(why):
            parts.append(f"{why}: it is sent again")
        case GiveUp(why):
            parts.append(why)
    return "; ".join(parts)


def _window(effect: Effect, now: float) -> str:
    contract, until = effect.contract, protected_until(effect)
    if not until:
        return "its key is kept for ever"
    left = until - now
    state = f"protects for another {_ago(left)}" if left > 0 else "no longer protects"
    if contract.bound in (Bound.UNKNOWN, Bound.STATE) and not contract.window_seconds:
        return f"its window is not known, {_ago(contract.protected_seconds)} are relied on: the key {state}"
    if contract.is_short and effect.taken_over:
        return f"window {_ago(contract.window_seconds)}, too short to be relied on after a restart: the key {state}"
    return f"window {_ago(contract.window_seconds)}, relied on for {_ago(contract.protected_seconds)}: the key {state}"


def _is_asking(effect: Effect) -> bool:
    return any(e.kind == "lookup" and e.attempt == effect.attempts for e in effect.evidence)


def _by(effect: Effect) -> str:
    return f" by {effect.contract.asks_by}" if effect.contract.asks_by else ""


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%SZ")


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
