"""What must come out, in closed form: the mean and the standard deviation of each figure of one run."""

from __future__ import annotations

import math
import random
from itertools import product

from calls import STEPS, WRITES
from desk import TOKENS, Crash

GAP = 0.15
Moments = dict[str, tuple[float, float]]


def draw(seed: str, count: int) -> list[Crash]:
    """The crashes of a seed."""
    rng = random.Random(seed)
    return [_draw(rng) for _ in range(count)]


def _draw(rng: random.Random) -> Crash:
    step, chance, fraction = rng.randint(1, STEPS), rng.random(), rng.random()
    return Crash(step=step, gap=step in WRITES and chance < GAP, fraction=fraction)


def moments(arm: str) -> Moments:
    """Mean and standard deviation of one run's figures; a fraction that is uniform in 0..1 has the variance 1/12."""
    sums = {name: [0.0, 0.0] for name in ("redone", "tokens", "twice")}
    for step, gap in product(range(1, STEPS + 1), (False, True)):
        share = (GAP if gap else 1 - GAP) if step in WRITES else float(not gap)
        finished = step if gap else step - 1
        redone = {"restart": finished, "checkpoint": int(gap), "keys": int(gap)}.get(arm, 0)
        repeats = {"restart": any(w <= finished for w in WRITES), "checkpoint": gap}.get(arm, False)
        lost, spread = (0.0, 0.0) if gap else (0.5, 1 / 12)
        wasted = TOKENS * (redone + lost)
        for name, mean, variance in (
            ("redone", redone, 0.0),
            ("tokens", wasted, spread * TOKENS**2),
            ("twice", float(repeats), 0.0),
        ):
            sums[name][0] += share / STEPS * mean
            sums[name][1] += share / STEPS * (mean**2 + variance)
    return {name: (mean, math.sqrt(max(square - mean**2, 0.0))) for name, (mean, square) in sums.items()}
