"""The protocol broken on purpose, one rule at a time. Each bug is a small wrapper around a real function.

`where` names the setting in which the bug shows soonest, `breaks` how the sentence about it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from surefoot.core import perform, policy, writes
from surefoot.core.contract import Contract, Kind
from surefoot.core.effect import Do, Effect, Event, Status, apply
from surefoot.core.lease import Vantage
from surefoot.core.outcome import Answered
from surefoot.core.writes import Answer, DecideEffect, RecordEffect, TakeEffect, Verdict

from .records import NOW, TICK

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """One mutation, where to look for it, and what it must be found to break."""

    name: str
    plant: Callable[[Patch], None]
    where: str
    breaks: str
    two_runs: bool = True
    unsure: bool = False
    drops: bool = True
    second_request: bool = False


def wrap_apply(patch: Patch, change: Callable[[Effect, Event], Effect | None]) -> None:
    """Every use of `apply` sees `change` first; None leaves it to the real one."""

    def changed(effect: Effect, event: Event) -> Effect:
        return change(effect, event) or apply(effect, event)

    patch.setattr(writes, "apply", changed)
    patch.setattr(perform, "apply", changed)


def wrap_decide(patch: Patch, kind: type[Any], change: Callable[[Any, Any], Any]) -> None:
    """A write is changed right before it is decided, knowing the view."""
    real = kind.decide
    patch.setattr(kind, "decide", lambda self, view: real(change(self, view), view))


def effect_fence_unchecked(patch: Patch) -> None:
    def current(write: RecordEffect, view: Any) -> RecordEffect:
        held = view.effect(write.key)
        return replace(write, effect_fence=held.fence if held else write.effect_fence)

    wrap_decide(patch, RecordEffect, current)


def run_fence_unchecked(patch: Patch) -> None:
    patch.setattr(writes, "owned", lambda run, fence: Verdict.DONE)


def owner_unchecked(patch: Patch) -> None:
    patch.setattr(Vantage, "may_take_from", lambda self, holder_id, holder: True)


def takeover_without_doubt(patch: Patch) -> None:
    def keep(effect: Effect, event: Event) -> Effect | None:
        return effect if event.do is Do.LOSE and "its sender stopped" in event.reason else None

    wrap_apply(patch, keep)


def former_owner_respected(patch: Patch) -> None:
    patch.setattr(writes, "is_for", lambda effect, run_id: False)


def fence_kept_at_the_end(patch: Patch) -> None:
    real = RecordEffect.decide

    def decide(self: RecordEffect, view: Any) -> Answer:
        held, answer = view.effect(self.key), real(self, view)
        after = answer.effect
        if answer.verdict is not Verdict.DONE or after is None or held.fence == after.fence:
            return answer
        kept = replace(after, fence=held.fence)
        view.put_effect(kept)
        return Answer(answer.verdict, effect=kept)

    patch.setattr(RecordEffect, "decide", decide)


def opaque_resent(patch: Patch) -> None:
    real = policy.next_move

    def move(effect: Effect, now: float, *, can_ask: bool) -> Any:
        if effect.contract.kind is Kind.OPAQUE and effect.status is Status.IN_DOUBT:
            return policy.Send()
        return real(effect, now, can_ask=can_ask)

    patch.setattr(policy, "next_move", move)


def settling_ignored(patch: Patch) -> None:
    patch.setattr(policy, "settled_at", lambda effect: 1.0)


def one_no_is_enough(patch: Patch) -> None:
    real = policy.next_move

    def move(effect: Effect, now: float, *, can_ask: bool) -> Any:
        margins = replace(effect.contract.margins, clear_nos=1)
        return real(replace(effect, contract=replace(effect.contract, margins=margins)), now, can_ask=can_ask)

    patch.setattr(policy, "next_move", move)


def window_from_the_last_attempt(patch: Patch) -> None:
    real = policy.next_move

    def move(effect: Effect, now: float, *, can_ask: bool) -> Any:
        return real(replace(effect, first_sent_at=effect.attempted_at), now, can_ask=can_ask)

    patch.setattr(policy, "next_move", move)


def margin_ignored(patch: Patch) -> None:
    patch.setattr(Contract, "protected_seconds", property(lambda self: self.window_seconds))


def begin_until_ignored(patch: Patch) -> None:
    patch.setattr(policy, "send_until", lambda now, until: now + 3 * TICK)


def late_refusal_trusted(patch: Patch) -> None:
    real = policy.judge

    def judge(effect: Effect, answer: Answered) -> Do:
        return Do.REFUSE if answer.kind == "refused" else real(effect, answer)

    def refuse(effect: Effect, event: Event) -> Effect | None:
        return apply(replace(effect, unresolved=0), event) if event.do is Do.REFUSE else None

    patch.setattr(policy, "judge", judge)
    wrap_apply(patch, refuse)


def unsent_forgets_the_doubt(patch: Patch) -> None:
    real = policy.judge

    def judge(effect: Effect, answer: Answered) -> Do:
        return Do.UNSEND if answer.kind == "unsent" else real(effect, answer)

    def unsend(effect: Effect, event: Event) -> Effect | None:
        return apply(replace(effect, unresolved=0), event) if event.do is Do.UNSEND else None

    patch.setattr(policy, "judge", judge)
    wrap_apply(patch, unsend)


def fresh_key_at_resend(patch: Patch) -> None:
    def attempt(effect: Effect, event: Event) -> Effect | None:
        again = event.do is Do.ATTEMPT and effect.status is Status.IN_DOUBT
        return replace(apply(effect, event), sent_key="another key") if again else None

    wrap_apply(patch, attempt)


def other_request_accepted(patch: Patch) -> None:
    def same(write: TakeEffect, view: Any) -> TakeEffect:
        held = view.effect(write.effect.key)
        return replace(write, effect=replace(write.effect, request_digest=held.request_digest)) if held else write

    wrap_decide(patch, TakeEffect, same)


def late_evidence_dropped(patch: Patch) -> None:
    patch.setattr(RecordEffect, "_keep_late", lambda self, view, held, verdict: Answer(verdict, effect=held))


def late_evidence_settles(patch: Patch) -> None:
    def settle(self: RecordEffect, view: Any, held: Effect, verdict: Verdict) -> Answer:
        if self.event is not None and self.event.do is Do.CONFIRM and held.status in (Status.IN_DOUBT, Status.PARKED):
            view.put_effect(apply(held, self.event))
        return Answer(verdict, effect=held)

    patch.setattr(RecordEffect, "_keep_late", settle)


def late_proof_ignored(patch: Patch) -> None:
    real = policy.next_move

    def move(effect: Effect, now: float, *, can_ask: bool) -> Any:
        proofs = tuple(e for e in effect.evidence if e.kind != "late")
        return real(replace(effect, evidence=proofs), now, can_ask=can_ask)

    patch.setattr(policy, "next_move", move)


def decision_when_not_parked(patch: Patch) -> None:
    real = DecideEffect.decide

    def decide(self: DecideEffect, view: Any) -> Answer:
        held = view.effect(self.key)
        if held is not None and held.status is Status.IN_DOUBT and self.event.do is Do.DID_NOT_HAPPEN:
            after = apply(held, Event(do=Do.ABSENT, at=NOW))
            view.put_effect(after)
            return Answer(Verdict.DONE, effect=after)
        return real(self, view)

    patch.setattr(DecideEffect, "decide", decide)


def intent_not_recorded(patch: Patch) -> None:
    patch.setattr(TakeEffect, "_record", lambda self, view: None)


def never_parked(patch: Patch) -> None:
    real = policy.next_move

    def move(effect: Effect, now: float, *, can_ask: bool) -> Any:
        found = real(effect, now, can_ask=can_ask)
        return policy.Wait(now + 60.0, "forgotten") if isinstance(found, policy.Park) else found

    patch.setattr(policy, "next_move", move)


def stamp_ignored(patch: Patch) -> None:
    def fresh(write: RecordEffect, view: Any) -> RecordEffect:
        return replace(write, stamp=99) if view.again else write

    wrap_decide(patch, RecordEffect, fresh)


def unknown_taken_for_committed(patch: Patch) -> None:
    from .protocol import Protocol

    real = Protocol.commit

    def commit(self: Protocol, state: Any, i: int, write: int, until: float = 0.0, *, again: bool = False) -> Any:
        done = self.decided(write, state.effect, state.run, state.journals, False, False)
        for label, after, broken in real(self, state, i, write, until, again=again):
            if label[0] == "unsure, not applied" and done.effect >= 0:
                shown = state._replace(effect=done.effect)
                after = self.answered(shown, i, write, done, until)._replace(effect=state.effect)
            yield label, after, broken

    patch.setattr(Protocol, "commit", commit)


BUGS = (
    Bug("the effect's fence is not checked when an outcome is recorded", effect_fence_unchecked, "opaque", "I5"),
    Bug("the run's fence is not checked", run_fence_unchecked, "opaque", "I5", two_runs=False),
    Bug("an effect is taken without asking who holds it", owner_unchecked, "opaque", "I5"),
    Bug("a takeover does not put the attempt in doubt", takeover_without_doubt, "opaque", "I2b"),
    Bug("a new owner waits for a former owner that woke up", former_owner_respected, "opaque", "I4", two_runs=False),
    Bug("the fence stays when an effect is parked or ends", fence_kept_at_the_end, "opaque", "I3"),
    Bug("an opaque effect in doubt is sent again", opaque_resent, "opaque", "I2b"),
    Bug(
        "an empty answer counts before the attempt has settled",
        settling_ignored,
        "lookup",
        "I2: the receiver",
        drops=False,
    ),
    Bug("one clear no is enough", one_no_is_enough, "lookup", "I2: the receiver", drops=False),
    Bug("the window counts from the last attempt", window_from_the_last_attempt, "keyed", "I2: a request left"),
    Bug("the whole window is relied on", margin_ignored, "keyed", "I2: the receiver"),
    Bug("an attempt may begin at any time", begin_until_ignored, "keyed", "I2: a request left"),
    Bug("a refusal after an unresolved send is believed", late_refusal_trusted, "natural", "I3"),
    Bug("an unsent retry makes the earlier send forgotten", unsent_forgets_the_doubt, "natural", "I3", drops=False),
    Bug("a resend goes out under a fresh key", fresh_key_at_resend, "keyed", "I2: a request left under another key"),
    Bug(
        "another request under the same identity is accepted",
        other_request_accepted,
        "keyed",
        "I2: another request",
        second_request=True,
    ),
    Bug("a late answer is thrown away", late_evidence_dropped, "opaque", "I5: a late answer"),
    Bug("a late answer settles the effect at once", late_evidence_settles, "opaque", "I5: a fenced worker"),
    Bug("a person may decide what is not parked", decision_when_not_parked, "opaque", "I3: a person"),
    Bug("the intent is not in the journal", intent_not_recorded, "opaque", "I3: a request left"),
    Bug("what only a person can tell is never parked", never_parked, "opaque", "I4"),
    Bug("a write tried again does not know itself", stamp_ignored, "opaque", "I3: an effect", unsure=True),
    Bug(
        "an unknown commit is taken for committed",
        unknown_taken_for_committed,
        "opaque",
        "I3: a request left without",
        unsure=True,
    ),
)
