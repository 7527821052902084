"""Giving back a run that will not be run here after all, and ending a cancelled one that nobody works on."""

from __future__ import annotations

from msgspec.structs import replace

from ..core import flows
from ..core.commands import Commit, Flow, ReadRun, ask
from ..core.flows import RunState
from ..core.journal import EntryKind
from ..core.lease import Vantage
from ..core.run import RunDo, RunStatus
from ..core.writes import ClaimRun, EndRun, Verdict
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


def end_cancelled(state: RunState, engine: Engine, reason: str) -> Flow[None]:
    """End a cancelled run that nobody works on; one with open effects is given back, to be settled first."""
    vantage: Vantage = engine.look(0)
    claim = ClaimRun(run_id=state.run_id, vantage=vantage, why="to cancel it", stamp=next(engine.stamps))
    answer = yield from ask(Commit(claim))
    if answer.verdict is Verdict.BUSY and answer.run is not None:
        vantage = engine.look(answer.run.owner)
        answer = yield from ask(Commit(replace(claim, vantage=vantage)))
    if answer.verdict is not Verdict.TOOK or answer.run is None:
        return
    state.fence = answer.run.fence
    entries = yield from flows.read_claimed(answer.run, vantage.at, engine.stamps)
    settled = {entry.slot for entry in entries if entry.kind == EntryKind.OUTCOME}
    open_effects = [e for e in entries if e.kind == EntryKind.INTENT and e.slot not in settled]
    if open_effects:
        reason = f"{reason}; {len(open_effects)} effect(s) are to be settled: run it once more"
    end = EndRun(
        run_id=state.run_id,
        fence=state.fence,
        do=RunDo.RELEASE if open_effects else RunDo.CANCEL,
        at=engine.clock.now(),
        reason=reason,
        stamp=next(engine.stamps),
    )
    yield Commit(end)
