"""The flows of runs and steps: open a run, do a step, record a choice, end a run. Generators of commands, no I/O.

One body serves the sync driver, the async driver and the crash-at-n driver. An effect's flow is in `perform.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from .approval import Grants
from .commands import (
    Commit,
    Execute,
    Flow,
    Look,
    ReadBlob,
    ReadRun,
    Record,
    Result,
    Sleep,
    ask,
)
from .contract import Contract
from .digest import BLOB_MARK, blob_hash, short_digest
from .effect import Effect
from .errors import CancelRequested, Damaged, LeaseLost, RunBusy, RunMismatch
from .journal import PREVIEW_CHARACTERS, Branch, Draft, Entry, EntryKind, Replay
from .run import Run, RunDo
from .writes import DONE, Answer, Blobs, ClaimRun, EndRun, StartRun, Verdict

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
        find_call: Callable[[Effect, bytes, Branch], EffectCall | None],
        tentative: tuple[tuple[int, int], ...] = (),
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        """`working` is shared by the process: the effects that somebody here works on now.

        `find_call` gives the code of a recorded effect, `cut` holds the branches that were cancelled here.
        """
        self.find_call = find_call
        self.run_id, self.fence, self.owner, self.namespace = run_id, fence, owner, namespace
        self.replay = Replay(run_id, entries, tentative)
        self.length = len(entries)
        self.settled_late: list[tuple[EffectCall, Any]] = []
        self.stamps, self.working, self.inline_bytes = stamps, working, inline_bytes
        self.root = self.replay.root
        self.open_effects: dict[str, Taken] = {}
        self.grants = Grants()
        self.cut = self.replay.cut
        self.begin: Callable[[Begun], None] = _go_on
        """Called before anything new begins; raises what stops the run there: it was cancelled, its budget is spent."""
        self.catch_up: Callable[[Branch], Flow[None]] = wait_for_nobody
        """Lets what runs beside it read what is recorded in a branch's call scope, as long as somebody may."""

    def is_settled(self) -> bool:
        """True if nothing is open, and nothing that was recorded is unread."""
        return not self.open_effects and not self.replay.unread()


class Begun(StrEnum):
    """What is about to begin: nothing of it is recorded yet. A resend belongs to an effect that was begun."""

    STEP = "step"
    CALL = "call"
    EFFECT = "effect"
    RESEND = "resend"
    UNDO = "undo"
    CHILD = "child"
    WAIT = "wait"


def _go_on(begun: Begun) -> None:
    """Nothing stops it."""


def begin_nothing(begun: Begun) -> None:
    """The run has ended here, and whoever goes on has outlived it."""
    raise LeaseLost("its run has ended here")


def wait_for_nobody(branch: Branch) -> Flow[None]:
    """Nobody runs beside it."""
    return
    yield  # pragma: no cover


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
    scope: tuple[tuple[str, str], ...]
    compensates: str
    needs_approval: bool | str

    def register_undo(self, session: Any, settled: Any) -> None:
        """Remember how to undo it, now that it is confirmed."""
        ...


class Taken(msgspec.Struct, frozen=True):
    """An effect that this owner has begun and not brought to an end."""

    call: EffectCall
    outcome: Draft


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
    if (yield from begin_run(proposal, blobs)):
        return proposal, []
    return (yield from take_run(proposal.id, stamps, when_running))


def begin_run(proposal: Run, blobs: Blobs) -> Flow[bool]:
    """Put the run into the store, claimed by its proposer; False if it is there already with the same arguments."""
    answer = yield from ask(Commit(StartRun(run_id=proposal.id, run=proposal, stamp=proposal.stamp, blobs=blobs)))
    held = answer.run
    if held is not None and (held.args_digest, held.workflow) != (proposal.args_digest, proposal.workflow):
        raise RunMismatch(proposal.id, _asked(held), _asked(proposal))
    return answer.verdict is Verdict.DONE


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
    """The journal of a run that was just claimed; a damaged one ends the claim."""
    return (yield from read_whole(run, at, stamps))[1]


def read_whole(run: Run, at: float, stamps: Iterator[int]) -> Flow[tuple[Run, list[Entry]]]:
    """A run that was claimed as it stands now, with its journal."""
    try:
        read = yield from ask(ReadRun(run.id))
    except Damaged as damaged:
        end = EndRun(run_id=run.id, fence=run.fence, do=RunDo.DAMAGE, at=at, reason=str(damaged), stamp=next(stamps))
        yield Commit(end)
        raise
    assert read is not None
    return read


def end_run(state: RunState, write: EndRun) -> Flow[Answer]:
    """End this owner's work on the run, after every effect that it began; LeaseLost if somebody else has it."""
    answer = yield from ask(Commit(write))
    check(answer)
    return answer


def check(answer: Answer) -> None:
    """Turn a verdict that ends the caller's right to work into the signal that stops it."""
    if answer is DONE:
        return
    if answer.verdict is Verdict.FENCED or answer.verdict is Verdict.MISSING:
        raise LeaseLost("another owner has this run now")
    if answer.verdict is Verdict.CANCELLED:
        raise CancelRequested(answer.run.reason if answer.run is not None else "cancelled")


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
        state.begin(Begun.STEP)
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
