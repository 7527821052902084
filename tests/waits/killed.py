"""Processes that send and read messages, and are killed right before or after their n-th commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import surefoot
from surefoot import Surefoot, step, workflow
from surefoot.core.view import Answer, Write
from surefoot.stores.postgres import store as store  # imported once, before the forks

Say = Callable[[str], None]


@step
def note(value: Any) -> Any:
    return value


@workflow
def listener() -> list[Any]:
    told = [note(surefoot.wait_for("go"))]
    told += surefoot.gather(lambda: surefoot.wait_for("go"), lambda: note("beside"))
    try:
        surefoot.wait_for("never", within=0.01)
    except TimeoutError:
        told.append(note("in vain"))
    return [*told, surefoot.wait_for("go")]


RESULT = [1, 2, "beside", "in vain", 3]


def arm(say: Say, sf: Surefoot, number: int, when: str) -> None:
    """Die by SIGKILL before or after the `number`-th commit of this process."""
    transact, counted = sf.store.transact, [0]

    def armed(writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        counted[0] += 1
        if counted[0] == number and when == "before":
            say(f"dies before commit {number} of {[type(write).__name__ for write in writes]}")
            os.kill(os.getpid(), signal.SIGKILL)
        answers = transact(writes, again=again)
        if counted[0] == number:
            say(f"dies after commit {number} of {[type(write).__name__ for write in writes]}")
            os.kill(os.getpid(), signal.SIGKILL)
        return answers

    sf.store.transact = armed  # type: ignore[method-assign]


def run(say: Say, url: str, number: int, when: str) -> None:
    """Read all messages of the run, which were sent before."""
    sf = Surefoot(url)
    arm(say, sf, number, when)
    say(f"result {sf.run(listener, id='r')}")


def send(say: Say, url: str, number: int, when: str) -> None:
    """Send three messages, each under an id."""
    sf = Surefoot(url)
    sf.engine.time()  # the clock of a new store is kept in a commit of its own
    arm(say, sf, number, when)
    for value in (1, 2, 3):
        sf.signal("r", "go", value, message=f"m{value}")
    say("sent")
