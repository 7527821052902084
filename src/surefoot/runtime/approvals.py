"""`approve(...)`: a run waits until a person has decided about exactly these bytes.

Four things stand in the store, in this order: the request (durable before anybody can see it), the decision (a message,
the first counts for ever), that the run has read it, and which effect used it, in one commit with that effect's intent.
A crash between any two of them is gone on from by a replay.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from ..core import flows
from ..core.approval import ASK_SLOT, Approval, Asked, Decision, EffectRequest, Grant, message_name
from ..core.asking import Artifact, DecideApproval, WithdrawAsk, ask_for, shown_of, wait_of
from ..core.commands import Commit, Flow, ask
from ..core.errors import Damaged, Denied, LeaseLost, Signal, UsageError
from ..core.ids import check_id
from ..core.journal import Branch
from ..core.mail import Mail
from ..core.values import encode_canonical
from ..core.view import Verdict
from .clock import random_uuid
from .committer import Pending
from .scope import require
from .spans import optional_span
from .step import Named
from .waiting import Ear, Heard, off_loop, pause, pause_async

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")
_encode = msgspec.json.encode
_CALL = "surefoot.approve()"


def approve(artifact: Any, *, by: str, within: timedelta | float, releases: Any = None) -> Any:
    """Wait until somebody has approved exactly this artifact, and return the `Approval`; in `async def`, await it.

    `artifact` is any value that can be stored, or the request of an effect: `refund.request("ch_1", amount=10)`, which
    that effect then sends, and no other. `by` says who may decide, for people. After `within` (seconds), which also
    bounds the use, nobody can approve it any more: that denies it. `releases` names the one effect that an approval of
    a plain value releases. Raises Denied; UsageError and ValueRefused before anything is written. The request is
    durable before it is shown, and the decision is recorded when this returns: a crash inside, or a restart, asks
    nobody twice.
    """
    wanted = artifact_of(artifact, by, within, releases)
    session, branch = require(_CALL)
    if session.asynchronous:
        return _approve_async(wanted)
    return approve_here(session, branch, wanted)


def artifact_of(artifact: Any, by: str, within: timedelta | float, releases: Any) -> Artifact:
    """What is to be approved; UsageError or ValueRefused if it cannot be."""
    check_id(by, "surefoot.approve(by=)")
    seconds = optional_span(within, "surefoot.approve(within=)")
    if seconds is None:
        raise UsageError("surefoot.approve() needs within=, the time after which it counts as denied")
    if isinstance(artifact, EffectRequest):
        return _request_of(artifact, by, seconds, releases)
    if isinstance(artifact, Named):
        raise UsageError(f"surefoot.approve() got {artifact.name!r} itself; give it {artifact.name}.request(...)")
    content = encode_canonical(artifact, "the artifact to approve")
    return Artifact(content=content, releases=_released_by_value(releases), by=by, within_seconds=seconds)


def _request_of(request: EffectRequest, by: str, seconds: float, releases: Any) -> Artifact:
    if not request.needs_approval:
        raise UsageError(
            f"effect {request.effect!r} does not need approval, so nothing would hold it to what was approved; declare "
            "it with @effect(..., needs_approval=True)"
        )
    if releases is not None and getattr(releases, "name", None) != request.effect:
        raise UsageError(f"a request of {request.effect!r} releases that effect only; leave releases= out")
    return Artifact(
        content=request.arguments, names=request.names, releases=request.names, by=by, within_seconds=seconds
    )


def _released_by_value(releases: Any) -> tuple[str, ...]:
    if releases is None:
        return ()
    needs = getattr(releases, "needs_approval", None)
    if not isinstance(releases, Named) or not isinstance(needs, str):
        named = releases.name if isinstance(releases, Named) else releases
        raise UsageError(
            f"releases={named!r} is no effect that an approved value could release; declare it with "
            '@effect(..., needs_approval="its argument"), or approve its request: x.request(...)'
        )
    return cast("tuple[str, ...]", getattr(releases, "names", ()))


# --- the wait ---------------------------------------------------------------------------------------------------


def approve_here(session: Session, branch: Branch, wanted: Artifact) -> Approval:
    """`approve` in this branch, on this thread; it suspends the run unless somebody has decided."""
    session.enter(branch, ASK_SLOT)
    try:
        asked = session.drive(ask_for(session.state, branch, wanted))
        heard: Heard | None = None
        if not session.state.replay.is_recorded(branch, message_name(asked.id)):
            ear = _ear_for(session, branch, asked)
            heard = pause(session, branch, wait_of(asked), ear.look, ear.read)
            if not heard.number:
                session.drive(_expire(session, asked))
                ear.read()
                heard = _first_of(session, ear)
        decision = session.drive(_record(session, branch, asked, heard))
    except BaseException as error:
        raise session.stop(error, branch) from error.__cause__
    finally:
        branch.busy = ""
    return _told(session, asked, decision)


async def _approve_async(wanted: Artifact) -> Approval:
    """`approve` in this task, and in its branch: several may be asked for side by side."""
    session, branch = require(_CALL)
    session.check_decided(branch, (ASK_SLOT,))
    session.enter(branch, ASK_SLOT)
    try:
        asked = await _moving(session, ask_for(session.state, branch, wanted))
        decision = await _decision_on(session, branch, asked)
    except BaseException as error:
        session.refuse_timer(error, branch)
        raise session.stop(error, branch) from error.__cause__
    finally:
        branch.busy = ""
    return _told(session, asked, decision)


async def _decision_on(session: Session, branch: Branch, asked: Asked) -> Decision:
    name = message_name(asked.id)
    try:
        session.check_decided(branch, (name,))
        heard: Heard | None = None
        if not session.state.replay.is_recorded(branch, name):
            ear = _ear_for(session, branch, asked)
            heard = await pause_async(session, branch, wait_of(asked), ear.look, ear.read)
            if not heard.number:
                await _moving(session, _expire(session, asked))
                await off_loop(session.engine, ear.read)
                heard = _first_of(session, ear)
        return await _moving(session, _record(session, branch, asked, heard))
    except BaseException as error:
        if session.stopped is None and not isinstance(error, Exception | Signal):
            _withdraw(session, asked)
        raise


async def _moving(session: Session, flow: Flow[T]) -> T:
    """Drive a flow while this branch counts as one that moves."""
    session.active += 1
    try:
        return await session.drive_async(flow)
    finally:
        session.active -= 1


def _ear_for(session: Session, branch: Branch, asked: Asked) -> Ear:
    return Ear(session, branch, wait_of(asked), lambda message: "")


def _withdraw(session: Session, asked: Asked) -> None:
    """The branch was cancelled while it waited: nobody is asked any more. Lost with a crash, it is asked again."""
    state = session.state
    write = WithdrawAsk(
        run_id=state.run_id, fence=state.fence, name=message_name(asked.id), stamp=next(session.engine.stamps)
    )
    session.engine.committer.submit(Pending(write))


# --- the decision -----------------------------------------------------------------------------------------------


def decision_mail(run_id: str, approval_id: str, decision: Decision) -> Mail:
    """The decision as it is sent to the run."""
    return Mail(
        run_id=run_id,
        number=0,
        id=str(random_uuid()),
        name=message_name(approval_id),
        at=decision.at,
        value=_encode(decision),
        who=decision.who,
    )


def _expire(session: Session, asked: Asked) -> Flow[None]:
    """Time was over first: that is sent as the decision, unless another was faster after all."""
    # a shared clock is an estimate, and may be told a little earlier the second time
    at, run_id = max(session.engine.time(), asked.until), session.state.run_id
    over = Decision(decision="expired", digest=asked.digest, who="", at=at, why="nobody decided in time")
    mail = decision_mail(run_id, asked.id, over)
    write = DecideApproval(
        run_id=run_id, mail=mail, digest=asked.digest, at=at, expires=True, stamp=next(session.engine.stamps)
    )
    answer = yield from ask(Commit(write))
    if answer.verdict not in (Verdict.DONE, Verdict.EXISTS):
        raise LeaseLost(f"run {run_id!r} is another owner's, or has ended")


def _first_of(session: Session, ear: Ear) -> Heard:
    """The decision that was first, now that there is one."""
    heard = ear.look()
    if heard is None or not heard.number:
        raise LeaseLost(f"run {session.state.run_id!r} is another owner's, or has ended")
    return heard


def _record(session: Session, branch: Branch, asked: Asked, heard: Heard | None) -> Flow[Decision]:
    """Record that the run has read the decision, or take what is recorded."""
    value = _encode(heard) if heard is not None else None
    recorded = yield from flows.mark(session.state, branch, message_name(asked.id), value)
    known = msgspec.json.decode(recorded or b"", type=Heard)
    session.heard.add(known.number)
    decision = msgspec.json.decode(bytes(known.value), type=Decision)
    if decision.digest != asked.digest:
        raise Damaged(f"the decision on approval {asked.id}", "it names another digest than was asked for")
    return decision


def _told(session: Session, asked: Asked, decision: Decision) -> Approval:
    if decision.decision != "approved":
        raise Denied(asked.id, decision.who, decision.why, decision.at)
    grant = Grant(
        id=asked.id,
        digest=asked.digest,
        until=asked.until,
        releases=asked.releases,
        text=shown_of(asked),
        who=decision.who,
    )
    session.state.grants.add(grant)
    return Approval(id=asked.id, who=decision.who, at=decision.at, why=decision.why, digest=asked.digest)
