"""A scheduler of the tests, in a forked process that may be killed: it looks, as a worker does, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from surefoot import Surefoot, workflow
from surefoot.runtime.schedules import fire_due
from surefoot.testing.clock import FakeClock

START = 1_800_000_000.0


@workflow
def tick(word: str) -> str:
    return word


def define(say: Callable[[str], None], db: str) -> None:
    """Every minute, all to be made up for; and every 90 seconds, in another queue."""
    with Surefoot(db, clock=FakeClock(START)) as sf:
        sf.schedule("minute", tick, "m", cron="* * * * *", catch_up="all")
        sf.schedule("slow", tick, "s", every=90, catch_up="all", queue="other")


def look(say: Callable[[str], None], db: str, until: float, seconds_per_look: float) -> None:
    """Look at the schedules, for each look a little later, until then."""
    clock = FakeClock(START)
    with Surefoot(db, clock=clock) as sf:
        now = max([START, *(s.fired_until for s in sf.store.board.find_schedules())])
        while True:
            say(f"look {now}")
            fire_due(sf.engine, now)
            if now >= until:
                break
            now = min(now + seconds_per_look, until)
            time.sleep(0.001)
        say("done")
