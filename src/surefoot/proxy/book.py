"""A run's calls as one attempt of the agent after another asks for them: what is recorded, under way, or not yet made.

Slot = scope + name (which holds the fingerprint of the request) + occurrence. Occurrences are counted in each attempt,
so an agent that begins again finds its calls from the first on, and two agents that ask for the same thing at once
find the same call under way. Pure: what is made and stored comes from outside.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..core.ids import branch_of, slot_of

FLIGHT = TypeVar("FLIGHT")


@dataclass(frozen=True)
class Recorded:
    """What the journal holds at a slot: a result, or a failed try of the call there."""

    seq: int
    slot: str
    stored: bytes
    preview: str = ""


@dataclass(frozen=True)
class Miss:
    """Nobody has made this call: make it."""

    slot: str


@dataclass(frozen=True)
class Behind:
    """This call is not recorded, and `unread` of its scope are, which this attempt has not asked for."""

    slot: str
    unread: tuple[Recorded, ...]


@dataclass
class Attempt:
    """One start of the agent, by the name that it is told apart by."""

    name: str
    taken: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Occurrences of each call (scope and name) that it has the result of, or waits for."""
    read: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Slots of each scope that it has read."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """How many failed tries of each slot it was told."""
    diverged: str = ""
    """What stopped it; it is told the same from then on."""


class Book(Generic[FLIGHT]):
    """The calls of one run, in this process."""

    def __init__(self, recorded: Iterable[Recorded], failed: Iterable[Recorded], *, skips: bool = False) -> None:
        """`failed` name the slot of the call that failed. `skips`: an attempt may leave recorded calls unread."""
        self.skips = skips
        self.attempts: dict[str, Attempt] = {}
        self.flights: dict[str, FLIGHT] = {}
        self.length = 0
        self._results: dict[str, Recorded] = {}
        self._failed: dict[str, list[Recorded]] = {}
        self._places: list[int] = []
        self._in_scope: dict[str, dict[str, Recorded]] = {}
        for each in recorded:
            self.add_result(each)
        for each in failed:
            self.add_failure(each)

    @property
    def results(self) -> int:
        """How many calls are recorded."""
        return len(self._results)

    def tries(self, slot: str) -> int:
        """How many tries of a call have failed."""
        return len(self._failed.get(slot, ()))

    def attempt(self, name: str) -> Attempt:
        """The attempt of this name; one that was not seen before begins at the first call."""
        return self.attempts.setdefault(name, Attempt(name))

    def ask(self, attempt: Attempt, scope: str, name: str) -> Recorded | FLIGHT | Miss | Behind:
        """What stands where this attempt asks next; its occurrence is taken until it is given back."""
        key = slot_of(scope, name, 0)
        taken = attempt.taken.setdefault(key, set())
        occurrence = next(number for number in range(len(taken) + 1) if number not in taken)
        slot = slot_of(scope, name, occurrence)
        told, tries = attempt.failures.get(slot, 0), self._failed.get(slot, [])
        if told < len(tries) and self._is_acted_on(tries[told]):
            attempt.failures[slot] = told + 1
            return tries[told]
        found = self._results.get(slot) or self.flights.get(slot)
        if found is None and (unread := self._unread(attempt, scope)):
            return Behind(slot, unread)
        taken.add(occurrence)
        if isinstance(found, Recorded):
            self._mark_read(attempt, slot)
        return Miss(slot) if found is None else found

    def give_back(self, attempt: Attempt, slot: str, *, failed: bool) -> None:
        """The call gave no result: the next ask for the same gets the same slot. `failed`: this attempt was told so."""
        base, occurrence = _parted(slot)
        attempt.taken.get(base, set()).discard(occurrence)
        if failed:
            attempt.failures[slot] = len(self._failed.get(slot, []))

    def settle(self, attempt: Attempt, slot: str) -> None:
        """The call under way that this attempt waited for is recorded now."""
        self._mark_read(attempt, slot)

    def add_result(self, recorded: Recorded) -> None:
        """The journal has this result."""
        self._results[recorded.slot] = recorded
        insort(self._places, recorded.seq)
        self._in_scope.setdefault(branch_of(recorded.slot), {})[recorded.slot] = recorded
        self.length = max(self.length, recorded.seq + 1)

    def add_failure(self, recorded: Recorded) -> None:
        """The journal has this failed try."""
        self._failed.setdefault(recorded.slot, []).append(recorded)
        self.length = max(self.length, recorded.seq + 1)

    def _is_acted_on(self, failed: Recorded) -> bool:
        """True if the run went on to another call after this failure: so its agent saw it, and has to see it again."""
        later = bisect_right(self._places, failed.seq)
        if later == len(self._places):
            return False
        result = self._results.get(failed.slot)
        return result is None or self._places[later] != result.seq

    def _mark_read(self, attempt: Attempt, slot: str) -> None:
        attempt.read.setdefault(branch_of(slot), set()).add(slot)

    def _unread(self, attempt: Attempt, scope: str) -> tuple[Recorded, ...]:
        if self.skips:
            return ()
        recorded, read = self._in_scope.get(scope, {}), attempt.read.get(scope, set())
        if len(recorded) == len(read):
            return ()
        return tuple(each for slot, each in recorded.items() if slot not in read)


def _parted(slot: str) -> tuple[str, int]:
    base, sign, number = slot.rpartition("#")
    return (base, int(number)) if sign else (slot, 0)
