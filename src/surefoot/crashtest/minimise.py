"""The smallest failing case: the plainest row that fails each time it is run alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .judge import Verdict
from .matrix import Result
from .rows import Row

SIMPLEST_FIRST = ("kill", "lose_reply", "500_after", "late", "replicas", "deploy", "twice", "pause")
WINDOWS = ("effect", "before", "read", "recorded", "")
TRIALS = 3


@dataclass(frozen=True, kw_only=True)
class Smallest:
    """The row, how often it failed of how many trials, and its verdict."""

    verdict: Verdict
    failed: int
    trials: int


def candidates(result: Result) -> list[Verdict]:
    """Failing rows, the plainest first."""
    numbers = {arrival.boundary: arrival.number for arrival in result.boundaries}

    def plainness(verdict: Verdict) -> tuple[int, int, int]:
        row = verdict.row
        return SIMPLEST_FIRST.index(row.kind), numbers.get(row.boundary, 0), WINDOWS.index(row.window)

    return sorted(result.failing, key=plainness)


def minimise(result: Result, run: Callable[[Row], Verdict], *, tries: int = 5) -> Smallest | None:
    """Run candidates alone until one fails each time; else the one that failed most often. None if nothing fails."""
    best: Smallest | None = None
    for verdict in candidates(result)[:tries]:
        again = [run(verdict.row) for _ in range(TRIALS)]
        failed = [each for each in again if each.fails and not each.fault]
        found = Smallest(verdict=failed[0] if failed else verdict, failed=len(failed), trials=TRIALS)
        if best is None or found.failed > best.failed:
            best = found
        if len(failed) == TRIALS:
            break
    return best
