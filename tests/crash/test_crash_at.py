"""The process dies before and after every command, and again while it recovers; the receiver's ledger is counted.

No list of crash points is kept: n grows until nothing crashes any more. Each case proves that its crash happened.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.testing.crash import crash_at
from tests.crash.scenario import FAULTS, PROMISES, World

KINDS = (*PROMISES, "same_transaction")
BOTH = ("before", "after")
COMMANDS_MIN = 14
"""Fewer commands than this in one run would mean that the driver does not see them."""


def places(quick_path: Path) -> Iterator[Path]:
    for number in itertools.count():
        place = quick_path / str(number)
        place.mkdir()
        yield place


def crash_everywhere(kind: str, fault: str, store: str, quick_path: Path, **options: Any) -> Counter[str]:
    """One crash in each world: before, then after, the n-th command, for every n; counts the commands struck."""
    struck: Counter[str] = Counter()
    folders = places(quick_path)
    for when in BOTH:
        for number in itertools.count(1):
            world = World(kind, fault, next(folders), store=store, **options)
            driver = crash_at(number, when=when)  # type: ignore[arg-type]
            result = world.live(driver)
            if not driver.struck:
                world.check(result)
                assert number > COMMANDS_MIN
                break
            assert result is None, f"the process outlived its crash {when} command {number} ({driver.struck})"
            struck[driver.struck] += 1
            world.check(world.live())
            assert world.lives == 2
    return struck


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_crash_at_any_command_loses_and_repeats_nothing(kind: str, fault: str, store: str, quick_path: Path) -> None:
    struck = crash_everywhere(kind, fault, store, quick_path)
    assert {"Commit", "Record", "Execute", "SendEffect", "Look", "Now", "RenewLease"} <= set(struck)


@pytest.mark.parametrize("kind", PROMISES)
@pytest.mark.parametrize(
    ("store", "fault"), [*(("memory", fault) for fault in FAULTS), ("sqlite", "timeout"), ("sqlite", "late")]
)
def test_the_async_driver_is_as_safe_as_the_sync_one(kind: str, fault: str, store: str, quick_path: Path) -> None:
    struck = crash_everywhere(kind, fault, store, quick_path, asynchronous=True)
    assert {"Commit", "Record", "Execute", "SendEffect", "Look", "Now", "RenewLease"} <= set(struck)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("fault", ["none", "timeout"])
@pytest.mark.parametrize("kind", PROMISES)
def test_the_barrier_holds_in_a_pipelined_run(kind: str, fault: str, asynchronous: bool, quick_path: Path) -> None:
    """A step may return before it is durable; nothing is sent before everything that it depends on is (R2)."""
    struck = crash_everywhere(kind, fault, "memory", quick_path, asynchronous=asynchronous, durability="pipelined")
    assert {"Commit", "Record", "Execute", "SendEffect"} <= set(struck)


def crash_twice(kind: str, fault: str, store: str, quick_path: Path, stride: int) -> int:
    """Die after command n; then, while the next process resumes and settles, after its command m.

    With a stride, each n takes another residue of m, so that all of them are still met.
    """
    pairs = 0
    folders = places(quick_path)
    for number in itertools.count(1, 2 if store == "sqlite" else 1):
        for second in itertools.count(1 + number % stride, stride):
            world = World(kind, fault, next(folders), store=store)
            first_driver, second_driver = crash_at(number, when="after"), crash_at(second, when="after")
            result = world.live(first_driver)
            if not first_driver.struck:
                world.check(result)
                return pairs
            result = world.live(second_driver)
            if not second_driver.struck:
                world.check(result)
                break
            pairs += 1
            assert result is None
            world.check(world.live())
    raise AssertionError


@pytest.mark.parametrize("fault", ["none", "not_performed", "timeout", "late"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("store", "stride"), [("memory", 4), ("sqlite", 13)])
def test_a_second_crash_while_the_first_is_settled_changes_nothing(
    kind: str, fault: str, store: str, stride: int, quick_path: Path
) -> None:
    assert crash_twice(kind, fault, store, quick_path, stride) >= 10


def test_without_a_crash_the_counts_are_the_same(quick_path: Path) -> None:
    for kind in KINDS:
        world = World(kind, "none", quick_path, store="memory")
        world.check(world.live())
        assert world.lives == 1 and world.decisions == 0
