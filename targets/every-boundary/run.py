"""Each arm by one run of the tool."""

from __future__ import annotations

from collections.abc import Iterator

from targets import crashtested
from targets.bench import Bench
from targets.results import Row

ARMS = {
    "no persistence": ("published", False),
    "checkpoint per turn": ("checkpoint", False),
    "checkpoint + keys": ("keys", False),
    "Surefoot, key honoured": ("surefoot", True),
    "Surefoot, can only be asked": ("asked", True),
}
AFTERWARDS = ("--windows", "read,recorded", "--skip", "completions#4$")
"""After the last reply the agent ends by itself, sooner than a kill may arrive; so not there."""
MORE = (
    "--windows",
    "before,effect",
    "--lose-reply",
    "--late",
    "--500-after",
    "--twice",
    "--pause",
    "4",
    "--replicas",
    "2",
    "-j",
    "2",
)


FALSE = "Surefoot, asked, false promise"
PAUSED = ("--windows", "before", "--only", "shop", "--pause", "4", "-j", "2")


def measure(bench: Bench) -> Iterator[Row]:
    """Every kind of row for every arm."""
    for arm, (variant, ours) in ARMS.items():
        if bench.wants(arm):
            yield from crashtested.rows(bench, arm, variant=variant, ours=ours, options=MORE)
            yield from crashtested.rows(bench, arm, variant=variant, ours=ours, options=AFTERWARDS)
    if bench.wants(FALSE):
        yield from (
            row
            for row in crashtested.rows(bench, FALSE, variant="false_promise", ours=True, options=PAUSED)
            if row.fault == "pause"
        )
