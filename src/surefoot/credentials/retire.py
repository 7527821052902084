"""What a new authorization, or a harmless repeat, makes pointless: a doubt is closed, and says so in its evidence.

Only what nobody works on is touched. A sender that is alive records what it learns, under its own fence token.
"""

from __future__ import annotations

from ..core.effect import TERMINAL, Do, Effect, Event, Evidence, Status
from ..core.writes import DecideEffect, RecordEffect, TakeEffect, Verdict
from ..runtime.engine import Engine

ADVICE = "advice"
"""A kind of evidence: what a person has to do."""


def advise(engine: Engine, effect: Effect, text: str) -> None:
    """Put what has to be done under the effect's evidence, once, for `surefoot doubts`."""
    if any(each.kind == ADVICE for each in effect.evidence):
        return
    evidence = Evidence(at=engine.clock.now(), kind=ADVICE, found="needs_reconnect", text=text[:500])
    _record(engine, effect, None, evidence)


def retire(engine: Engine, effect: Effect, why: str, who: str) -> None:
    """End an open effect whose outcome no longer matters: abandoned, or refused if it was never sent."""
    held: Effect | None = effect
    if effect.status not in TERMINAL and effect.status is not Status.PARKED:
        held = _park(engine, effect, why)
    if held is None or held.status is not Status.PARKED:
        return
    now = engine.clock.now()
    said = Evidence(at=now, kind="decision", found=Do.ABANDON, text=why, who=who, attempt=held.attempts)
    event = Event(do=Do.ABANDON, at=now, reason=why, evidence=said)
    engine.committer.commit(DecideEffect(key=held.key, event=event, stamp=next(engine.stamps)))


def _park(engine: Engine, effect: Effect, why: str) -> Effect | None:
    """Take it from a dead sender and park it; None if somebody is at work on it."""
    engine.join()
    vantage = engine.look(effect.owner)
    if effect.key in engine.working:
        return None
    take = TakeEffect(fence=0, effect=effect, vantage=vantage, names=(effect.name,), stamp=next(engine.stamps))
    answer = engine.committer.commit(take)
    if answer.verdict is not Verdict.TOOK or answer.effect is None:
        return answer.effect if answer.verdict is Verdict.EXISTS else None
    do = Do.GIVE_UP if answer.effect.status is Status.INTENDED else Do.PARK
    return _record(engine, answer.effect, Event(do=do, at=engine.clock.now(), reason=why), None)


def _record(engine: Engine, effect: Effect, event: Event | None, evidence: Evidence | None) -> Effect | None:
    write = RecordEffect(
        key=effect.key,
        effect_fence=effect.fence,
        run_fence=0,
        event=event,
        evidence=evidence,
        stamp=next(engine.stamps),
    )
    return engine.committer.commit(write).effect
