"""The runs that this proxy holds: each is a run of the workflow `surefoot.proxy`, which stays until it is told to end.

So a run has an owner, a lease and a journal like any other; `surefoot runs`, `show` and `doctor` know it. A proxy that
was killed leaves it running without an owner, and the next proxy on the store takes it over with all that it recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ..core.calls import CALL, Called, Usage, in_slot, is_call, is_try, pack, slot_of_try, try_slot, unpack
from ..core.commands import Flow, Record, ask
from ..core.digest import blob_hash
from ..core.errors import LeaseLost, RunBusy, RunCancelled, RunMismatch, Signal, SurefootError
from ..core.ids import check_id
from ..core.journal import PREVIEW_CHARACTERS, Draft, Entry, EntryKind
from ..core.meter import spent_of
from ..core.run import FINAL
from ..core.writes import Blobs
from ..http.conversation import request_blobs
from ..http.request import Asked
from ..runtime.app import Surefoot
from ..runtime.budgets import count
from ..runtime.scope import current
from ..runtime.session import Session
from ..runtime.step import workflow
from ..stores.base import Store
from .book import Book, Recorded
from .flight import Flight

WORKFLOW = "surefoot.proxy"


class RunClosed(Exception):
    """The run takes no new calls here; `status` is what an HTTP answer says of that."""

    def __init__(self, status: int, reason: str) -> None:
        """`reason` tells what to do."""
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the journal keeps of a call's request: which API and model, a digest over what is compared, a preview."""

    kind: str
    name: str
    digest: bytes
    preview: str

    @property
    def slot_name(self) -> str:
        """The call's name in slots."""
        return f"{CALL}{in_slot(self.name)}:{self.digest.hex()}"


class HeldRun:
    """A run that is open here, or (`session` is None) one that has ended and only answers from its record."""

    def __init__(
        self, run_id: str, entries: Iterable[Entry], store: Store, session: Session | None, *, skips: bool
    ) -> None:
        """`entries` is its journal so far."""
        self.id, self.session, self._store = run_id, session, store
        recorded, failed = sorted_out(entries)
        self.book: Book[Flight] = Book(recorded, failed, skips=skips)
        self.moved = asyncio.Condition()
        self._stored: set[bytes] = set()
        self.unrecorded = 0
        """Requests that were passed on for this run without a record."""
        self.over: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        """Set when the run is to end (None), or has to stop."""

    async def keep(
        self, slot: str, question: Question, answer: bytes, *, usage: Usage | None = None, asked: Asked | None = None
    ) -> None:
        """Record an answer, durably. RunClosed when this proxy may not write to the run any more."""
        request, blobs = request_blobs(asked) if asked is not None else ("", ())
        fresh = tuple((name, content) for name, content in blobs if name not in self._stored)
        called = Called(kind=question.kind, usage=usage, request=request)
        value = await self._append(EntryKind.STEP, slot, question, called, answer, fresh)
        self._stored.update(name for name, _ in fresh)
        self.book.add_result(Recorded(self.book.length, slot, value, question.preview))

    async def keep_failure(self, slot: str, question: Question, answer: bytes) -> None:
        """Record a try that failed, durably."""
        place = try_slot(slot, self.book.tries(slot))
        value = await self._append(EntryKind.MARK, place, question, Called(kind=question.kind), answer, ())
        self.book.add_failure(Recorded(self.book.length, slot, value, question.preview))

    async def tell(self) -> None:
        """Whoever waits for calls of others looks again."""
        async with self.moved:
            self.moved.notify_all()

    async def _append(
        self, kind: EntryKind, slot: str, question: Question, called: Called, answer: bytes, blobs: Blobs
    ) -> bytes:
        session = self.session
        if session is None or self.over.done():
            raise RunClosed(409, f"run {self.id!r} has ended here; nothing was sent")
        if len(answer) > session.state.inline_bytes:
            name = blob_hash(answer)
            called, answer, blobs = replace(called, answer=name.hex()), b"", (*blobs, (name, answer))
        draft = Draft(kind, slot, question.digest, question.preview[:PREVIEW_CHARACTERS], pack(called, answer), 0.0)

        def record() -> Flow[None]:
            yield from ask(Record(draft, blobs))

        try:
            await session.drive_async(record())
        except Signal as stopped:
            self.stop(stopped)
            raise RunClosed(409, f"run {self.id!r}: {stopped}") from None
        except SurefootError as failed:
            self.stop(failed)
            raise RunClosed(503, f"the store did not take the record of run {self.id!r}: {failed}") from failed
        count(session, spent_of(called))
        return draft.value

    def stop(self, why: BaseException | None) -> None:
        """Let the run's workflow end: None for good, an exception as it deserves."""
        if not self.over.done():
            self.over.set_result(why)

    def content(self, recorded: Recorded) -> bytes:
        """A recorded answer, also where it is kept as a blob."""
        called, answer = unpack(recorded.stored, recorded.slot)
        return self._store.read_blob(bytes.fromhex(called.answer)) if called.answer else answer


def sorted_out(entries: Iterable[Entry]) -> tuple[list[Recorded], list[Recorded]]:
    """The results and the failed tries of a journal, each failed try under the slot of its call."""
    recorded: list[Recorded] = []
    failed: list[Recorded] = []
    for entry in entries:
        if entry.kind == EntryKind.STEP and is_call(entry.slot):
            recorded.append(Recorded(entry.seq, entry.slot, entry.value, entry.text()))
        elif entry.kind == EntryKind.MARK and is_try(entry.slot):
            failed.append(Recorded(entry.seq, slot_of_try(entry.slot), entry.value, entry.text()))
    return recorded, failed


class Opening:
    """Handed to the workflow's body, which hands back its session and then waits."""

    def __init__(self, run_id: str, skips: bool) -> None:
        """Made in the loop that the proxy runs in."""
        self.run_id, self.skips = run_id, skips
        self.held: asyncio.Future[HeldRun] = asyncio.get_running_loop().create_future()


_opening: ContextVar[Opening] = ContextVar("surefoot_proxy_opening")


@workflow(name=WORKFLOW)
async def proxied() -> dict[str, int]:
    """Stays until the run is ended; its calls are recorded from outside."""
    scope = current.get()
    assert scope is not None
    opening, session = _opening.get(), scope.session
    for entry in session.state.replay.unread():
        session.state.replay.take_beside(entry.slot)
    read = session.engine.store.read_run(opening.run_id)
    entries = read[1] if read is not None else []
    held = HeldRun(opening.run_id, entries, session.engine.store, session, skips=opening.skips)
    if opening.held.done():  # the run was lost and is taken again; whoever asks next opens it anew
        raise LeaseLost("this run was taken over meanwhile")
    opening.held.set_result(held)
    why = await held.over
    if why is not None:
        raise why
    return {"calls": held.book.results}


class Runs:
    """Opens runs when they are first asked for, and holds them until they are ended, lost, or the proxy closes."""

    def __init__(self, sf: Surefoot, *, skips: bool) -> None:
        """`skips`: see `Book`."""
        self._sf, self._skips = sf, skips
        self._open: dict[str, HeldRun] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def open_now(self) -> list[HeldRun]:
        """The runs that are open here."""
        return list(self._open.values())

    async def get(self, run_id: str) -> HeldRun:
        """The run of this id, opened if it has to be; RunClosed where that is not possible."""
        held = self._open.get(run_id)
        if held is not None:
            return held
        async with self._locks.setdefault(run_id, asyncio.Lock()):
            return self._open.get(run_id) or await self._begin(check_id(run_id, "a run's id"))

    async def _begin(self, run_id: str) -> HeldRun:
        found = await asyncio.to_thread(self._sf.store.read_run, run_id)
        if found is not None and found[0].workflow != WORKFLOW:
            raise RunClosed(
                409, f"run {run_id!r} is a run of {found[0].workflow!r}, not of a proxy; choose another name"
            )
        if found is not None and found[0].status in FINAL:
            return self._ended(run_id, found[1])
        opening = Opening(run_id, self._skips)
        token = _opening.set(opening)
        try:
            handle = self._sf.start(proxied, id=run_id, when_running="refuse")
        finally:
            _opening.reset(token)
        task = handle.task
        assert task is not None
        await asyncio.wait({task, opening.held}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.held.done():
            raise _refused(run_id, task.exception())
        held = opening.held.result()
        self._open[run_id], self._tasks[run_id] = held, task
        task.add_done_callback(lambda _: self._forget(run_id, held))
        return held

    def _ended(self, run_id: str, entries: list[Entry]) -> HeldRun:
        held = HeldRun(run_id, entries, self._sf.store, None, skips=True)
        held.stop(None)
        self._open[run_id] = held
        return held

    def _forget(self, run_id: str, held: HeldRun) -> None:
        held.stop(None)
        if self._open.get(run_id) is held:
            del self._open[run_id]
        task = self._tasks.pop(run_id, None)
        if task is not None and not task.cancelled():
            task.exception()  # looked at, so that nothing is said of it when it is collected

    async def end(self, run_id: str) -> HeldRun:
        """End a run for good, once its calls under way are recorded; what it recorded is still given out after that."""
        held = await self.get(run_id)
        if held.session is None:
            return held
        while held.book.flights:
            await asyncio.wait({flight.done for flight in held.book.flights.values()})
        task = self._tasks.get(run_id)
        held.stop(None)
        if task is not None:
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()) is not None:
                raise _refused(run_id, error)
        return held


def _refused(run_id: str, error: BaseException | None) -> RunClosed:
    match error:
        case RunBusy():
            return RunClosed(
                409, f"run {run_id!r} is open in another proxy ({error}); send its requests there, or end that proxy"
            )
        case RunMismatch():
            return RunClosed(409, f"run {run_id!r} is no run of a proxy; choose another name")
        case RunCancelled():
            return RunClosed(409, f"run {run_id!r} was cancelled; nothing is sent for it any more")
        case _:
            return RunClosed(503, f"run {run_id!r} could not be opened: {error}")
