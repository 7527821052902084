"""Each arm by one run of the tool."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

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


HELD = ("--row", "pause:before:shop POST /do/charge#1", "--pause", "4")
"""A row that the tool runs when it is asked for: no look-up can know of a request that is held for so long."""
WHY = (
    "the shop acted 4 s and a whole run after the request had arrived, and it had promised to show within 0.5 s what "
    "it accepts: two look-ups said no, so the other copy sent again. No protocol can know better; the lag is the "
    "receiver's to promise"
)


def measure(bench: Bench) -> Iterator[Row]:
    """Every kind of row for every arm."""
    for arm, (variant, ours) in ARMS.items():
        for options in (MORE, AFTERWARDS, HELD) if bench.wants(arm) else ():
            for row in crashtested.rows(bench, arm, variant=variant, ours=ours, options=options):
                explained = ours and options is HELD and not row.green
                yield msgspec.structs.replace(row, why=WHY) if explained else row
