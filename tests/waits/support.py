"""What the tests of waiting share: workers on threads, a fake clock that is common to processes, and what was read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from surefoot import Surefoot
from surefoot.core.dispatch import WAKE_NOW
from surefoot.core.run import Run, RunStatus
from surefoot.runtime.waiting import Heard, is_message_slot

GIVE_UP_SECONDS = 30.0


def until(fact: Callable[[], Any], what: str = "what was waited for") -> Any:
    """The first true value of `fact`; time only bounds how long a broken test takes."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while not (found := fact()):
        assert time.monotonic() < give_up, f"{what} never came true"
        time.sleep(0.005)
    return found


def waits(sf: Surefoot, run_id: str) -> Run | None:
    """The run, if nobody works on it and it waits."""
    run = sf.store.find_run(run_id)
    return run if run is not None and run.status is RunStatus.WAITING and run.wake_at != WAKE_NOW else None


def read_messages(sf: Surefoot, run_id: str) -> list[Any]:
    """The values that the run's journal says it has read, in recorded order; each number once, or the test fails."""
    read = sf.store.read_run(run_id)
    assert read is not None
    heard = [msgspec.json.decode(e.value, type=Heard) for e in read[1] if is_message_slot(e.slot)]
    numbers = [h.number for h in heard if h.number]
    assert len(numbers) == len(set(numbers)), f"a message was read twice: {numbers}"
    return [msgspec.json.decode(h.value) for h in heard if h.number]


@contextmanager
def closed_after(sf: Surefoot, seconds: float = GIVE_UP_SECONDS) -> Iterator[None]:
    """A run that would wait for ever ends with an error, so that a broken test fails and does not hang."""
    timer = threading.Timer(seconds, sf.close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def worker(url: str | Path, *workflows: Any, **options: Any) -> Iterator[Surefoot]:
    """A Surefoot whose worker takes the default queue: these workflows, or all that the test has made."""
    with Surefoot(url) as sf, sf.worker(workflows, **options):
        yield sf
