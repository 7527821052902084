"""What a queue allows, counted from a ledger of begins and ends that the workers' processes wrote."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from surefoot.testing.ledger import Line
from tests.worker import fleet as code
from tests.worker.conftest import Fleet, until

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


def most_at_once(lines: list[Line], group: Callable[[Line], str]) -> Counter[str]:
    """How many of each group were under way at the same time, at most; lines are in the order they were written."""
    now, most = Counter[str](), Counter[str]()
    for line in lines:
        now[group(line)] += 1 if line.what == "begun" else -1
        most[group(line)] = max(most[group(line)], now[group(line)])
    return most


def test_the_limits_of_a_queue_hold_for_all_workers_together(fleet: Fleet) -> None:
    """Four at a time everywhere, two in one worker, one of a key; a step's begin and end lie inside its run."""
    fleet.sf.queue("mail", concurrency=4, per_worker=2, per_key=1)
    for n in range(40):
        key = f"k{n % 8}"
        fleet.sf.start(code.staying, f"{key} {n}", 0.02, id=f"r{n}", queue="mail", key=key)
    for _ in range(3):
        fleet.worker(("mail",), concurrency=8)
    fleet.until_ended(40)
    lines = fleet.lines()
    assert len(lines) == 80
    assert most_at_once(lines, lambda line: "all")["all"] <= 4
    assert max(most_at_once(lines, lambda line: line.body).values()) <= 2
    assert set(most_at_once(lines, lambda line: line.name.split()[0]).values()) == {1}


def test_without_limits_runs_are_under_way_together(small_fleet: Fleet) -> None:
    """So that the test above can fail."""
    for n in range(4):
        small_fleet.sf.start(code.held, f"{n}", id=f"{n}", queue="mail", key="same")
    small_fleet.worker(("mail",), concurrency=4)
    small_fleet.worker(("mail",), concurrency=4)
    until(lambda: small_fleet.count("begun").total() == 8, "all four to stand in their step")
    small_fleet.gate.touch()
    small_fleet.until_ended(4)
    assert most_at_once(small_fleet.lines(), lambda line: "all")["all"] == 4


def test_a_rate_holds_for_all_workers_together(fleet: Fleet) -> None:
    """Six starts in a second, told by the claims that the store holds: in no span of a second more than six."""
    fleet.sf.queue("mail", rate=(6, 1.0))
    for n in range(20):
        fleet.sf.start(code.short, f"{n}", id=f"{n}", queue="mail")
    for _ in range(3):
        fleet.worker(("mail",))
    fleet.until_ended(20)
    starts = sorted(run.claims[0].at for run in fleet.sf.store.find_runs())
    assert len(starts) == 20
    for n, at in enumerate(starts):
        assert sum(at <= other < at + 1.0 for other in starts[n:]) <= 6, starts


def test_higher_priority_is_taken_first_and_the_older_of_equals(small_fleet: Fleet) -> None:
    for n in range(12):
        small_fleet.sf.start(code.short, f"{n}", id=f"{n}", queue="default", priority=n % 3)
    small_fleet.worker(concurrency=1)
    small_fleet.until_ended(12)
    taken = [line.name for line in small_fleet.lines("begun")]
    assert taken == sorted(map(str, range(12)), key=lambda name: (-(int(name) % 3), int(name)))


def test_a_customer_with_500_runs_lets_others_have_their_turn(fleet: Fleet) -> None:
    """Fewer than a handful of the busy key's runs are done between those of another, with one run at a time."""
    for n in range(500):
        fleet.sf.start(code.short, f"busy {n}", id=f"busy {n}", queue="default", key="busy")
    for n in range(5):
        fleet.sf.start(code.short, f"quiet {n}", id=f"quiet {n}", queue="default", key="quiet")
    fleet.worker(concurrency=1)
    until(lambda: fleet.count("ended")["quiet 4"], "the quiet customer's runs to end")
    done = [line.name.split()[0] for line in fleet.lines("ended")]
    assert done[: done.index("quiet")].count("busy") <= 3
    assert done[: len(done) - done[::-1].index("quiet")].count("busy") <= 15, done


def test_a_delayed_run_is_never_early_and_a_worker_wakes_for_it(fleet: Fleet) -> None:
    due = {}
    for n in range(8):
        delay = 0.2 + n * 0.1
        due[f"{n}"] = time.monotonic() + delay
        fleet.sf.start(code.short, f"{n}", id=f"{n}", queue="default", delay=delay)
    fleet.worker()
    fleet.worker()
    fleet.until_ended(8)
    early = {line.name: due[line.name] - line.at for line in fleet.lines("begun") if line.at < due[line.name]}
    assert not early, "seconds too early"
