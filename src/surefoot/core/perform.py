"""The flow of an effect: from intent to receipt, and out of doubt.

Read `perform` from top to bottom: declare (one commit: intent and first attempt), send, record (one commit: outcome and
journal entry). Whatever goes wrong in between is one state, in doubt, and `policy.next_move` says what may be done.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from . import policy
from .commands import AskReceiver, Commit, Flow, Look, Now, Record, RenewLease, SendEffect, Sleep, ask
from .digest import digest, short_digest
from .effect import TERMINAL, Do, Effect, Event, Evidence, Status, apply
from .errors import Disagreement, EffectMoved
from .flows import POLL_SECONDS, EffectCall, RunState, Taken, check, preview_of, spill, unspill
from .ids import derive_key, render_key
from .journal import Draft, EntryKind
from .outcome import Answered
from .writes import Blobs, ParkUnasked, RecordEffect, TakeEffect, Verdict


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal keeps of an effect's end."""

    status: Status
    key: str
    receipt: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""


_encode = msgspec.json.encode
_decode_settled = msgspec.json.Decoder(Settled).decode


def perform(state: RunState, call: EffectCall) -> Flow[tuple[Effect | None, Settled]]:
    """One effect from intent to receipt; the last status is final or parked.

    Durable when it returns: the outcome. A crash inside leaves an intent, which the next owner settles by contract.
    """
    args_digest = short_digest(call.arguments)
    preview = preview_of(call.arguments)
    slot, entry = state.replay.take(call.branch, call.names, args_digest, preview, "effect")
    if entry is not None and entry.kind == EntryKind.OUTCOME:
        return None, _decode_settled((yield from unspill(entry.value)))
    if entry is None:
        state.replay.may_send(call.branch, f"effect {slot}({preview})")
        key = derive_key(state.namespace, call.identity or f"run:{state.run_id}:{slot}")
    else:
        slot, key = entry.slot, entry.value.decode()
    outcome = Draft(EntryKind.OUTCOME, slot, args_digest, preview, b"", 0.0)
    return (yield from _perform(state, call, key, outcome, fresh=entry is None))


def _perform(
    state: RunState, call: EffectCall, key: str, outcome: Draft, *, fresh: bool
) -> Flow[tuple[Effect, Settled]]:
    token = object()
    while state.working.setdefault(key, token) is not token:
        yield Sleep(POLL_SECONDS)
    try:
        while True:
            effect = yield from _take(state, call, key, outcome, fresh)
            state.open_effects[key] = Taken(call, outcome)
            try:
                effect, recorded = yield from _settle(state, call, effect, outcome)
                break
            except EffectMoved:
                fresh = False
        settled = settled_of(effect, (yield from unspill(effect.receipt)))
        if effect.status in TERMINAL:
            if not recorded and state.run_id:
                value, blobs = spill(_encode(settled), state.inline_bytes)
                yield Record(replace(outcome, value=value), blobs)
            del state.open_effects[key]
        return effect, settled
    finally:
        if state.working.get(key) is token:
            del state.working[key]


def settled_of(effect: Effect, receipt: bytes) -> Settled:
    """What the workflow, and its journal, get to see of a settled effect."""
    return Settled(status=effect.status, key=effect.key, receipt=msgspec.Raw(receipt or b"null"), reason=effect.reason)


def _take(state: RunState, call: EffectCall, key: str, outcome: Draft, fresh: bool) -> Flow[Effect]:
    """Commit the intent and its first attempt, or take over what stands under the identity."""
    identity = call.identity or f"run:{state.run_id}:{outcome.slot}"
    suspect = 0
    while True:
        vantage = yield from ask(Look(suspect))
        proposal, blobs = _proposal(state, call, key, identity, outcome, vantage.at)
        yield RenewLease(proposal.deadline_at)
        intent = replace(outcome, kind=int(EntryKind.INTENT), value=key.encode(), at=vantage.at)
        write = TakeEffect(
            run_id=state.run_id,
            fence=state.fence,
            effect=proposal,
            vantage=vantage,
            draft=intent if fresh and state.run_id else None,
            blobs=blobs,
            stamp=next(state.stamps),
        )
        answer = yield from ask(Commit(write))
        check(answer)
        held = answer.effect
        assert held is not None
        match answer.verdict:
            case Verdict.DONE | Verdict.TOOK | Verdict.EXISTS:
                return held
            case Verdict.DISAGREES:
                shown = f"{held.name}({preview_of((yield from unspill(held.request)))})"
                holder = f"run {held.run!r}" if held.run else "a call outside any run"
                raise Disagreement(identity, shown, f"{call.names[0]}({outcome.preview})", holder)
            case _ if held.owner not in (suspect, 0) and held.owner not in vantage.gone:
                suspect = held.owner
            case _:
                yield Sleep(POLL_SECONDS)


def _proposal(
    state: RunState, call: EffectCall, key: str, identity: str, outcome: Draft, now: float
) -> tuple[Effect, Blobs]:
    request, blobs = spill(call.arguments, state.inline_bytes)
    effect = Effect(
        key=key,
        namespace=state.namespace,
        identity=identity,
        name=call.names[0],
        run=state.run_id,
        slot=outcome.slot,
        status=Status.ATTEMPTED,
        contract=call.contract,
        request=request,
        request_digest=digest(call.arguments),
        sent_key=render_key(key, call.contract.shape, call.contract.length),
        timeout_seconds=call.timeout_seconds,
        budget_seconds=call.budget_seconds,
        owner=state.owner,
        created_at=now,
        updated_at=now,
        attempts=1,
        first_sent_at=now,
        attempted_at=now,
        deadline_at=now + policy.SEND_SLACK_SECONDS + call.timeout_seconds,
        compensates=call.compensates,
    )
    return effect, blobs


def _settle(state: RunState, call: EffectCall, effect: Effect, outcome: Draft) -> Flow[tuple[Effect, bool]]:
    """Bring an effect to an end, or to a person; (effect, its outcome entry was recorded with it)."""
    recorded = False
    begin_until = effect.attempted_at + policy.SEND_SLACK_SECONDS
    while effect.status not in TERMINAL:
        if effect.status is Status.ATTEMPTED:
            effect, recorded = yield from _attempt(state, call, effect, outcome, begin_until)
            continue
        now = yield from ask(Now())
        match policy.next_move(effect, now, can_ask=call.can_ask):
            case policy.Send(until):
                begin_until = policy.send_until(now, until)
                deadline = begin_until + effect.timeout_seconds
                yield RenewLease(deadline)
                event = Event(do=Do.ATTEMPT, at=now, deadline_at=deadline)
                effect = yield from _record(state, effect, event)
            case policy.Ask():
                effect, recorded = yield from _ask_receiver(state, call, effect, outcome)
            case policy.Wait(until):
                yield Sleep(max(until - now, 0.001))
            case policy.Adopt(receipt):
                event = Event(do=Do.CONFIRM, at=now, receipt=receipt, reason="a late answer proves it")
                effect, recorded = yield from _finish(state, effect, event, outcome)
            case policy.Absent(why):
                effect = yield from _record(state, effect, Event(do=Do.ABSENT, at=now, reason=why))
            case policy.GiveUp(why):
                event = Event(do=Do.GIVE_UP, at=now, reason=why)
                effect, recorded = yield from _finish(state, effect, event, outcome)
            case policy.Park(why):
                if effect.status is not Status.PARKED:
                    effect = yield from _record(state, effect, Event(do=Do.PARK, at=now, reason=why))
                return effect, False
    return effect, recorded


def _attempt(
    state: RunState, call: EffectCall, effect: Effect, outcome: Draft, begin_until: float
) -> Flow[tuple[Effect, bool]]:
    """Send once and record what came of it. Whatever stops us in between leaves the effect in doubt."""
    try:
        answer: Answered = yield SendEffect(call, effect, begin_until)
    except GeneratorExit:
        raise
    except BaseException as stopped:
        at = yield from ask(Now())
        why = f"interrupted while sending ({type(stopped).__name__})"
        try:
            yield from _record(state, effect, Event(do=Do.LOSE, at=at, reason=why), release=True)
        except EffectMoved:
            pass  # whoever took it sees the attempt that was recorded
        raise
    now = yield from ask(Now())
    do = policy.judge(effect, answer)
    evidence = policy.answer_evidence(effect, answer, now)
    if do in (Do.CONFIRM, Do.REFUSE):
        event = Event(do=do, at=now, receipt=answer.receipt, reason=answer.reason)
        return (yield from _finish(state, effect, event, outcome, late=evidence))
    event = Event(do=do, at=now, reason=answer.reason, evidence=evidence)
    return (yield from _record(state, effect, event)), False


def _ask_receiver(state: RunState, call: EffectCall, effect: Effect, outcome: Draft) -> Flow[tuple[Effect, bool]]:
    evidence = yield from ask(AskReceiver(call, effect))
    if evidence.found != "found":
        return (yield from _record(state, effect, None, evidence=evidence)), False
    event = Event(do=Do.CONFIRM, at=evidence.at, receipt=evidence.value, reason="the receiver shows it")
    return (yield from _finish(state, effect, event, outcome, late=evidence))


def _finish(
    state: RunState, effect: Effect, event: Event, outcome: Draft, *, late: Evidence | None = None
) -> Flow[tuple[Effect, bool]]:
    """Record an end together with its journal entry, in one commit."""
    settled = settled_of(apply(effect, event), event.receipt)
    receipt, blobs = spill(event.receipt, state.inline_bytes)
    value, more = spill(_encode(settled), state.inline_bytes)
    draft = replace(outcome, value=value, at=event.at) if state.run_id else None
    stored = replace(event, receipt=receipt)
    effect = yield from _record(state, effect, stored, draft=draft, blobs=blobs + more, late=late)
    return effect, draft is not None


def _record(
    state: RunState,
    effect: Effect,
    event: Event | None,
    *,
    evidence: Evidence | None = None,
    late: Evidence | None = None,
    draft: Draft | None = None,
    blobs: Blobs = (),
    release: bool = False,
) -> Flow[Effect]:
    """Commit what happened to an effect; when somebody else has it now, `late` is kept as evidence.

    Raises LeaseLost when it is the run that was taken, EffectMoved when it is only the effect.
    """
    write = RecordEffect(
        run_id=state.run_id,
        key=effect.key,
        effect_fence=effect.fence,
        run_fence=state.fence,
        event=event,
        evidence=evidence,
        late=late,
        draft=draft,
        blobs=blobs,
        release=release,
        stamp=next(state.stamps),
    )
    answer = yield from ask(Commit(write))
    check(answer)
    if answer.verdict is Verdict.EXISTS:
        raise EffectMoved
    assert answer.effect is not None
    return answer.effect


def settle_open(state: RunState) -> Flow[list[Effect]]:
    """Bring to an end what cancelled branches left open, and park what the code no longer asks for; the parked ones."""
    parked: list[Effect] = []
    for key, taken in list(state.open_effects.items()):
        effect, settled = yield from _perform(state, taken.call, key, taken.outcome, fresh=False)
        if settled.status is Status.PARKED:
            parked.append(effect)
    for entry in state.replay.unread():
        if entry.kind == EntryKind.INTENT:
            vantage = yield from ask(Look())
            write = ParkUnasked(
                run_id=state.run_id,
                fence=state.fence,
                key=entry.value.decode(),
                vantage=vantage,
                stamp=next(state.stamps),
            )
            check((yield from ask(Commit(write))))
    return parked
