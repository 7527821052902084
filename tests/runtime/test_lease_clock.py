"""Lease time when the store has a clock of its own: an interval that holds the truth, however slow the answer was."""

from __future__ import annotations

import pytest

from surefoot.runtime.lease_clock import LeaseClock
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock


class Shared(MemoryStore):
    """A store whose clock is `ahead` of the wall, and whose answer takes `there` + `back` seconds."""

    def __init__(self, clock: FakeClock, *, ahead: float, there: float = 0.0, back: float = 0.0) -> None:
        super().__init__()
        self.clock, self.ahead, self.there, self.back = clock, ahead, there, back

    def truth(self) -> float:
        return self.clock.lease_now() + self.ahead

    def tell_time(self) -> float:
        self.clock.advance(self.there)
        told = self.truth()
        self.clock.advance(self.back)
        return told


def test_a_store_without_a_clock_leaves_leases_to_the_machines() -> None:
    clock = FakeClock()
    lease = LeaseClock(clock, MemoryStore())
    assert lease.earliest() == lease.latest() == clock.lease_now()


@pytest.mark.parametrize(("there", "back"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (2.0, 5.0)])
def test_the_truth_lies_between_earliest_and_latest_wherever_the_delay_was(there: float, back: float) -> None:
    clock = FakeClock()
    store = Shared(clock, ahead=12345.0, there=there, back=back)
    lease = LeaseClock(clock, store)
    for _ in range(3):
        assert lease.earliest() <= store.truth() <= lease.latest()
        assert lease.latest() - lease.earliest() == pytest.approx(there + back, abs=0.1)
        clock.advance(5.0)
    lease.measure()
    assert lease.earliest() <= store.truth() <= lease.latest()


def test_a_clock_that_drifts_stays_inside_until_it_is_measured_again() -> None:
    clock = FakeClock()
    store = Shared(clock, ahead=100.0)
    lease = LeaseClock(clock, store)
    lease.measure()
    for _ in range(100):
        clock.advance(1.0)
        store.ahead += 0.0005
        assert lease.earliest() <= store.truth() <= lease.latest()


def test_the_wall_clock_decides_nothing() -> None:
    clock = FakeClock()
    lease = LeaseClock(clock, Shared(clock, ahead=100.0))
    before = lease.earliest(), lease.latest()
    clock.shift_wall(-3600.0)
    assert (lease.earliest(), lease.latest()) == before


def test_a_wall_clock_that_is_far_off_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    store = Shared(clock, ahead=clock.now() - clock.lease_now())
    LeaseClock(clock, store).measure()
    assert caplog.text == ""
    lease = LeaseClock(clock, store)
    clock.shift_wall(-6.0)
    lease.measure()
    lease.measure()
    assert caplog.text.count("6 s behind the database's") == 1
