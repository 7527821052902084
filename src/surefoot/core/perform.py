"""The flow of an effect: from intent to receipt, and out of doubt.

Read `perform` from top to bottom: declare (one commit: intent and first attempt), send, record (one commit: outcome and
journal entry). Whatever goes wrong in between is one state, in doubt, and `policy.next_move` says what may be done.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from . import policy
from .approval import Grant, release_slot, shown, uses_in, wanted_digests
from .commands import AskReceiver, Commit, Flow, Look, Now, ReadEffect, Record, RenewLease, SendEffect, Sleep, Time, ask
from .digest import digest, short_digest
from .effect import TERMINAL, Do, Effect, Event, Evidence, Status, apply, key_of
from .errors import CancelRequested, Damaged, Disagreement, EffectMoved, NotApproved, ScopeChanged
from .flows import POLL_SECONDS, Begun, EffectCall, RunState, Taken, check, mark, preview_of, spill, unspill
from .ids import branch_of, derive_key
from .journal import Branch, Draft, Entry, EntryKind
from .outcome import Answered, storable, storable_text
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
    if entry is not None:
        used = state.replay.take_beside(release_slot(entry.slot))
        _note_uses(state, [used] if used is not None else [])
    elif call.needs_approval:
        yield from _release(state, call, slot)
    if entry is not None and entry.kind == EntryKind.OUTCOME:
        return None, _decode_settled((yield from unspill(entry.value)))
    if entry is None:
        state.begin(Begun.UNDO if call.compensates else Begun.EFFECT)
        if not call.compensates and state.replay.lags(call.branch):
            yield from state.catch_up(call.branch)
        state.replay.may_send(call.branch, f"effect {slot}({preview})", undoes=bool(call.compensates))
        key = derive_key(state.namespace, call.identity or f"run:{state.run_id}:{slot}")
    else:
        slot, key = entry.slot, entry.value.decode()
    outcome = Draft(EntryKind.OUTCOME, slot, args_digest, preview, b"", 0.0)
    return (yield from _perform(state, call, key, outcome, fresh=entry is None))


def _release(state: RunState, call: EffectCall, slot: str) -> Flow[Grant]:
    """The approval that releases exactly this request, used up by it; NotApproved when there is none."""
    now = yield from ask(Time())
    _note_uses(state, state.replay.unread())
    asked = shown(call.names[0], call.arguments)
    wanted = wanted_digests(call.names, call.needs_approval, call.arguments)
    return state.grants.use(release_slot(slot), call.names, wanted, asked, now)


def _note_uses(state: RunState, entries: list[Entry]) -> None:
    for approval_id, slot in uses_in(entries):
        state.grants.note_use(approval_id, slot)


class _NeverTaken(Damaged):
    """The effect is not in the store: its intent was never committed, or its row is gone."""


def _perform(
    state: RunState, call: EffectCall, key: str, outcome: Draft, *, fresh: bool
) -> Flow[tuple[Effect, Settled]]:
    token = object()
    while state.working.setdefault(key, token) is not token:
        yield Sleep(POLL_SECONDS)
    try:
        while True:
            # known as open before it is taken: a cancellation may arrive with the commit
            state.open_effects[key] = Taken(call, outcome)
            effect, lease_until = yield from _take(state, call, key, outcome, fresh)
            try:
                yield from _check_scope(state, call, effect)
                effect, recorded = yield from _settle(state, call, effect, outcome, lease_until)
                break
            except EffectMoved:
                fresh = False
        settled = settled_of(effect, (yield from unspill(effect.receipt)))
        if effect.status in TERMINAL:
            del state.open_effects[key]
            if not recorded and state.run_id:
                value, blobs = spill(_encode(settled), state.inline_bytes)
                yield Record(replace(outcome, value=value), blobs)
        return effect, settled
    except (Disagreement, NotApproved, CancelRequested, ScopeChanged, _NeverTaken) as refused:
        state.open_effects.pop(key, None)
        if isinstance(refused, Disagreement):
            state.grants.give_back(release_slot(outcome.slot))
        raise
    finally:
        if state.working.get(key) is token:
            del state.working[key]


def _check_scope(state: RunState, call: EffectCall, effect: Effect) -> Flow[None]:
    """Refuse to go on where the key of an open effect does not count: in another account, region or endpoint."""
    if effect.status in TERMINAL or effect.status is Status.PARKED or effect.scope == call.scope:
        return
    yield from _record(state, effect, None, release=True)
    recorded, found = dict(effect.scope), dict(call.scope)
    field = next(name for name in (*recorded, *found) if recorded.get(name) != found.get(name))
    sides = recorded.get(field, "(none)"), found.get(field, "(none)")
    raise ScopeChanged(state.run_id, effect.name, effect.contract.receiver, field, *sides)


def settled_of(effect: Effect, receipt: bytes) -> Settled:
    """What the workflow, and its journal, get to see of a settled effect."""
    return Settled(status=effect.status, key=effect.key, receipt=msgspec.Raw(receipt or b"null"), reason=effect.reason)


def _take(state: RunState, call: EffectCall, key: str, outcome: Draft, fresh: bool) -> Flow[tuple[Effect, float]]:
    """Commit the intent and its first attempt, or take over what stands under the identity.

    Gives the effect, and until when on the lease clock an attempt may begin.
    """
    identity = call.identity or f"run:{state.run_id}:{outcome.slot}"
    suspect = 0
    while True:
        vantage = yield from ask(Look(suspect))
        proposal, blobs = _proposal(state, call, key, identity, outcome, vantage.at)
        yield RenewLease(proposal.deadline_at)
        release: Draft | None = None
        if fresh and call.needs_approval:
            grant = yield from _release(state, call, outcome.slot)
            at_slot = release_slot(outcome.slot)
            release = Draft(EntryKind.MARK, at_slot, b"", "", _encode(grant.id), vantage.at)
        intent = replace(outcome, kind=int(EntryKind.INTENT), value=key.encode(), at=vantage.at)
        write = TakeEffect(
            run_id=state.run_id,
            fence=state.fence,
            effect=proposal,
            vantage=vantage,
            names=call.names,
            draft=intent if fresh and state.run_id else None,
            release=release,
            blobs=blobs,
            stamp=next(state.stamps),
        )
        answer = yield from ask(Commit(write))
        check(answer)
        held = answer.effect
        if held is None:
            raise _NeverTaken(
                f"effect {call.names[0]} of run {state.run_id!r}", "its intent is recorded, its row is gone"
            )
        match answer.verdict:
            case Verdict.DONE | Verdict.TOOK | Verdict.EXISTS:
                return held, vantage.lease_now + policy.SEND_SLACK_SECONDS
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
        sent_key=key_of(call.contract, key, now),
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
        scope=call.scope,
        can_ask=call.can_ask,
    )
    return effect, blobs


def _settle(
    state: RunState, call: EffectCall, effect: Effect, outcome: Draft, lease_until: float
) -> Flow[tuple[Effect, bool]]:
    """Bring an effect to an end, or to a person; (effect, its outcome entry was recorded with it)."""
    recorded = False
    begin_until = effect.attempted_at + policy.SEND_SLACK_SECONDS
    while effect.status not in TERMINAL:
        if effect.status is Status.ATTEMPTED:
            effect, recorded = yield from _attempt(state, call, effect, outcome, begin_until, lease_until)
            continue
        vantage = yield from ask(Look())
        now = vantage.at
        match policy.next_move(effect, now, can_ask=call.can_ask):
            case policy.Send(until):
                begin_until = policy.send_until(now, until)
                lease_until = vantage.lease_now + policy.SEND_SLACK_SECONDS
                deadline = begin_until + effect.timeout_seconds
                yield RenewLease(deadline)
                event = Event(do=Do.ATTEMPT, at=now, deadline_at=deadline)
                effect = yield from _record(state, effect, event)
                state.begin(Begun.RESEND)
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
    state: RunState, call: EffectCall, effect: Effect, outcome: Draft, begin_until: float, lease_until: float
) -> Flow[tuple[Effect, bool]]:
    """Send once and record what came of it. Whatever stops us in between leaves the effect in doubt."""
    try:
        answer: Answered = yield SendEffect(call, effect, begin_until, lease_until)
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
    answer = storable(answer)
    now = yield from ask(Now())
    do = policy.judge(effect, answer)
    evidence = policy.answer_evidence(effect, answer, now)
    if do in (Do.CONFIRM, Do.REFUSE):
        kept = evidence if do is Do.REFUSE else None
        event = Event(do=do, at=now, receipt=answer.receipt, reason=answer.reason, evidence=kept)
        return (yield from _finish(state, effect, event, outcome, late=evidence))
    event = Event(do=do, at=now, reason=answer.reason, evidence=evidence)
    return (yield from _record(state, effect, event)), False


def _ask_receiver(state: RunState, call: EffectCall, effect: Effect, outcome: Draft) -> Flow[tuple[Effect, bool]]:
    evidence = yield from ask(AskReceiver(call, effect))
    evidence = replace(evidence, text=storable_text(evidence.text))
    if evidence.found != "found":
        return (yield from _record(state, effect, None, evidence=evidence)), False
    shown = replace(evidence, value=b"")  # the receipt itself is kept as the receipt
    event = Event(do=Do.CONFIRM, at=evidence.at, receipt=evidence.value, reason="the receiver shows it", evidence=shown)
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


def settle_open(state: RunState, *, unread: bool = True) -> Flow[list[Effect]]:
    """Bring to an end what cancelled branches left open, and (`unread`) park what nobody asks for; the parked ones."""
    left: list[Effect | None] = []
    for key, taken in list(state.open_effects.items()):
        effect = yield from _settle_left(state, taken.call, key, taken.outcome)
        left.append(effect)
    for entry in state.replay.unread():
        cut = branch_of(entry.slot) in state.cut
        if cut and entry.kind in (EntryKind.INTENT, EntryKind.OUTCOME):
            effect = yield from _settle_cut(state, entry)
            left.append(effect)
        elif unread and entry.kind == EntryKind.INTENT:
            yield from _park_unasked(state, entry)
    return [effect for effect in left if effect is not None]


def _settle_left(state: RunState, call: EffectCall, key: str, outcome: Draft) -> Flow[Effect | None]:
    """Settle one effect of a cancelled branch; the effect if only a person can."""
    try:
        effect, settled = yield from _perform(state, call, key, outcome, fresh=False)
    except (_NeverTaken, CancelRequested):
        return None  # the intent was never recorded; or its outcome now is, in a run that is being cancelled
    state.settled_late.append((call, settled))
    return effect if settled.status is Status.PARKED else None


def _settle_cut(state: RunState, entry: Entry) -> Flow[Effect | None]:
    """An effect of a branch that was cut short on replay before it asked: settled by its contract, as it was live."""
    key = entry.value.decode() if entry.kind == EntryKind.INTENT else ""
    settled = _decode_settled((yield from unspill(entry.value))) if not key else None
    held = yield from ask(ReadEffect(key or (settled.key if settled else "")))
    branch = state.replay.opened(branch_of(entry.slot))
    call = None if held is None else state.find_call(held, (yield from unspill(held.request)), branch)
    if call is None:
        return (yield from _park_unasked(state, entry)) if key else None
    if settled is not None:
        state.settled_late.append((call, settled))
        return None
    outcome = Draft(EntryKind.OUTCOME, entry.slot, entry.args_digest, entry.preview, b"", 0.0)
    return (yield from _settle_left(state, call, key, outcome))


def _park_unasked(state: RunState, entry: Entry) -> Flow[None]:
    """An intent that the code no longer asks for: only a person can say what became of it."""
    vantage = yield from ask(Look())
    key = entry.value.decode()
    write = ParkUnasked(run_id=state.run_id, fence=state.fence, key=key, vantage=vantage, stamp=next(state.stamps))
    check((yield from ask(Commit(write))))


def doubt_told(state: RunState, branch: Branch, name: str, reason: str) -> Flow[str]:
    """What a workflow was told of an effect in doubt, recorded: it acted on that, whatever a person decides later.

    With an empty `reason` the effect is settled, and only a record of an earlier doubt counts.
    """
    slot = f"in_doubt:{name}:{branch.counts.get(name, 1) - 1}"
    if not reason and not state.replay.is_recorded(branch, slot):
        return ""
    value = yield from mark(state, branch, slot, _encode(reason))
    return msgspec.json.decode(value or b'""', type=str)
