"""Every probe, done to hand-written programs and to plain Surefoot."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from targets.bench import Bench
from targets.probing import OURS, PROBES, Arm, measure_row
from targets.results import Row

HAND = {"by hand: journal": "journal", "by hand: journal, keys": "keys", "by hand: journal, asks first": "asks"}


def measure(bench: Bench) -> Iterator[Row]:
    """Every probe, every form."""
    published, ours = bench.file("agent_published.py"), bench.file("agent_surefoot.py")
    arms = [Arm(name=name, command=(sys.executable, published, form)) for name, form in HAND.items()]
    arms.append(Arm(name=OURS, command=(sys.executable, ours)))
    for probe in PROBES:
        for arm in arms:
            if bench.wants(f"{arm.name}: {probe.row}"):
                yield measure_row(bench, probe, arm)
