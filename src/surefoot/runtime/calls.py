"""Calls that a framework makes, such as those of its model: recorded by what is asked, not by where in the code.

`begin` gives what is recorded, or a slot to be filled; `record` does both ends for a call that is answered as a whole.
A call that nobody recorded is not made while recorded ones of its scope are unread: an answer that differs would bring
new tool calls, and with them effects that are out already. First whoever runs beside it may read theirs.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable
from contextvars import Token
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from msgspec.structs import replace

from ..core.calls import CALL, Called, Usage, above, in_slot, is_call, pack, try_slot, unpack
from ..core.commands import Flow, ReadBlob, Record, ask
from ..core.digest import blob_hash, short_digest
from ..core.errors import UsageError
from ..core.flows import Begun
from ..core.ids import check_name, slot_of
from ..core.journal import Branch, Draft, Entry, EntryKind
from ..core.meter import spent_of
from ..core.writes import Blobs
from . import budgets
from .scope import Scope, current
from .siblings import catch_up
from .step import has_lost_context

if TYPE_CHECKING:
    from .session import Session

_IDS = re.compile(rb'"(?:id|call_id|tool_call_id)"\s*:\s*"([^"\\]{1,200})"')


class Recorded(NamedTuple):
    """A call that was answered before."""

    answer: bytes
    called: Called


class Failed(NamedTuple):
    """An attempt that failed before, and after which the run went on: it has to fail again."""

    answer: bytes


class Place:
    """Where a call is made: in a call scope of a run, or (`plain`) in a body, where it is counted but not recorded."""

    __slots__ = ("asker", "branch", "plain", "session")

    def __init__(self, session: Session, branch: Branch, asker: Branch, *, plain: bool) -> None:
        """`branch` is the call scope, `asker` the branch whose code asks."""
        self.session, self.branch, self.asker, self.plain = session, branch, asker, plain

    @property
    def path(self) -> str:
        """The call scope, as it stands in slots."""
        return self.branch.path

    def at(self, text: str, *, known: bool = False) -> Branch:
        """A branch for one thing done for this scope, such as a tool call, found by what it is.

        `known` says that a recorded answer asks for it (see `knows`): it waits for nothing that is unread beside it.
        """
        return self.session.state.replay.open_beside(self.branch, text, known=known)


def place(what: str) -> Place | None:
    """Where the caller is; None outside any run. `what` is for the message.

    Raises UsageError in a thread that has lost its run's context while runs are live, and after the run's end.
    """
    here = current.get()
    if here is None:
        if has_lost_context():
            raise UsageError(
                f"{what} was made in thread {threading.current_thread().name!r}, which does not know of any run, while "
                "runs are live in this process; it would not be recorded. Start the thread with "
                "contextvars.copy_context().run, or with asyncio.to_thread."
            )
        return None
    session = here.session
    if not session.state.run_id:
        return None
    if session.ended is not None:
        raise UsageError(f"{what} was made after the end of run {session.state.run_id!r}, in whose context it stands")
    replay = session.state.replay
    if here.branch is None:
        return Place(session, replay.calls, replay.root, plain=True)
    return Place(session, replay.call_scope(here.branch), here.branch, plain=False)


class scope:  # noqa: N801 - used as a word: `with scope("planner"):`
    """Opens a call scope below the one that the caller is in: an agent, a node, a sub-agent. `with` or `async with`.

    Calls are told apart within it, and tasks that are started in it may finish in any order. Outside any run, and in
    the body of a step or effect, it does nothing.
    """

    def __init__(self, name: str) -> None:
        """The second one of a name in its parent is another scope."""
        self.name = check_name(name.replace("/", "∕"), "call scope")
        self._before: list[tuple[Token[Scope | None], Scope | None] | None] = []

    def __enter__(self) -> Self:
        """Open it; the nth opening of a name is the same scope again on replay."""
        here = current.get()
        if here is None or here.branch is None or not here.session.state.run_id:
            self._before.append(None)
            return self
        replay = here.session.state.replay
        with calls_of(here.session).lock:
            parent = here.branch if here.loose else replay.call_scope(here.branch)
            branch = replay.open_scope(parent, self.name)
        self._before.append((current.set(Scope(here.session, branch, loose=True)), here))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Back to the enclosing one."""
        before = self._before.pop()
        if before is None:
            return
        try:
            current.reset(before[0])
        except ValueError:  # left in another context than it was entered in, as async generators are
            current.set(before[1])

    async def __aenter__(self) -> Self:
        """The same."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The same."""
        self.__exit__(kind, error, trace)


class Calls:
    """What one run's calls share."""

    def __init__(self) -> None:
        """`taken` holds the occurrences that are in use, `stored` the blobs that are known to be in the store."""
        self.lock = threading.Lock()
        self.taken: dict[tuple[str, str], set[int]] = {}
        self.tries: dict[str, int] = {}
        self.stored: set[bytes] = set()
        self.ids: set[bytes] = set()
        self.has_read_ids = False
        self.links: dict[tuple[str, bytes], str] = {}
        self.noted: set[tuple[str, str]] = set()

    def take(self, path: str, name: str) -> tuple[int, str]:
        """The lowest free occurrence, and its slot."""
        used = self.taken.setdefault((path, name), set())
        count = next(n for n in range(len(used) + 1) if n not in used)
        used.add(count)
        return count, slot_of(path, name, count)


def calls_of(session: Session) -> Calls:
    """The calls of this run."""
    if session.calls is None:
        session.calls = Calls()
    return session.calls


# --- what stops a run -------------------------------------------------------------------------------------------------


def stop(place: Place, error: BaseException) -> BaseException:
    """What to raise instead of `error`; what has to stop the run is kept, so that swallowing it does not help."""
    return place.session.stop(error, place.branch)


def refuse_if_stopped(place: Place) -> None:
    """Raise what has stopped this run: each call goes through here, since a framework may have swallowed it."""
    session = place.session
    session.engine.committer.check_process()
    stopped = session.stopped or place.asker.stopped or place.branch.stopped
    if stopped is not None:
        raise stopped
    for path, suspended in list(session.suspended.items()):
        if _is_within(path, place.path):
            raise suspended
    if not place.plain:
        session.check_stop()


def _is_within(path: str, scope: str) -> bool:
    while path and path != scope:
        path = above(path)
    return bool(path)


# --- beginning and ending a call --------------------------------------------------------------------------------------


class Slot:
    """A call that is being made. Exactly one of `commit`, `fail` and `give_back` ends it; later ones do nothing."""

    __slots__ = ("_count", "_digest", "_kind", "_name", "_open", "_preview", "place", "slot")

    def __init__(self, place: Place, kind: str, name: str, digest: bytes, preview: str, count: int, slot: str) -> None:
        """Made by `begin`."""
        self.place, self.slot = place, slot
        self._kind, self._name, self._digest, self._preview, self._count = kind, name, digest, preview, count
        self._open = True

    def commit(
        self,
        answer: bytes,
        *,
        usage: Usage | None = None,
        money: Decimal | None = None,
        request: str = "",
        blobs: Blobs = (),
    ) -> None:
        """Record the answer; durable when it returns (in a pipelined run: queued in order).

        `request` says what was asked, `blobs` are its parts.
        """
        called = Called(kind=self._kind, branch=self.place.asker.path, usage=usage, money=money, request=request)
        if self._end():
            try:
                self.place.session.drive(self._commit(called, answer, blobs))
            except BaseException as error:
                raise stop(self.place, error) from error.__cause__
            finally:
                self._ended()

    async def commit_async(
        self,
        answer: bytes,
        *,
        usage: Usage | None = None,
        money: Decimal | None = None,
        request: str = "",
        blobs: Blobs = (),
    ) -> None:
        """The same in this task. A cancellation that arrives meanwhile is raised when it is recorded."""
        called = Called(kind=self._kind, branch=self.place.asker.path, usage=usage, money=money, request=request)
        if self._end():
            try:
                await self.place.session.drive_async(self._commit(called, answer, blobs))
            except BaseException as error:
                raise stop(self.place, error) from error.__cause__
            finally:
                self._ended()

    def fail(self, answer: bytes) -> None:
        """Note an attempt that failed, durable no later than whatever is recorded next, and free the slot."""
        if not self._end():
            return
        place = self.place
        if not place.plain:
            session, calls = place.session, calls_of(place.session)
            with calls.lock:
                count = calls.tries[self.slot] = calls.tries.get(self.slot, self._tries()) + 1
            value, blobs = _packed(session, Called(kind=self._kind, branch=place.asker.path), answer)
            slot = try_slot(self.slot, count - 1)
            session.report(Draft(EntryKind.MARK, slot, self._digest, self._preview, value, 0.0), blobs)
        self._free()

    def give_back(self) -> None:
        """Nothing came of it: the next call like this one takes its place."""
        if self._end():
            self._free()

    def _tries(self) -> int:
        return self.place.session.state.replay.count_tries(self.slot)

    def _end(self) -> bool:
        was, self._open = self._open, False
        return was

    def _ended(self) -> None:
        calls = calls_of(self.place.session)
        with calls.lock:
            self.place.session.calling -= 1

    def _free(self) -> None:
        calls = calls_of(self.place.session)
        with calls.lock:
            self.place.session.calling -= 1
            calls.taken.get((self.place.path, self._name), set()).discard(self._count)

    def _commit(self, called: Called, answer: bytes, blobs: Blobs) -> Flow[None]:
        session = self.place.session
        if self.place.plain:
            spent = spent_of(called)
            if spent.tokens or spent.money:
                budgets.report(session, spent)
            return
        calls = calls_of(session)
        value, spilled = _packed(session, called, answer)
        fresh = tuple((name, content) for name, content in (*blobs, *spilled) if name not in calls.stored)
        yield Record(Draft(EntryKind.STEP, self.slot, self._digest, self._preview, value, 0.0), fresh)
        calls.stored.update(name for name, _ in fresh)
        calls.ids.update(_IDS.findall(answer))
        budgets.count(session, spent_of(called))


def _packed(session: Session, called: Called, answer: bytes) -> tuple[bytes, Blobs]:
    """The entry's value; a long answer goes into a blob, so that what the call cost stays in the entry."""
    if len(answer) <= session.state.inline_bytes:
        return pack(called, answer), ()
    name = blob_hash(answer)
    return pack(replace(called, answer=name.hex()), b""), ((name, answer),)


def read_call(entry: Entry) -> Flow[Recorded]:
    """What an entry holds."""
    called, answer = unpack(entry.value, entry.slot)
    if called.answer:
        answer = yield from ask(ReadBlob(bytes.fromhex(called.answer)))
    return Recorded(answer, called)


Found: TypeAlias = "Recorded | Failed | Slot"
"""What `begin` gives."""


def begin(place: Place, *, kind: str, name: str, fingerprint: bytes, preview: str, tries: bool = False) -> Found:
    """What is recorded of this call, or a slot to fill; with `tries` also attempts that failed before.

    Raises what has stopped the run; Diverged (as a Halt, which is kept) where the run has left its recorded path.
    """
    try:
        return place.session.drive(_begin(place, kind, name, fingerprint, preview, tries))
    except BaseException as error:
        raise stop(place, error) from error.__cause__


async def begin_async(
    place: Place, *, kind: str, name: str, fingerprint: bytes, preview: str, tries: bool = False
) -> Found:
    """The same in this task."""
    try:
        return await place.session.drive_async(_begin(place, kind, name, fingerprint, preview, tries))
    except BaseException as error:
        raise stop(place, error) from error.__cause__


def _begin(place: Place, kind: str, name: str, fingerprint: bytes, preview: str, tries: bool) -> Flow[Found]:
    refuse_if_stopped(place)
    session, calls = place.session, calls_of(place.session)
    digest = short_digest(b"\0".join((kind.encode(), name.encode(), fingerprint)))
    named = f"{CALL}{in_slot(name)}:{digest.hex()}"
    if place.plain:
        with calls.lock:
            session.calling += 1
        return Slot(place, kind, "", digest, preview, -1, "")
    replay = session.state.replay
    with calls.lock:
        session.moves += 1
        session.threads.add(threading.current_thread())
        count, slot = calls.take(place.path, named)
        failed = replay.next_try(slot) if tries else None
        entry = replay.take_beside(slot) if failed is None else None
        session.calling += failed is None and entry is None
    call = Slot(place, kind, named, digest, preview, count, slot)
    if failed is not None:
        with calls.lock:
            calls.taken[place.path, named].discard(count)
        return Failed((yield from read_call(failed)).answer)
    if entry is not None:
        return (yield from read_call(entry))
    try:
        _refuse_decided(place)
        if replay.lags(place.branch):
            yield from catch_up(session, place.branch)
            refuse_if_stopped(place)
        replay.may_call(place.branch, f"call {slot}({preview})")
        session.begin(Begun.CALL)
    except BaseException:
        call.give_back()
        raise
    return call


def _refuse_decided(place: Place) -> None:
    """Where a recorded choice ended this branch, it ends at the first thing that is not recorded."""
    if place.session.decided.get(place.asker.path):
        import asyncio

        raise asyncio.CancelledError("a recorded choice ended this branch here")


def record(place: Place, *, kind: str, name: str, fingerprint: bytes, preview: str, body: Callable[[], bytes]) -> bytes:
    """The recorded answer, or what `body` gives, durable when it returns. What `body` raises leaves no record.

    Inside `body` other calls are plain. A crash inside leaves nothing, and the body runs again.
    """
    found = begin(place, kind=kind, name=name, fingerprint=fingerprint, preview=preview)
    if not isinstance(found, Slot):
        return found.answer
    token = current.set(place.session.step_scope)
    try:
        answer = body()
    except BaseException:
        found.give_back()
        raise
    finally:
        current.reset(token)
    found.commit(answer)
    return answer


async def record_async(
    place: Place, *, kind: str, name: str, fingerprint: bytes, preview: str, body: Callable[[], Awaitable[bytes]]
) -> bytes:
    """The same in this task."""
    found = await begin_async(place, kind=kind, name=name, fingerprint=fingerprint, preview=preview)
    if not isinstance(found, Slot):
        return found.answer
    token = current.set(place.session.step_scope)
    try:
        answer = await body()
    except BaseException:
        found.give_back()
        raise
    finally:
        current.reset(token)
    await found.commit_async(answer)
    return answer


def knows(place: Place, id: str) -> bool:
    """True if this id stands in an answer that the run has recorded, so that it is the same on every replay."""
    session, calls = place.session, calls_of(place.session)
    if id.encode() not in calls.ids and not calls.has_read_ids:
        read = session.engine.store.read_run(session.state.run_id)
        for entry in read[1] if read is not None else ():
            if entry.kind == EntryKind.STEP and is_call(entry.slot):
                calls.ids.update(_IDS.findall(session.drive(read_call(entry)).answer))
        calls.has_read_ids = True
    return id.encode() in calls.ids
