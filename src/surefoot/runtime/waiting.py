"""Waiting for a time, a message, another run. What is waited for stands in the store, so nothing here must live.

A run that a worker took gives itself back while it waits: no thread, task, lease or connection is held, and whoever
is there when the time comes, or the message, replays it. A run that its caller holds (`sf.run`) waits for its timers
where it is, and for messages in the store like any other, so that a person can see and answer them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from ..core.errors import Suspend, UsageError
from ..core.flows import Begun
from ..core.ids import check_name
from ..core.mail import Mail, next_mail
from ..core.run import Waits
from .session import Session

T = TypeVar("T")
POLL_SECONDS = 0.25
PATIENCE_SECONDS = 1.0
"""A timer that is due sooner is waited for in place: giving the run back and replaying it costs more."""


class Heard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the journal keeps of a wait for a message: its number and value, or that the time was over first."""

    number: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")
    who: str = ""
    at: float = 0.0


def pause(session: Session, branch: Any, wait: Waits, look: Callable[[], T | None]) -> T:
    """On this thread: what `look` finds, asked again until it finds something; the run may suspend instead."""
    while (found := look()) is None:
        left = _left(session, wait)
        session.check_stop()
        _check_begin(session, branch)
        session.waits[wait.kind, wait.name] = wait
        if gives_back(session, wait, left):
            raise session.stop(Suspend(reason_of(wait)), branch)
        session.engine.clock.sleep(min(left, POLL_SECONDS) if wait.kind != "timer" else left)
    session.waits.pop((wait.kind, wait.name), None)
    return found


async def pause_async(session: Session, branch: Any, wait: Waits, look: Callable[[], T | None]) -> T:
    """In this task: the same. The run suspends when no other branch of it moves."""
    from .tasks import stand_still

    try:
        while (found := look()) is None:
            left = _left(session, wait)
            session.check_stop()
            _check_begin(session, branch)
            session.waits[wait.kind, wait.name] = wait
            if gives_back(session, wait, left):
                await stand_still(session, reason_of(wait), seconds=min(left, POLL_SECONDS))
            else:
                await _sleep(session, left)
    except BaseException:
        if not isinstance(session.stopped, Suspend):
            session.waits.pop((wait.kind, wait.name), None)
        raise
    session.waits.pop((wait.kind, wait.name), None)
    return found


async def _sleep(session: Session, seconds: float) -> None:
    session.active += 1  # a branch that sleeps is not one that stands still
    try:
        await session.engine.clock.sleep_async(seconds)
    finally:
        session.active -= 1


def gives_back(session: Session, wait: Waits, left: float) -> bool:
    """True if the run is given back for this wait, rather than waited for where it is."""
    return wait.kind != "timer" or (session.patient and left > PATIENCE_SECONDS)


def _left(session: Session, wait: Waits) -> float:
    return max(wait.until - session.engine.time(), 0.0) if wait.until else math.inf


def _check_begin(session: Session, branch: Any) -> None:
    try:
        session.state.begin(Begun.WAIT)
    except BaseException as stopped:
        raise session.stop(stopped, branch) from None


def reason_of(wait: Waits) -> str:
    """What a run waits for, in words."""
    match wait.kind:
        case "timer":
            return "its timer is not due yet"
        case "signal":
            return f"signal {wait.name!r}"
        case _:
            return wait.detail or f"{wait.kind} {wait.name!r}"


# --- messages ---------------------------------------------------------------------------------------------------


def read_numbers(session: Session) -> set[int]:
    """The messages that this run has read, also in places that its replay has yet to reach."""
    ahead = {
        msgspec.json.decode(entry.value, type=Heard).number
        for entry in session.state.replay.unread()
        if is_message_slot(entry.slot)
    }
    return session.heard | ahead


def is_message_slot(slot: str) -> bool:
    """True if the journal keeps a message there."""
    return slot.rpartition("/")[2].startswith(("signal:", "approval:"))


def look_for(session: Session, wait: Waits, name: str) -> Callable[[], Heard | None]:
    """A look into the run's mail for the oldest unread message of this name; an empty Heard when time is over."""

    def look() -> Heard | None:
        mail = session.engine.store.board.read_mail(session.state.run_id)
        session.looked[wait.kind, wait.name] = len(mail)
        found = next_mail(mail, name, read_numbers(session))
        if found is not None:
            session.heard.add(found.number)
            return heard_of(found)
        return Heard() if wait.until and session.engine.time() >= wait.until else None

    return look


def heard_of(mail: Mail) -> Heard:
    """What is kept of a message."""
    return Heard(number=mail.number, value=msgspec.Raw(mail.value), who=mail.who, at=mail.at)


def hear(
    session: Session, branch: Any, slot: str, wait: Waits, record: Callable[[Heard | None], Heard]
) -> Heard | Awaitable[Heard]:
    """The message that is recorded at this slot, or the next of its name, recorded now; a coroutine in `async def`."""
    if session.state.replay.is_recorded(branch, slot):
        known = record(None)
        session.heard.add(known.number)
        if session.asynchronous:
            return _at_once(known)
        return known
    look = look_for(session, wait, wait.name)
    if session.asynchronous:
        return _hear_async(session, branch, wait, look, record)
    return record(pause(session, branch, wait, look))


async def _at_once(heard: Heard) -> Heard:
    return heard


async def _hear_async(
    session: Session,
    branch: Any,
    wait: Waits,
    look: Callable[[], Heard | None],
    record: Callable[[Heard | None], Heard],
) -> Heard:
    return record(await pause_async(session, branch, wait, look))


def check_message_name(name: object, what: str) -> str:
    """A signal's name: printable, and none of the names that Surefoot uses itself."""
    text = check_name(name, what)
    if text.startswith(("approval:", "child:")):
        raise UsageError(f"{what} {text!r} begins like one of Surefoot's own messages; choose another name")
    return text
