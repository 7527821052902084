"""The flows: open a run, do a step, perform an effect, settle it, end a run. Generators of commands, no I/O.

One body serves the sync driver, the async driver and the crash-at-n driver. Read `perform` from top to bottom: that
is one effect from intent to receipt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec
from msgspec.structs import replace

from . import policy
from .commands import (
    AskReceiver,
    Commit,
    Execute,
    Flow,
    Look,
    Now,
    ReadBlob,
    ReadRun,
    Record,
    RenewLease,
    Result,
    SendEffect,
    Sleep,
    ask,
)
from .contract import Contract
from .digest import BLOB_MARK, blob_hash, digest, short_digest
from .effect import TERMINAL, Do, Effect, Event, Evidence, Status, apply
from .errors import CancelRequested, Damaged, Disagreement, EffectMoved, LeaseLost, RunBusy, RunMismatch
from .ids import derive_key, render_key
from .journal import PREVIEW_CHARACTERS, Branch, Draft, Entry, EntryKind, Replay
from .outcome import Answered
from .run import Run, RunDo
from .writes import Answer, Blobs, ClaimRun, EndRun, ParkUnasked, RecordEffect, StartRun, TakeEffect, Verdict

INLINE_BYTES = 64 << 10
POLL_SECONDS = 0.05


class RunState:
    """A run in the hands of its owner: what its flows need to know."""

    def __init__(
        self,
        run_id: str,
        fence: int,
        entries: list[Entry],
        *,
        owner: int,
        namespace: str,
        stamps: Iterator[int],
        working: dict[str, object],
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        """`working` is shared by the process: the effects that somebody here works on now."""
        self.run_id, self.fence, self.owner, self.namespace = run_id, fence, owner, namespace
        self.replay = Replay(run_id, entries)
        self.stamps, self.working, self.inline_bytes = stamps, working, inline_bytes
        self.root = Branch("")
        self.open_effects: dict[str, Taken] = {}


class Call(Protocol):
    """One use of a step or effect in a branch. `names[0]` is its name; the others are former ones."""

    branch: Branch
    names: tuple[str, ...]
    arguments: bytes


class StepCall(Call, Protocol):
    """One use of a step."""

    retries: int

    def delay_seconds(self, attempt: int) -> float:
        """How long to wait after failed attempt `attempt`."""
        ...


class EffectCall(Call, Protocol):
    """One use of an effect."""

    contract: Contract
    identity: str
    timeout_seconds: float
    budget_seconds: float
    can_ask: bool
    compensates: str


class Taken(msgspec.Struct, frozen=True):
    """An effect that this owner has begun and not brought to an end."""

    call: EffectCall
    outcome: Draft


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal keeps of an effect's end."""

    status: Status
    key: str
    receipt: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""


_encode = msgspec.json.encode
_decode_settled = msgspec.json.Decoder(Settled).decode


def preview_of(arguments: bytes) -> str:
    """The first characters of the arguments, for reports; cut so that the journal stays small."""
    return arguments[1 : 1 + PREVIEW_CHARACTERS].decode(errors="replace").removesuffix("}")


def spill(value: bytes, limit: int) -> tuple[bytes, Blobs]:
    """A value over `limit` bytes is replaced by a reference to its hash; the blob comes second."""
    if len(value) <= limit:
        return value, ()
    name = blob_hash(value)
    return BLOB_MARK + name, ((name, value),)


def unspill(value: bytes) -> Flow[bytes]:
    """The value itself, read from the blob table if it is a reference."""
    if value[:1] != BLOB_MARK:
        return value
    return (yield from ask(ReadBlob(value[1:])))


# --- runs -------------------------------------------------------------------------------------------------------


def open_run(proposal: Run, stamps: Iterator[int], blobs: Blobs, when_running: str) -> Flow[tuple[Run, list[Entry]]]:
    """Start the run, or take over the one that stands under this id; a final run is returned as it is.

    Raises RunMismatch for other arguments, RunBusy when it is live elsewhere and may not be waited for.
    """
    answer = yield from ask(Commit(StartRun(run_id=proposal.id, run=proposal, stamp=proposal.stamp, blobs=blobs)))
    if answer.verdict is Verdict.DONE:
        return answer.run or proposal, []
    held = answer.run
    if held is not None and (held.args_digest, held.workflow) != (proposal.args_digest, proposal.workflow):
        raise RunMismatch(proposal.id, _asked(held), _asked(proposal))
    return (yield from take_run(proposal.id, stamps, when_running))


def _asked(run: Run) -> str:
    return f"{run.workflow}({preview_of(run.arguments)})"


def take_run(run_id: str, stamps: Iterator[int], when_running: str) -> Flow[tuple[Run, list[Entry]]]:
    """Claim a run and read its journal; waits for a live owner, takes over a dead one at once."""
    suspect = 0
    while True:
        vantage = yield from ask(Look(suspect))
        answer = yield from ask(Commit(ClaimRun(run_id=run_id, vantage=vantage, why="", stamp=next(stamps))))
        if answer.verdict is Verdict.TOOK and answer.run is not None:
            return answer.run, (yield from read_claimed(answer.run, vantage.at, stamps))
        if answer.verdict is Verdict.ENDED and answer.run is not None:
            return answer.run, []
        if answer.verdict is not Verdict.BUSY:
            raise LeaseLost(f"run {run_id!r} vanished from the store")
        if answer.run is not None and answer.run.owner not in (suspect, 0) and answer.run.owner not in vantage.gone:
            suspect = answer.run.owner
            continue
        if when_running == "refuse":
            raise RunBusy(run_id, answer.holder)
        yield from ask(Sleep(POLL_SECONDS))


def read_claimed(run: Run, at: float, stamps: Iterator[int]) -> Flow[list[Entry]]:
    try:
        read = yield from ask(ReadRun(run.id))
    except Damaged as damaged:
        end = EndRun(run_id=run.id, fence=run.fence, do=RunDo.DAMAGE, at=at, reason=str(damaged), stamp=next(stamps))
        yield Commit(end)
        raise
    assert read is not None
    return read[1]


def end_run(state: RunState, write: EndRun) -> Flow[Answer]:
    """End this owner's work on the run, after every effect that it began; LeaseLost if somebody else has it."""
    answer = yield from ask(Commit(write))
    check(answer)
    return answer


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


def check(answer: Answer) -> None:
    """Turn a verdict that ends the caller's right to work into the signal that stops it."""
    if answer.verdict is Verdict.FENCED or answer.verdict is Verdict.MISSING:
        raise LeaseLost("another owner has this run now")
    if answer.verdict is Verdict.CANCELLED:
        raise CancelRequested


# --- steps ------------------------------------------------------------------------------------------------------


def step(state: RunState, call: StepCall) -> Flow[tuple[bool, bytes, Result | None]]:
    """Return what is recorded, or run the body, record, and return: (ok, stored value, live result or None)."""
    arguments_digest = short_digest(call.arguments)
    preview = preview_of(call.arguments)
    slot, entry = state.replay.take(call.branch, call.names, arguments_digest, preview, "step")
    if entry is not None:
        stored = entry.value if entry.value[:1] != BLOB_MARK else (yield from unspill(entry.value))
        return entry.kind == EntryKind.STEP, stored, None
    attempt = 1
    while True:
        result: Result = yield Execute(call, attempt)
        if result.ok or attempt > call.retries or not result.retryable:
            break
        yield Sleep(call.delay_seconds(attempt))
        attempt += 1
    kind = EntryKind.STEP if result.ok else EntryKind.FAILURE
    value, blobs = spill(result.stored, state.inline_bytes)
    yield Record(Draft(kind, slot, arguments_digest, preview, value, 0.0, attempt), blobs)
    return result.ok, result.stored, result


def mark(state: RunState, branch: Branch, name: str, value: bytes | None, *, wait: bool = True) -> Flow[bytes | None]:
    """A recorded choice (time, random, who won): the recorded value, else record `value` and return it.

    With None nothing is recorded, and None says that there is no record.
    """
    slot, entry = state.replay.take(branch, (name,), b"", "", "mark")
    if entry is not None:
        return entry.value
    if value is not None:
        yield Record(Draft(EntryKind.MARK, slot, b"", "", value, 0.0), wait=wait)
    return value


# --- effects ------------------------------------------------------------------------------------------------------


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
