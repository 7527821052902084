"""Everything that a flow can ask of the world. A flow yields one of these and is sent the answer.

Every command is a yield, so every command is a place where a process can die, and nobody keeps a list of them:
`surefoot.testing.crash_at(n)` is a driver like the other two.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

import msgspec

from .effect import Effect, Evidence
from .journal import Draft, Entry
from .lease import Vantage
from .outcome import Answered
from .run import Run
from .writes import Answer, Blobs, Write

T = TypeVar("T")
R = TypeVar("R")


class Command(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Base; `T` is the type of the answer."""


class Now(Command[float], frozen=True):
    """The wall clock, in seconds since the epoch."""


class Time(Command[float], frozen=True):
    """The clock of timers, in seconds since the epoch: the store's own, or one that nobody can set."""


class Commit(Command[Answer], frozen=True):
    """Write durably; answers when it is on disk, with the verdict."""

    write: Write


class Look(Command[Vantage], frozen=True):
    """Time, lease clock and this process's standing; `suspect` is an owner whose presence is to be tested."""

    suspect: int = 0


class Record(Command[None], frozen=True):
    """Append an entry to the run's journal; durable when it answers if `wait` and the run is not pipelined.

    Order is kept either way: a later write of the run is durable only together with or after this one.
    """

    draft: Draft
    blobs: Blobs = ()
    wait: bool = True


class Execute(Command["Result"], frozen=True):
    """Run a step's body once."""

    call: Any
    attempt: int


class SendEffect(Command[Answered], frozen=True):
    """Run an effect's body once, if it may still begin: until `begin_until` (wall clock: the receiver's window), and
    until `lease_until` (lease clock, which nobody can set: this owner's own pauses).
    """

    call: Any
    effect: Effect
    begin_until: float
    lease_until: float


class AskReceiver(Command[Evidence], frozen=True):
    """Run an effect's lookup once; answers what it found."""

    call: Any
    effect: Effect


class Sleep(Command[None], frozen=True):
    """Let time pass."""

    seconds: float


class RenewLease(Command[None], frozen=True):
    """Make sure that this process's lease outlives `until` (wall clock); raises LeaseLost if it lapsed."""

    until: float


class ReadRun(Command[tuple[Run, list[Entry]] | None], frozen=True):
    """A run and its verified journal, in one query."""

    run_id: str


class ReadEffect(Command[Effect | None], frozen=True):
    """One effect by its key."""

    key: str


class ReadBlob(Command[bytes], frozen=True):
    """A large value by its hash."""

    hash: bytes


class Result(msgspec.Struct, frozen=True, gc=False):
    """How a step's body ended: `stored` is what the journal keeps, `value` what the workflow sees (or raises)."""

    ok: bool
    stored: bytes
    value: Any
    retryable: bool = True


Flow = Generator[Command[Any], Any, R]


def ask(command: Command[T]) -> Generator[Command[T], Any, T]:
    """Yield one command and give its answer the command's type."""
    return (yield command)
