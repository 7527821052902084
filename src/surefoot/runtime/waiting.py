"""Waiting for a time, a message, another run. What is waited for stands in the store, so nothing here must live.

A run that a worker took gives itself back while it waits: no thread, task, lease or connection is held, and whoever
is there when the time comes, or the message, replays it. A run that its caller holds (`sf.run`) waits where it is
while it waits for timers alone, and in the store like any other as soon as it waits for a message, so that a person can
see it and answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.errors import LeaseLost, StoreError, Suspend, UsageError
from ..core.flows import Begun
from ..core.ids import branch_of, check_name
from ..core.journal import Branch, EntryKind
from ..core.mail import Mail, unread
from ..core.run import Waits
from .lease_clock import TellsTime
from .scope import current, require
from .session import Session
from .spans import instant

T = TypeVar("T")
POLL_SECONDS = 0.25
LOOK_SECONDS = 2.0
"""How often a run that sleeps where it is looks whether it was cancelled, or taken over."""
PATIENCE_SECONDS = 1.0
"""A timer that is due sooner is waited for in place: giving the run back and replaying it costs more."""


class Heard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the journal keeps of a wait for a message: its number and value, or that the time was over first."""

    number: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")
    who: str = ""
    at: float = 0.0


def place_of(branch: Branch, wait: Waits) -> tuple[str, str]:
    """Where this is waited for: two branches may wait for one name."""
    return branch.path, f"{wait.kind}:{wait.name}"


def pause(
    session: Session, branch: Branch, wait: Waits, look: Callable[[], T | None], read: Callable[[], None] | None = None
) -> T:
    """On this thread: what `look` finds, asked again until it finds something; the run may suspend instead.

    `read` fetches what `look` looks at, where that takes a while.
    """
    place = place_of(branch, wait)
    while True:
        if read is not None:
            read()
        if (found := look()) is not None:
            break
        left = _prepare(session, branch, wait)
        if gives_back(session, wait, left):
            raise session.stop(Suspend(session.remarks.get(place) or reason_of(wait)), branch)
        session.engine.clock.sleep(_nap(session, left))
        if left > LOOK_SECONDS:
            _look_around(session, branch)
    session.waits.pop(place, None)
    return found


async def pause_async(
    session: Session, branch: Branch, wait: Waits, look: Callable[[], T | None], read: Callable[[], None] | None = None
) -> T:
    """In this task: the same. The run suspends when no other branch of it moves."""
    from .tasks import stand_still

    place = place_of(branch, wait)
    try:
        while True:
            if read is not None:
                await off_loop(session.engine, read)
            if (found := look()) is not None:
                break
            _end_if_decided(session, branch)
            left = _prepare(session, branch, wait)
            if gives_back(session, wait, left):
                reason = session.remarks.get(place) or reason_of(wait)
                await stand_still(session, reason, seconds=min(left, POLL_SECONDS))
            else:
                await _rest(session, branch, left)
    except BaseException:
        if not isinstance(session.stopped, Suspend):
            session.waits.pop(place, None)
        raise
    session.waits.pop(place, None)
    return found


def _prepare(session: Session, branch: Branch, wait: Waits) -> float:
    """Before waiting: may this run still wait? How long at most, in seconds."""
    session.check_stop()
    if session.stopped is not None:
        raise session.stopped
    try:
        session.state.begin(Begun.WAIT)
    except BaseException as stopped:
        raise session.stop(stopped, branch) from None
    place = place_of(branch, wait)
    remark = session.remarks.get(place)
    session.waits[place] = wait if remark is None else replace(wait, detail=remark)
    return max(wait.until - session.engine.time(), 0.0) if wait.until else math.inf


def _end_if_decided(session: Session, branch: Branch) -> None:
    """On replay, where a recorded choice ended this branch or block, nothing is waited for any more."""
    if session.decided.get(branch.path):
        import asyncio

        raise asyncio.CancelledError("a recorded choice ended this branch here")


async def _rest(session: Session, branch: Branch, seconds: float) -> None:
    """Sleep where it is, for a while: a run that waits for a message by then is given back."""
    session.active += 1  # a branch that sleeps is not one that stands still
    try:
        await session.engine.clock.sleep_async(_nap(session, seconds))
    finally:
        session.active -= 1
    if seconds > LOOK_SECONDS:
        await off_loop(session.engine, lambda: _look_around(session, branch))


def _nap(session: Session, seconds: float) -> float:
    """How long to sleep before looking again: no longer than the run's budget of wall time either."""
    meter = session.meter
    over = max(meter.until - session.engine.time(), 0.001) if meter is not None and meter.until else seconds
    return min(seconds, LOOK_SECONDS, over)


def _look_around(session: Session, branch: Branch) -> None:
    """A run that sleeps where it is learns here that it was cancelled or taken over, since it writes nothing."""
    try:
        run = session.engine.store.find_run(session.state.run_id)
    except StoreError:
        return  # it is asked again soon; sleeping needs no store
    if run is None or run.fence != session.state.fence:
        raise session.stop(LeaseLost("another owner has this run now"), branch)
    if run.cancel_at:
        session.cancelled = run.reason or "cancelled"


async def off_loop(engine: Any, read: Callable[[], T]) -> T:
    """What `read` returns; a store that is reached over a network is read on another thread, not on the loop."""
    if not isinstance(engine.store, TellsTime):
        return read()
    import asyncio

    return await asyncio.to_thread(read)


def gives_back(session: Session, wait: Waits, left: float) -> bool:
    """True if the run is given back for this wait, rather than waited for where it is."""
    if wait.kind != "timer":
        return True
    return left > PATIENCE_SECONDS and (session.patient or session.rides or waits_for_others(session))


def waits_for_others(session: Session) -> bool:
    """True if a branch waits for a message or another run: what only the store can tell."""
    return any(wait.kind not in ("timer", "doubt") for wait in list(session.waits.values()))


def reason_of(wait: Waits) -> str:
    """What a run waits for, in words."""
    match wait.kind:
        case "timer":
            return f"its timer, due at {instant(wait.until)}"
        case "signal":
            return f"signal {wait.name!r}" + (f", until {instant(wait.until)}" if wait.until else "")
        case "approval":
            return f"{wait.name.replace(':', ' ')} by {wait.who}: {wait.detail}"
        case _:
            return wait.detail or f"{wait.kind} {wait.name!r}"


# --- messages ---------------------------------------------------------------------------------------------------


class Contest:
    """Waits among which `surefoot.first` decides: of several that find a message, only one reads it."""

    def __init__(self) -> None:
        """`winner`: the branch that has read a message, or was chosen."""
        self.winner: int | None = None


class Ear:
    """One wait's look into its run's mail, for the oldest unread message of its name that fits."""

    def __init__(self, session: Session, branch: Branch, wait: Waits, misfit: Callable[[Mail], str]) -> None:
        """`misfit` says why a message cannot be read here, or ""."""
        self._session, self._branch, self._wait, self._misfit = session, branch, wait, misfit
        self._mail: list[Mail] = []

    def read(self) -> None:
        """Fetch the mail."""
        self._mail = self._session.engine.store.board.read_mail(self._session.state.run_id)

    def look(self) -> Heard | None:
        """The message, which no other wait reads any more; an empty Heard when time is over; None if there is none."""
        session, place = self._session, place_of(self._branch, self._wait)
        contest, index = session.contests.get(self._branch.path, (None, 0))
        with session.reading:
            session.looked[place] = len(self._mail)
            if contest is not None and contest.winner not in (None, index):
                return None
            found = self._find(unread(self._mail, self._wait.name, read_numbers(session)), place)
            if found is not None:
                session.heard.add(found.number)
                if contest is not None:
                    contest.winner = index
                return heard_of(found)
        return Heard() if self._wait.until and session.engine.time() >= self._wait.until else None

    def _find(self, mail: list[Mail], place: tuple[str, str]) -> Mail | None:
        """The first that fits. One that does not stays unread, for code that can read it, and the run says so."""
        for message in mail:
            why = self._misfit(message)
            if not why:
                return message
            if place not in self._session.remarks:
                remark = f"signal {self._wait.name!r}; message {message.id!r} does not fit: {why}"
                self._session.remarks[place] = remark
                _warn(self._session.state.run_id, remark)
        return None


def look_for(session: Session, wait: Waits, name: str) -> Callable[[], Heard | None]:
    """A look into the run's mail for this name, in the branch of the caller; it reads whenever it looks."""
    _, branch = require("a wait for a message")
    ear = Ear(session, branch, replace(wait, name=name), _fits)

    def look() -> Heard | None:
        ear.read()
        return ear.look()

    return look


def _warn(run_id: str, remark: str) -> None:
    import logging

    logging.getLogger("surefoot").warning("run %r still waits for %s", run_id, remark)


def read_numbers(session: Session) -> set[int]:
    """The messages that this run has read, also in places that its replay has yet to reach."""
    return session.heard | {number for _, number in _ahead(session)}


def _ahead(session: Session) -> list[tuple[str, int]]:
    """(branch, number) of the recorded messages that the replay has yet to reach."""
    return [
        (branch_of(entry.slot), msgspec.json.decode(entry.value, type=Heard).number)
        for entry in session.state.replay.unread()
        if entry.kind == EntryKind.MARK and is_message_slot(entry.slot)
    ]


def has_read(session: Session, path: str) -> bool:
    """True if this branch has a recorded message that its replay has yet to reach."""
    return any(branch == path and number for branch, number in _ahead(session))


def is_message_slot(slot: str) -> bool:
    """True if the journal keeps a message there."""
    return slot.rpartition("/")[2].startswith(("signal:", "approval:"))


def heard_of(mail: Mail) -> Heard:
    """What is kept of a message."""
    return Heard(number=mail.number, value=msgspec.Raw(mail.value), who=mail.who, at=mail.at)


def _fits(_: Mail) -> str:
    return ""


def hear(
    session: Session,
    branch: Branch,
    slot: str,
    wait: Waits,
    record: Callable[[Heard | None], Heard],
    misfit: Callable[[Mail], str] = _fits,
) -> Heard:
    """On this thread: the message that is recorded at this slot, or the next of its name, recorded now."""
    if session.state.replay.is_recorded(branch, slot):
        return _known(session, record)
    _check_flow(session, branch, wait)
    ear = Ear(session, branch, wait, misfit)
    return record(pause(session, branch, wait, ear.look, ear.read))


async def hear_async(
    session: Session,
    slot: str,
    wait: Waits,
    record: Callable[[Heard | None], Heard],
    misfit: Callable[[Mail], str] = _fits,
) -> Heard:
    """The same in this task, and in its branch: two tasks may wait for one name side by side."""
    _, branch = require("a wait for a message")
    if session.state.replay.is_recorded(branch, slot):
        return _known(session, record)
    session.check_decided(branch, (slot,))
    _check_flow(session, branch, wait)
    ear = Ear(session, branch, wait, misfit)
    return record(await pause_async(session, branch, wait, ear.look, ear.read))


def _known(session: Session, record: Callable[[Heard | None], Heard]) -> Heard:
    known = record(None)
    session.heard.add(known.number)
    return known


def _check_flow(session: Session, branch: Branch, wait: Waits) -> None:
    """Code that changed must not wait for a message that nobody will send: what is recorded comes first."""
    try:
        session.state.replay.may_wait(branch, reason_of(wait))
    except BaseException as error:
        raise session.stop(error, branch) from None


def check_message_name(name: object, what: str) -> str:
    """A signal's name: printable, and none of the names that Surefoot uses itself."""
    text = check_name(name, what)
    if text.startswith(("approval:", "child:")):
        raise UsageError(f"{what} {text!r} begins like one of Surefoot's own messages; choose another name")
    return text


def refuse_in_workflow(what: str) -> None:
    """A replay would send it again, as another message."""
    scope = current.get()
    if scope is not None and scope.branch is not None:
        raise UsageError(f"{what} was called in a workflow, where a replay would repeat it; call it inside a step")
