"""What a row does to which request. The gateway asks for each arrival; the answer is one word.

A kill is armed by the boundary's name and counts in the first life only, so a request of a restarted agent that looks
the same is not killed again; `twice` arms one more, for the first request of the second life.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from .boundary import Arrival
from .rows import Row


class Deed(StrEnum):
    """What happens to one request."""

    SERVE = "serve"
    KILL_BEFORE = "before"
    KILL_EFFECT = "effect"
    KILL_READ = "read"
    KILL_RECORDED = "recorded"
    LOSE_REPLY = "lose_reply"
    LATE = "late"
    ERROR_AFTER = "500_after"
    PAUSE_BEFORE = "pause_before"
    PAUSE_EFFECT = "pause_effect"


@dataclass(frozen=True, kw_only=True)
class Struck:
    """One deed that was done: to which boundary, in which life, when."""

    deed: Deed
    boundary: str
    life: int
    at: float


class Plan:
    """One row's plan; several threads ask it."""

    def __init__(self, row: Row) -> None:
        """`paused` is set when the agent stands still, `resumed` when it may go on."""
        self.row = row
        self.paused, self.resumed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._struck: list[Struck] = []
        self._waiting: Arrival | None = None

    def ask(self, arrival: Arrival) -> Deed:
        """What happens to this request; asked once for each."""
        row = self.row
        with self._lock:
            if self._waiting is not None and arrival.life == self._waiting.life:
                arrival.struck = "killed as it arrived"
                self._waiting = None
                return Deed.KILL_BEFORE  # this is the next request that `recorded` waits for
            if row.kind == "twice" and arrival.life == 2 and not any(s.life == 2 for s in self._struck):
                return self._do(Deed.KILL_EFFECT, arrival)
            if not row.boundary or arrival.life != 1 or arrival.boundary != row.boundary:
                return Deed.SERVE
            if any(s.life == 1 for s in self._struck):
                return Deed.SERVE
            match row.kind:
                case "pause":
                    return self._do(Deed(f"pause_{row.window}"), arrival)
                case "lose_reply" | "late" | "500_after":
                    return self._do(Deed(row.kind), arrival)
                case _:
                    return self._do(Deed(row.window), arrival)

    def _do(self, deed: Deed, arrival: Arrival) -> Deed:
        self._struck.append(Struck(deed=deed, boundary=arrival.boundary, life=arrival.life, at=arrival.at))
        arrival.struck = deed
        return deed

    def wait_for_next(self, arrival: Arrival) -> None:
        """From now on the next request of this life is where it dies."""
        with self._lock:
            self._waiting = arrival

    def waits_for_next(self, arrival: Arrival) -> bool:
        """Whether that kill is still to be done."""
        with self._lock:
            return self._waiting is arrival

    def take_kill(self, arrival: Arrival) -> bool:
        """Whether the kill that waits for the next request is still to be done; True once only."""
        with self._lock:
            waited = self._waiting is arrival
            self._waiting = None
            return waited

    def struck(self) -> list[Struck]:
        """What was done so far."""
        with self._lock:
            return list(self._struck)
