"""Who may take work from whom: the whole truth table."""

from __future__ import annotations

from itertools import product

import pytest

from surefoot.core.lease import Owner, Vantage

ME, OTHER = 1, 2


def held_by(boot: str, lease_until: float) -> Owner:
    return Owner(id=OTHER, pid=41, host="h", boot=boot, started_at=1.0, lease_until=lease_until)


@pytest.mark.parametrize(
    ("gone", "same_boot", "lease_until"), list(product([False, True], [False, True], [49.9, 50.0, 50.1]))
)
def test_work_is_taken_only_from_who_is_gone_of_another_boot_or_past_its_lease(
    gone: bool, same_boot: bool, lease_until: float
) -> None:
    vantage = Vantage(owner=ME, boot="b", lease_now=50.0, at=9e9, gone=frozenset({OTHER}) if gone else frozenset())
    holder = held_by("b" if same_boot else "another", lease_until)
    assert vantage.may_take_from(OTHER, holder) is (gone or not same_boot or lease_until <= 50.0)


@pytest.mark.parametrize("holder_id", [0, ME])
def test_what_nobody_or_the_asker_itself_holds_may_be_taken(holder_id: int) -> None:
    vantage = Vantage(owner=ME, boot="b", lease_now=50.0, at=0.0)
    assert vantage.may_take_from(holder_id, held_by("b", 99.0))


def test_what_is_held_by_a_process_that_the_store_does_not_know_may_be_taken() -> None:
    assert Vantage(owner=ME, boot="b", lease_now=50.0, at=0.0).may_take_from(OTHER, None)


@pytest.mark.parametrize("at", [0.0, 9e9])
def test_the_wall_clock_has_no_say_in_it(at: float) -> None:
    assert not Vantage(owner=ME, boot="b", lease_now=50.0, at=at).may_take_from(OTHER, held_by("b", 51.0))


def test_somebody_else_who_is_gone_changes_nothing() -> None:
    vantage = Vantage(owner=ME, boot="b", lease_now=50.0, at=0.0, gone=frozenset({3}))
    assert not vantage.may_take_from(OTHER, held_by("b", 51.0))


def test_an_owner_is_named_for_people() -> None:
    assert held_by("b", 1.0).name() == "process 41 on h"
