"""Choices that depend on time or chance, recorded so that a replay makes them again: `now`, `random`, `uuid`, `sleep`,
`sleep_until`, `wait_for`, `timeout`, `first`, `patched`.

`now`, `random` and `uuid` are queued in order and return at once: whatever is sent later waits for them (R2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import msgspec

from ..core import flows
from ..core.errors import UsageError
from ..core.ids import check_name
from ..core.journal import Branch
from ..core.mail import Mail
from ..core.run import Waits
from ..core.values import Codec
from .clock import random_number, random_uuid
from .scope import require
from .spans import optional_span, span_of
from .waiting import Heard, check_message_name, hear, hear_async, pause, pause_async

if TYPE_CHECKING:
    from .session import Session
    from .waits import Timeout

T = TypeVar("T")
_encode = msgspec.json.encode


def mark(name: str, make: Callable[[], Any], kind: Any) -> Any:
    """What is recorded under this name here, or `make()`, queued to be recorded."""
    session, branch = require(f"surefoot.{name}()")
    if session.stopped is not None:
        raise session.stopped
    session.check_decided(branch, (name,))
    value: bytes | None = None
    if not session.state.replay.is_recorded(branch, name):
        value = _encode(make())
    try:
        recorded = session.drive(flows.mark(session.state, branch, name, value, wait=False))
    except BaseException as error:
        raise session.stop(error, branch) from None
    return msgspec.json.decode(cast("bytes", recorded), type=kind)


def now() -> datetime:
    """The time (UTC) at which this line first ran; the same on every replay."""
    session, _ = require("surefoot.now()")
    return mark("now", lambda: datetime.fromtimestamp(session.engine.clock.now(), UTC), datetime)


def random() -> float:
    """A random float in [0, 1), drawn once and the same on every replay."""
    return mark("random", random_number, float)


def uuid() -> UUID:
    """A random UUID, drawn once and the same on every replay."""
    return mark("uuid", random_uuid, UUID)


class _Done:
    """Nothing left to wait for; `await` returns at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # pragma: no cover


def sleep(seconds: timedelta | float) -> Awaitable[None]:
    """Wait; the due time is recorded, so a crash does not start the wait anew.

    In a `def` workflow it blocks; in an `async def` workflow write `await surefoot.sleep(5)`.
    """
    length = span_of(seconds, "surefoot.sleep(seconds)")
    session, branch = require("surefoot.sleep()")
    return _sleep_until(session, branch, mark("sleep", lambda: session.engine.due_after(length), float))


def _sleep_until(session: Session, branch: Branch, due: float) -> Awaitable[None]:
    slot = f"{branch.path}:{branch.counts.get('sleep', 0)}"
    wait = Waits(kind="timer", name=slot, until=due)

    def look() -> bool | None:
        return True if session.engine.time() >= due else None

    if session.asynchronous:
        return _sleep_async(session, branch, wait, look)
    pause(session, branch, wait, look)
    session.check_stop()
    return _Done()


async def _sleep_async(session: Session, branch: Branch, wait: Waits, look: Callable[[], bool | None]) -> None:
    await pause_async(session, branch, wait, look)
    session.check_stop()


def sleep_until(when: datetime) -> Awaitable[None]:
    """Wait until that instant, never less, by the store's clock; it is recorded, so a crash does not change it.

    `when` must say its time zone. In an `async def` workflow write `await surefoot.sleep_until(...)`.
    """
    if not isinstance(cast("Any", when), datetime) or when.tzinfo is None:
        raise UsageError(f"surefoot.sleep_until() needs a datetime with a time zone, found {when!r}")
    session, branch = require("surefoot.sleep_until()")
    return _sleep_until(session, branch, mark("sleep", when.timestamp, float))


def wait_for(name: str, type: Any = Any, *, within: timedelta | float | None = None) -> Any:
    """The next message of this name that was sent to this run with `sf.signal`; in `async def`, await it.

    Messages that came early are kept; each is read once, in the order sent. One that does not fit `type` stays unread,
    and the run says so while it waits on. After `within` (seconds) TimeoutError is raised, and recorded. The wait
    holds nothing: the run is given back, and taken again when the message arrives.
    """
    session, branch = require("surefoot.wait_for()")
    return _wait(session, branch, name, type, within, here=not session.asynchronous)


def wait_here(name: str, type: Any = Any, *, within: timedelta | float | None = None) -> Any:
    """`wait_for` on this thread, also in an `async def` workflow; suspends the run unless the message is there."""
    session, branch = require("surefoot.wait_for()")
    return _wait(session, branch, name, type, within, here=True)


def _wait(
    session: Session, branch: Branch, name: str, type: Any, within: timedelta | float | None, *, here: bool
) -> Any:
    check_message_name(name, "signal")
    length = optional_span(within, "surefoot.wait_for(within=)")
    codec = Codec(type, f"a message {name!r}")
    until = 0.0 if length is None else mark(f"within:{name}", lambda: session.engine.due_after(length), float)
    slot = f"signal:{name}"
    wait = Waits(kind="signal", name=name, until=until)

    def record(heard: Heard | None) -> Heard:
        return mark(slot, lambda: heard, Heard)

    def misfit(mail: Mail) -> str:
        try:
            codec.read(mail.value)
        except UsageError as error:
            return str(error)
        return ""

    def value(heard: Heard) -> Any:
        if not heard.number:
            raise TimeoutError(f"no signal {name!r} came in time" + (f", within {length:g} s" if length else ""))
        return codec.read(bytes(heard.value))

    if here:
        return value(hear(session, branch, slot, wait, record, misfit))
    return _heard(lambda: hear_async(session, slot, wait, record, misfit), value)


async def _heard(hearing: Callable[[], Awaitable[Heard]], value: Callable[[Heard], Any]) -> Any:
    return value(await hearing())


def is_bare_wait(awaitable: Any) -> bool:
    """True for what `wait_for` gives in an `async def` workflow: it does nothing but wait."""
    return getattr(awaitable, "cr_code", None) is _heard.__code__


def patched(name: str) -> bool:
    """True for runs that reach this line for the first time, False for those that passed it under the old code.

    Put changed flow behind it: `if patched("ask-twice"): ...new... else: ...old...`. The answer is the same on every
    replay of a run.
    """
    session, branch = require("surefoot.patched()")
    decided = session.patches.get((branch.path, name))
    if decided is None:
        slot = f"patched:{check_name(name, 'patch name')}"
        replay = session.state.replay
        recorded = replay.is_recorded(branch, slot)
        decided = recorded or not replay.is_behind(branch)
        if decided:
            mark(slot, lambda: True, bool)
        session.patches[branch.path, name] = decided
    return decided


def timeout(seconds: timedelta | float) -> Timeout:
    """`async with surefoot.timeout(5):` ends the block with TimeoutError; whether it fired is recorded."""
    length = span_of(seconds, "surefoot.timeout(seconds)", least="more than 0")
    session, branch = require("surefoot.timeout()")
    if not session.asynchronous:
        raise UsageError("surefoot.timeout() is for async def workflows; in a def workflow use @step(timeout=...)")
    from .waits import Timeout

    return Timeout(session, branch, length)


def first(*branches: Awaitable[Any]) -> Coroutine[Any, Any, tuple[int, Any]]:
    """Run all, return (index, result) of the one that finishes first, and cancel the others; the winner is recorded.

    For `async def` workflows: await it. Children may stand among the branches; one that loses goes on. An effect of a
    loser that was being sent is in doubt, and is settled before the run ends.
    """
    session, _ = require("surefoot.first()")
    if not session.asynchronous:
        for branch in branches:
            getattr(branch, "close", bool)()
        raise UsageError(
            "surefoot.first() is for async def workflows; in a def workflow bound a wait with within=, or a step with "
            "@step(timeout=...)"
        )
    return _first(branches)


async def _first(branches: tuple[Awaitable[Any], ...]) -> tuple[int, Any]:
    session, branch = require("surefoot.first()")
    if not branches:
        raise UsageError("surefoot.first() needs at least one awaitable")
    from .waits import first_of

    return await first_of(session, branch, branches)
