"""Giving back a run that will not be run here after all, and ending a cancelled one that nobody works on."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..core import flows
from ..core.child import children_of
from ..core.commands import Commit, Flow, ReadRun, ask
from ..core.flows import RunState
from ..core.journal import EntryKind
from ..core.lease import Vantage
from ..core.run import RunDo, RunStatus
from ..core.writes import CancelRun, ClaimRun, EndRun, Verdict
from .engine import Engine


def release(run_id: str, engine: Engine) -> Flow[None]:
    """Give a run back that this process claimed and will not run after all."""
    read = yield from ask(ReadRun(run_id))
    if read is None or read[0].owner != engine.owner or read[0].status is not RunStatus.RUNNING:
        return
    end = EndRun(
        run_id=run_id,
        fence=read[0].fence,
        do=RunDo.RELEASE,
        at=engine.clock.now(),
        reason="its caller was cancelled while it was being opened",
        stamp=next(engine.stamps),
    )
    yield Commit(end)


def cancel_children(children: Iterable[str], engine: Engine, parent: str) -> Flow[None]:
    """Ask the children of a cancelled run to stop; durable before their parent ends."""
    for child in children:
        reason, stamp = f"its parent, run {parent!r}, was cancelled", next(engine.stamps)
        yield Commit(CancelRun(run_id=child, vantage=engine.look(0), reason=reason, stamp=stamp))


def end_cancelled(state: RunState, engine: Engine, reason: str) -> Flow[list[str]]:
    """End a cancelled run that nobody works on; one that has to settle or undo effects first is given back.

    The children that it had started are asked to stop, and given.
    """
    vantage: Vantage = engine.look(0)
    claim = ClaimRun(run_id=state.run_id, vantage=vantage, why="to cancel it", stamp=next(engine.stamps))
    answer = yield from ask(Commit(claim))
    if answer.verdict is Verdict.BUSY and answer.run is not None:
        vantage = engine.look(answer.run.owner)
        answer = yield from ask(Commit(replace(claim, vantage=vantage)))
    if answer.verdict is not Verdict.TOOK or answer.run is None:
        return []
    state.fence = answer.run.fence
    entries = yield from flows.read_claimed(answer.run, vantage.at, engine.stamps)
    settled = {entry.slot for entry in entries if entry.kind == EntryKind.OUTCOME}
    open_effects = [e for e in entries if e.kind == EntryKind.INTENT and e.slot not in settled]
    if open_effects:
        reason = f"{reason}; {len(open_effects)} effect(s) are to be settled: run it once more"
    undo = answer.run.undo and bool(settled)
    if undo:
        reason = f"{reason}; what it did is to be undone: run it once more"
    children = children_of(entries)
    yield from cancel_children(children, engine, state.run_id)
    end = EndRun(
        run_id=state.run_id,
        fence=state.fence,
        do=RunDo.RELEASE if open_effects or undo else RunDo.CANCEL,
        at=engine.clock.now(),
        reason=reason,
        stamp=next(engine.stamps),
    )
    yield Commit(end)
    return children
