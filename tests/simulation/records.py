"""The records of one effect, folded so that there are finitely many of them.

The model calls the real functions with real records, so time is real seconds: one tick is two of them, and `NOW` never
moves. Letting time pass makes every instant two seconds older; instants so old that no rule can tell them apart are
one instant. Counters stop where no rule looks any further. Evidence is kept as far as a rule reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from surefoot.core import policy
from surefoot.core.contract import DEFAULT_MARGINS, Contract, Kind, Margins, keyed, lookup, natural, opaque
from surefoot.core.effect import TERMINAL, Effect, Evidence, Status
from surefoot.core.lease import Owner, Vantage
from surefoot.core.run import Claimed, Run

NOW, TICK = 1_000_000.0, 2.0
TIMEOUT_TICKS, LAG_TICKS, WINDOW_TICKS = 0.25, 0.5, 2
MARGINS = Margins(window_factor=0.625, safety_seconds=0, clock_skew_seconds=0, short_window_seconds=0)
CURRENT, STALE, GONE = 2, 1, 9
"""Fence tokens compare only for equality: the one that counts is 2, any older one is 1. Owner 9 is a dead process."""

OLDEST_TICKS = WINDOW_TICKS
BUDGET_TICKS = 1
BOOT = "boot"


@dataclass(frozen=True)
class Setting:
    """One contract, as one effect is used under it. `flight_ends`: no request outlives its attempt's deadline."""

    name: str
    contract: Contract
    can_ask: bool = False
    budget_ticks: int = BUDGET_TICKS
    flight_ends: bool = False
    dedupes: bool = False
    performs_again: bool = True
    has_foreign: bool = False
    also_shows: tuple[str, ...] = ()


def _keyed(*, stores_refusals: bool = False) -> Contract:
    return keyed(WINDOW_TICKS * TICK, margins=MARGINS, lag=LAG_TICKS * TICK, stores_refusals=stores_refusals)


def _setting(name: str, contract: Contract, **more: object) -> Setting:
    return Setting(name, contract, **more)  # type: ignore[arg-type]


NEVER_TICKS = 1_000
_LAG = LAG_TICKS * TICK
SETTINGS = {
    s.name: s
    for s in (
        _setting("keyed", _keyed(), budget_ticks=NEVER_TICKS, flight_ends=True, dedupes=True),
        _setting(
            "keyed, stores refusals",
            _keyed(stores_refusals=True),
            budget_ticks=NEVER_TICKS,
            flight_ends=True,
            dedupes=True,
        ),
        _setting("keyed with lookup", _keyed(), can_ask=True, budget_ticks=NEVER_TICKS, flight_ends=True, dedupes=True),
        _setting("natural", natural(lag=_LAG), performs_again=False, has_foreign=True),
        _setting("natural, owned", natural(lag=_LAG, owned=True), budget_ticks=NEVER_TICKS, performs_again=False),
        _setting(
            "natural with lookup",
            natural(lag=_LAG),
            can_ask=True,
            flight_ends=True,
            performs_again=False,
            also_shows=("error",),
        ),
        _setting("lookup", lookup(_LAG), can_ask=True, flight_ends=True, also_shows=("several",)),
        _setting("opaque", opaque()),
        _setting("opaque, at least once", opaque(at_least_once=True), budget_ticks=NEVER_TICKS, performs_again=False),
        _setting("same transaction", Contract(kind=Kind.SAME_TRANSACTION), budget_ticks=NEVER_TICKS, dedupes=True),
    )
}


def older(at: float, most_ticks: float = OLDEST_TICKS) -> float:
    """The instant one tick later on, as seen from NOW; 0.0 (never) stays, and very old is as old as it gets."""
    return bounded(at - TICK, most_ticks) if at else 0.0


def bounded(at: float, most_ticks: float = OLDEST_TICKS) -> float:
    """The instant, at most so many ticks in the past."""
    return max(at, NOW - most_ticks * TICK) if at else 0.0


def _told_apart(attempts: int, contract: Contract) -> int:
    """One attempt, or several, where a rule asks; any number of them elsewhere."""
    return min(attempts, 2 if contract.stores_refusals else 1)


def _folded_lookups(effect: Effect) -> list[Evidence]:
    """Early noes are one; clear noes are two at most, and only the age of the last counts; errors likewise."""
    kept = [e for e in effect.evidence if e.kind == "lookup" and e.attempt == effect.attempts]
    settled = policy.settled_at(effect)
    several = [e for e in kept if e.found == "several"][:1]
    early = [replace(e, at=1.0) for e in kept if e.found == "absent" and e.at < settled][:1]
    clear = [replace(e, at=bounded(e.at, LAG_TICKS)) for e in kept if e.found == "absent" and e.at >= settled]
    clear = [replace(e, at=clear[-1].at) for e in clear[-DEFAULT_MARGINS.clear_nos :]]
    errors = [replace(e, at=bounded(e.at, 1), text="") for e in kept if e.found == "error"]
    errors = [replace(e, at=errors[-1].at) for e in errors[-policy.LOOKUP_ERRORS_MAX :]]
    noes = early + clear
    ordered = noes + errors if errors and kept[-1].found == "error" else errors + noes
    return [replace(e, attempt=_told_apart(e.attempt, effect.contract), text="", who="") for e in several + ordered]


def folded_evidence(effect: Effect) -> tuple[Evidence, ...]:
    """What the rules can still see of the evidence."""
    late = [e for e in effect.evidence if e.kind == "late" and e.found == "landed"][:1]
    kept = [replace(e, at=1.0, attempt=0, text="", who="") for e in late]
    if effect.status in (Status.IN_DOUBT, Status.ATTEMPTED):
        answers = [e for e in effect.evidence if e.kind == "answer"][-1:]
        kept += [
            replace(e, at=1.0, attempt=_told_apart(e.attempt, effect.contract), text="")
            for e in answers
            if e.attempt == effect.attempts
        ]
        kept += _folded_lookups(effect)
    return tuple(kept)


def fold(effect: Effect, setting: Setting, stamp: int = 0) -> Effect:
    """The representative of all effects that no rule can tell from this one."""
    status = effect.status
    over = status in TERMINAL
    timed = not over and status is not Status.PARKED
    asks = setting.can_ask and status in (Status.ATTEMPTED, Status.IN_DOUBT)
    flies = setting.flight_ends and status is Status.ATTEMPTED
    evidence = () if over else folded_evidence(effect)
    answered = any(e.kind == "answer" for e in evidence)
    is_keyed = setting.contract.kind is Kind.KEYED
    outlives = setting.contract.stores_refusals and not over
    repeats = setting.contract.kind in (Kind.NATURAL, Kind.SAME_TRANSACTION) or setting.contract.at_least_once
    return replace(
        effect,
        attempts=_told_apart(effect.attempts, effect.contract),
        unresolved=min(effect.unresolved, 1) if timed else 0,
        unsent=min(effect.unsent, 1) if timed else 0,
        unsent_at=_of_budget(effect.unsent_at, setting, wanted=effect.unresolved == 0) if timed else 0.0,
        created_at=0.0,
        updated_at=0.0,
        taken_over=effect.taken_over and setting.contract.is_short and timed,
        reason="",
        first_sent_at=bounded(effect.first_sent_at) if is_keyed and (timed or outlives) else 0.0,
        attempted_at=_attempted(effect, answered) if timed else 0.0,
        deadline_at=bounded(effect.deadline_at, LAG_TICKS + 2) if asks or flies else 0.0,
        doubted_at=_of_budget(effect.doubted_at, setting, wanted=repeats) if timed else 0.0,
        evidence=evidence,
        stamp=stamp,
    )


def _attempted(effect: Effect, answered: bool) -> float:
    if effect.status is Status.ATTEMPTED:
        return bounded(effect.attempted_at, 2)
    return bounded(effect.attempted_at, 1) if answered or effect.unsent else NOW - TICK


def _of_budget(at: float, setting: Setting, *, wanted: bool) -> float:
    """An instant that only a budget looks at; where none does, it may as well be now."""
    if not wanted or setting.budget_ticks == NEVER_TICKS:
        return at and NOW
    return at and bounded(at, setting.budget_ticks + 1)


def fold_stale(effect: Effect, *, taken: bool) -> Effect:
    """What a worker still holds after somebody else took the effect (or its run): its next write must fail anyway."""
    late = NOW - OLDEST_TICKS * TICK
    return replace(
        effect,
        fence=STALE if taken else effect.fence,
        unsent_at=0.0,
        first_sent_at=late,
        attempted_at=late,
        doubted_at=0.0,
        unresolved=0,
        unsent=0,
        evidence=(),
        reason="stale",
    )


def age(effect: Effect, setting: Setting) -> Effect:
    """The effect one tick later."""
    evidence = tuple(replace(e, at=older(e.at)) if e.at > 1.0 else e for e in effect.evidence)
    if effect.reason == "stale":
        return replace(effect, deadline_at=older(effect.deadline_at, LAG_TICKS + 2))
    aged = replace(
        effect,
        unsent_at=older(effect.unsent_at),
        first_sent_at=older(effect.first_sent_at),
        attempted_at=older(effect.attempted_at),
        deadline_at=older(effect.deadline_at),
        doubted_at=older(effect.doubted_at),
        evidence=evidence,
    )
    return fold(aged, setting, effect.stamp)


def fold_run(run: Run, stamp: int = 0) -> Run:
    """The run without its history."""
    no_claims: tuple[Claimed, ...] = ()
    return replace(
        run, updated_at=0.0, reason="", claims=no_claims, length=0, head=b"", fences=0, result=b"", stamp=stamp
    )


def owner_row(owner_id: int, lapsed: bool) -> Owner:
    """A worker's process; its lease has lapsed or lasts."""
    until = 0.0 if lapsed else 10.0
    return Owner(id=owner_id, pid=owner_id, host="host", boot=BOOT, started_at=1.0, lease_until=until)


def vantage_of(owner_id: int) -> Vantage:
    """How a worker sees the others: the dead are known to be gone."""
    return Vantage(owner=owner_id, boot=BOOT, lease_now=5.0, at=NOW, gone=frozenset({GONE}))
