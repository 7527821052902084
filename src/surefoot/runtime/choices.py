"""Choices that depend on time or chance, recorded so that a replay makes them again: `now`, `random`, `uuid`, `sleep`,
`timeout`, `first`, `patched`.

`now`, `random` and `uuid` are queued in order and return at once: whatever is sent later waits for them (R2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import msgspec

from ..core import flows
from ..core.errors import UsageError
from ..core.ids import check_name
from .clock import random_number, random_uuid
from .scope import require
from .step import seconds_of

if TYPE_CHECKING:
    from .session import Session
    from .waits import Timeout

T = TypeVar("T")
_encode = msgspec.json.encode


def _mark(name: str, make: Callable[[], Any], kind: Any) -> Any:
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
    return _mark("now", lambda: datetime.fromtimestamp(session.engine.clock.now(), UTC), datetime)


def random() -> float:
    """A random float in [0, 1), drawn once and the same on every replay."""
    return _mark("random", random_number, float)


def uuid() -> UUID:
    """A random UUID, drawn once and the same on every replay."""
    return _mark("uuid", random_uuid, UUID)


class _Done:
    """Nothing left to wait for; `await` returns at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # pragma: no cover


def sleep(seconds: timedelta | float) -> Awaitable[None]:
    """Wait; the due time is recorded, so a crash does not start the wait anew.

    In a `def` workflow it blocks; in an `async def` workflow write `await surefoot.sleep(5)`.
    """
    length = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if not 0 <= length < float("inf"):
        raise UsageError(f"surefoot.sleep() needs a time of 0 or more seconds, found {seconds!r}")
    session, _ = require("surefoot.sleep()")
    due: float = _mark("sleep", lambda: session.engine.clock.now() + length, float)
    left = due - session.engine.clock.now()
    if session.asynchronous:
        return _sleep_async(session, max(left, 0.0))
    if left > 0:
        session.engine.clock.sleep(left)
        session.check_stop()
    return _Done()


async def _sleep_async(session: Session, seconds: float) -> None:
    session.active += 1  # a branch that sleeps is not one that stands still
    try:
        await session.engine.clock.sleep_async(seconds)
        session.check_stop()
    finally:
        session.active -= 1


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
            _mark(slot, lambda: True, bool)
        session.patches[branch.path, name] = decided
    return decided


def timeout(seconds: timedelta | float) -> Timeout:
    """`async with surefoot.timeout(5):` ends the block with TimeoutError; whether it fired is recorded."""
    length = seconds_of(seconds, "surefoot.timeout()")
    session, branch = require("surefoot.timeout()")
    if not session.asynchronous:
        raise UsageError("surefoot.timeout() is for async def workflows; in a def workflow use @step(timeout=...)")
    from .waits import Timeout

    return Timeout(session, branch, length or 0.0)


async def first(*branches: Awaitable[Any]) -> tuple[int, Any]:
    """Run all, return (index, result) of the one that finishes first, and cancel the others; the winner is recorded.

    An effect of a loser that was being sent is in doubt, and is settled before the run ends.
    """
    session, branch = require("surefoot.first()")
    if not branches:
        raise UsageError("surefoot.first() needs at least one awaitable")
    from .waits import first_of

    return await first_of(session, branch, branches)
