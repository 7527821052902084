"""Agents by hand on the openai and anthropic SDKs, in processes that die by SIGKILL; counted by shop and model."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from frameworks.layout import HERE, Arm, Framework
from frameworks.layout import framework as framework_of
from frameworks.measure import Live, environment, faults, forked, measure_row
from surefoot.testing.forkserver import ForkServer

CLEAN = {"gap": 4, "tool end": 4, "next reply lost": 4, "parallel gap": 2, "re-ordered": 2}
ROWS = [
    ("surefoot", "gap"),
    ("surefoot", "next reply lost"),
    ("surefoot, lookup", "tool end"),
    ("surefoot, parallel and a clock", "parallel gap"),
    ("surefoot, parallel and a clock", "re-ordered"),
]


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def framework(request: pytest.FixtureRequest) -> Framework:
    return framework_of(request.param)


@pytest.fixture(scope="module")
def live(framework: Framework) -> Iterator[Live]:
    env = {**environment(framework), "FRAMEWORKS_AGENT": str(framework.folder / "agent.py")}
    with ForkServer(str(HERE / "child.py"), python=sys.executable, env=env) as server:
        yield forked(server, framework.seconds)


def arm_of(framework: Framework, name: str) -> Arm:
    return next(arm for arm in framework.arm if arm.name == name)


@pytest.mark.parametrize(("name", "row"), ROWS, ids=lambda part: str(part).replace("surefoot, ", ""))
def test_a_killed_agent_acts_once_and_pays_for_no_more_than_the_call_in_flight(
    framework: Framework, live: Live, name: str, row: str
) -> None:
    arm = arm_of(framework, name)
    measured = measure_row(framework, "newest", arm, row, live)
    assert measured.kills == 1
    assert faults(framework, arm, measured, CLEAN[row]) == [], measured.said


def test_the_same_agent_as_published_acts_twice(framework: Framework, live: Live) -> None:
    measured = measure_row(framework, "newest", arm_of(framework, "as published"), "gap", live)
    assert (measured.kills, measured.effects) == (1, {"reserve": 2, "charge": 2, "confirm": 1})
