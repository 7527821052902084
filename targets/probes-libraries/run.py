"""Every probe that applies, done to each library and to plain Surefoot."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from targets.bench import Bench
from targets.layout import HERE
from targets.probing import OURS, PROBES, Arm, Probe, measure_row
from targets.results import Row

LIBRARIES = ("exactly-once", "agent-once", "airlock-sdk", "chowki", "durabl")
NO_APPROVAL = ("exactly-once", "agent-once", "durabl")
"""Libraries without a word for an approval."""
ONE_PROCESS = ("chowki", "durabl")
"""Libraries whose documentation says that two processes at one run are not supported."""
OUR_WORD = "effect renamed, formerly= said so; killed at the mail"


def measure(bench: Bench) -> Iterator[Row]:
    """Fault by fault."""
    place = {"PROBES": str(HERE / "probes")}
    command = (bench.python(), bench.file("agent_published.py"))
    arms = [Arm(name=name, command=(*command, name), place=lambda world: place) for name in LIBRARIES]
    arms.append(Arm(name=OURS, command=(sys.executable, bench.file("agent_surefoot.py"))))
    for probe in PROBES:
        for arm in arms:
            if bench.wants(f"{arm.name}: {probe.row}") and applies(probe, arm):
                yield measure_row(bench, probe, arm)


def applies(probe: Probe, arm: Arm) -> bool:
    """False for what a library does not claim to do."""
    if probe.row == OUR_WORD or (probe.rivals and arm.name in ONE_PROCESS):
        return False
    return "APPROVAL" not in probe.env or arm.name not in NO_APPROVAL
