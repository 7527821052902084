"""The windows alone imply the published table; these tests run nothing and kill nobody."""

import pytest

from surefoot.demo.scenario import (
    BY_NAME,
    KILLS,
    POLICIES,
    PUBLISHED,
    TOKENS_CLEAN,
    WRITE_KINDS,
    Cost,
    Kill,
    Policy,
    Window,
    may_park,
    parse_kill,
    predict,
    summarise,
)


def test_there_are_ten_steps_with_three_windows_each() -> None:
    assert len(KILLS) == len(set(KILLS)) == 30
    assert TOKENS_CLEAN == 37_000
    assert WRITE_KINDS == ("tickets", "pages", "status")


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_windows_imply_the_published_figures(name: str) -> None:
    assert summarise([predict(BY_NAME[name], kill) for kill in KILLS]) == PUBLISHED[name]


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy.is_surefoot], ids=lambda each: each.name)
def test_surefoot_may_cost_what_a_journal_costs_and_no_duplicate(policy: Policy) -> None:
    figures = summarise([predict(policy, kill) for kill in KILLS])
    assert (figures.duplicate_kills, figures.mean_extra_tokens) == (0, PUBLISHED["journal"].mean_extra_tokens)


@pytest.mark.parametrize(
    ("name", "step", "window", "cost"),
    [
        ("none", 1, Window.BEFORE, Cost(duplicates=0, extra_tokens=0)),
        ("none", 4, Window.BEFORE, Cost(duplicates=0, extra_tokens=10_300)),
        ("none", 10, Window.RECORDED, Cost(duplicates=3, extra_tokens=37_000)),
        ("turn", 4, Window.RECORDED, Cost(duplicates=1, extra_tokens=5_900)),
        ("turn", 5, Window.BEFORE, Cost(duplicates=0, extra_tokens=0)),
        ("journal", 4, Window.EFFECT, Cost(duplicates=1, extra_tokens=0)),
        ("journal", 4, Window.RECORDED, Cost(duplicates=0, extra_tokens=0)),
        ("journal", 9, Window.EFFECT, Cost(duplicates=0, extra_tokens=10_400)),
        ("keys", 4, Window.EFFECT, Cost(duplicates=0, extra_tokens=0)),
    ],
)
def test_a_window_implies_its_cost(name: str, step: int, window: Window, cost: Cost) -> None:
    assert predict(BY_NAME[name], Kill(step=step, window=window)) == cost


def test_a_person_may_be_needed_only_in_the_send_window_of_a_write_to_an_opaque_receiver() -> None:
    asked = [(policy.name, str(kill)) for policy in POLICIES for kill in KILLS if may_park(policy, kill)]
    kills = ["4:before", "4:effect", "6:before", "6:effect", "8:before", "8:effect"]
    assert asked == [("surefoot-opaque", kill) for kill in kills]


@pytest.mark.parametrize("text", ["", "4", "0:effect", "11:effect", "4:after", "x:before"])
def test_a_kill_that_does_not_exist_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected STEP:WINDOW"):
        parse_kill(text)


def test_a_kill_reads_back_as_it_is_written() -> None:
    assert [parse_kill(str(kill)) for kill in KILLS] == list(KILLS)
