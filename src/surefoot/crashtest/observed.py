"""What one row saw: lives, requests, and the ledger. Nothing here judges."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import dataclass, field

from ..testing.ledger import Line, performed
from .boundary import Arrival
from .plan import Struck
from .rows import Row


@dataclass(frozen=True, kw_only=True)
class Life:
    """One start of the command. `exit_code` is minus the signal's number; `killed` says that it was our kill."""

    number: int
    command: str
    exit_code: int
    started: float
    ended: float
    killed: bool = False
    hung: bool = False
    words: str = ""

    @property
    def seconds(self) -> float:
        """How long it lived."""
        return self.ended - self.started

    @property
    def proved(self) -> bool:
        """Our kill, and the exit signal that proves it."""
        return self.killed and self.exit_code == -signal.SIGKILL


@dataclass(kw_only=True)
class Observed:
    """One row as it happened. `answer_right` is None where nothing judges it; `status` is what its command said.

    `checked` says that the check command said no. `missed` are the lives that had ended before our kill.
    """

    row: Row
    lives: list[Life] = field(default_factory=list[Life])
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    lines: list[Line] = field(default_factory=list[Line])
    struck: list[Struck] = field(default_factory=list[Struck])
    answer_right: bool | None = None
    answer_words: str = ""
    checked: bool = False
    status: str | None = None
    still_running: bool = False
    strays: int = 0
    left_children: int = 0
    paused: bool = False
    overlapped: bool = False
    unmatched: list[str] = field(default_factory=list[str])
    unrouted: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    foreign: list[str] = field(default_factory=list[str])
    recorded: bool = False
    attempts: int = 1
    missed: frozenset[int] = frozenset()
    asks_exit: frozenset[int] = frozenset()

    @property
    def performed(self) -> Counter[str]:
        """How often each effect was performed."""
        return performed(self.lines)

    @property
    def contents(self) -> dict[str, list[str]]:
        """The contents under which each effect was performed, sorted."""
        found: dict[str, list[str]] = {}
        for line in self.lines:
            if line.what == "performed":
                found.setdefault(line.name, []).append(line.body)
        return {name: sorted(bodies) for name, bodies in found.items()}

    @property
    def model_calls(self) -> int:
        """Requests to models that were answered with success."""
        return sum(a.is_model and 200 <= a.answered < 300 for a in self.arrivals)

    @property
    def tokens(self) -> int:
        """What they cost."""
        return sum(a.tokens for a in self.arrivals)

    @property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return max((life.ended for life in self.lives), default=0.0) - min(
            (life.started for life in self.lives), default=0.0
        )

    @property
    def recover_seconds(self) -> float:
        """From the first deed to the end; 0 where nothing was done."""
        if not self.struck or not self.lives:
            return 0.0
        return max(0.0, max(life.ended for life in self.lives) - self.struck[0].at)
