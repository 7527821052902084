"""A waker calls on whoever waits for a run that may go on: not before, not for others, and again if a call is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.inside import Waker, attempt
from surefoot.inside.parked import leave_address
from surefoot.inside.waking import AGAIN_SECONDS
from surefoot.testing.clock import FakeClock
from tests.inside.support import decide, pays, sleeps


class Told:
    """Whom a waker has called on; the next calls fail if told so."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.failures = 0

    def __call__(self, run_id: str, address: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the engine is out")
        self.runs.append(f"{run_id} at {address['place']}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sf(tmp_path: Path, clock: FakeClock) -> Iterator[surefoot.Surefoot]:
    with surefoot.Surefoot("memory:", clock=clock) as opened:
        yield opened


def park(sf: surefoot.Surefoot, run: str, engine: str = "dbos") -> None:
    attempt(sf, pays, (run,), {}, run)
    leave_address(sf, run, engine, {"place": f"w-{run}"})


def test_nobody_is_told_before_somebody_decides(sf: surefoot.Surefoot) -> None:
    told = Told()
    waker = Waker(sf, "dbos", told)
    park(sf, "one")
    park(sf, "two")
    assert waker.look() == 0
    decide(sf, "two", "receipt:1")
    assert waker.look() == 1 and told.runs == ["two at w-two"]


def test_a_run_of_another_engine_is_left_alone(sf: surefoot.Surefoot) -> None:
    park(sf, "one", "temporal")
    decide(sf, "one", "receipt:1")
    assert Waker(sf, "dbos", Told()).look() == 0
    assert Waker(sf, "temporal", Told()).look() == 1


def test_a_run_without_an_address_is_left_alone(sf: surefoot.Surefoot) -> None:
    attempt(sf, pays, ("one",), {}, "one")
    decide(sf, "one", "receipt:1")
    assert Waker(sf, "dbos", Told()).look() == 0


def test_a_call_that_was_lost_is_made_again(sf: surefoot.Surefoot, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    waker = Waker(sf, "dbos", told)
    park(sf, "one")
    decide(sf, "one", "receipt:1")
    told.failures = 1
    with caplog.at_level(logging.WARNING, "surefoot"):
        assert waker.look() == 0 and "the engine is out" in caplog.text
    assert waker.look() == 1 and waker.look() == 0


def test_a_call_that_led_to_nothing_is_repeated_later(sf: surefoot.Surefoot, clock: FakeClock) -> None:
    told = Told()
    waker = Waker(sf, "dbos", told)
    park(sf, "one")
    decide(sf, "one", "receipt:1")
    assert waker.look() == 1 and waker.look() == 0
    clock.advance(AGAIN_SECONDS + 1)
    assert waker.look() == 1


def test_nobody_is_told_of_a_run_that_went_on(sf: surefoot.Surefoot, clock: FakeClock) -> None:
    told = Told()
    waker = Waker(sf, "dbos", told)
    park(sf, "one")
    decide(sf, "one", "receipt:1")
    attempt(sf, pays, ("one",), {}, "one")
    clock.advance(AGAIN_SECONDS + 1)
    assert waker.look() == 0


def test_a_timer_that_is_due_is_told(sf: surefoot.Surefoot, clock: FakeClock) -> None:
    told = Told()
    waker = Waker(sf, "dbos", told)
    attempt(sf, sleeps, (), {}, "rest")
    leave_address(sf, "rest", "dbos", {"place": "w"})
    assert waker.look() == 0
    clock.advance(3601)
    assert waker.look() == 1


def test_a_waker_looks_by_itself(sf: surefoot.Surefoot) -> None:
    heard = threading.Event()
    park(sf, "one")
    decide(sf, "one", "receipt:1")
    with Waker(sf, "dbos", lambda run_id, address: heard.set(), every=0.01):
        assert heard.wait(60)


def test_a_waker_needs_a_pause(sf: surefoot.Surefoot) -> None:
    with pytest.raises(surefoot.UsageError, match="every must be"):
        Waker(sf, "dbos", Told(), every=0)
