"""A step that pays, and is killed before it returns."""

from __future__ import annotations

import time
from collections.abc import Callable

from surefoot import Budget, BudgetExceeded, Surefoot, spend, step, workflow

SAY: list[Callable[[str], object]] = [print]


@step
def pay() -> None:
    spend(tokens=10)
    sf = OPENED[0]
    while not any(entry.slot.startswith("spent:") and entry.slot not in SEEN for entry in sf.store.read_run("r")[1]):
        time.sleep(0.001)
    SAY[0]("spent")
    time.sleep(60)


@workflow
def work() -> None:
    pay()


OPENED: list[Surefoot] = []
SEEN: set[str] = set()


def run(say: Callable[[str], None], db: str) -> None:
    SAY[0] = say
    with Surefoot(db) as sf:
        OPENED.append(sf)
        read = sf.store.read_run("r")
        SEEN.update(entry.slot for entry in (read[1] if read else []))
        try:
            sf.run(work, id="r", budget=Budget(tokens=35))
        except BudgetExceeded as exceeded:
            say(f"exceeded {exceeded.limit} {exceeded.used}")
