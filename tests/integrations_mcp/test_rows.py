"""An MCP tool in each row: killed before it acts, in the gap, at its end, when it has returned; and never."""

from __future__ import annotations

import signal

import pytest

from .conftest import World

ONCE = {"reserve": 1, "charge": 1, "confirm": 1}
ROWS = {
    "before": ("kill", "before charge"),
    "gap": ("kill", "gap charge"),
    "tool end": ("die_at", "end charge"),
    "returned": ("die_at", "returned charge"),
    "last reply lost": ("kill", "gap confirm"),
    "control": None,
}


def live_to_the_end(world: World, tool: str, row: str, run: str = "order") -> str:
    """A life that is killed, if the row says so, and the next; what the last one said."""
    placed = ROWS[row]
    if placed is not None:
        world.place(*placed)
        status, _ = world.agent(tool, run)
        assert status == -signal.SIGKILL
    status, said = world.agent(tool, run)
    assert status == 0
    return said


@pytest.mark.parametrize("tool", ["keyed", "lookup"])
@pytest.mark.parametrize("row", ROWS)
def test_killed_anywhere_a_keyed_tool_or_one_that_can_be_asked_acts_once(world: World, tool: str, row: str) -> None:
    assert live_to_the_end(world, tool, row).startswith("result")
    assert world.performed() == ONCE


@pytest.mark.parametrize("row", ["gap", "tool end"])
def test_a_tool_that_promises_nothing_is_never_sent_twice(world: World, row: str) -> None:
    assert "in doubt" in live_to_the_end(world, "opaque", row)
    assert world.performed() == {"reserve": 1, "charge": 1}, "nothing goes on behind a tool that is in doubt"
    status, said = world.agent("opaque")
    assert (status, world.performed()) == (0, {"reserve": 1, "charge": 1}) and said.startswith("waiting")


def test_a_tool_that_reads_runs_again_when_its_result_was_lost(world: World) -> None:
    assert live_to_the_end(world, "balance", "gap").startswith("result")
    assert [line.name for line in world.lines() if line.what == "read"] == ["reserve", "charge", "charge", "confirm"]


def test_a_tool_that_says_it_is_idempotent_is_repeated_if_its_server_is_trusted(world: World) -> None:
    assert live_to_the_end(world, "set_limit", "gap").startswith("result")
    assert world.performed() == {"reserve": 1, "charge": 2, "confirm": 1}


def test_the_annotations_of_a_server_that_is_not_trusted_count_for_nothing(world: World) -> None:
    world.place("kill", "gap charge")
    status, _ = world.agent("set_limit", trusted=False)
    assert status == -signal.SIGKILL
    status, said = world.agent("set_limit", trusted=False)
    assert status == 0 and "in doubt" in said
    assert world.performed() == {"reserve": 1, "charge": 1}


@pytest.mark.parametrize("tool", ["keyed", "lookup"])
def test_side_by_side_each_call_acts_once(world: World, tool: str) -> None:
    assert live_to_the_end(world, tool, "gap", "together").startswith("result")
    assert world.performed() == ONCE


# --- the server's own death -------------------------------------------------------------------------------------------


def test_a_server_that_dies_in_the_gap_acts_once_if_its_change_commits_with_its_result(world: World) -> None:
    world.place("die")
    child = world.start_agent("transactional")
    world.shop.read(60)
    assert world.shop.join() == -signal.SIGKILL
    world.open_shop()
    child.kill()
    status, said = world.agent("transactional")
    assert (status, said[:6]) == (0, "result")
    import sqlite3

    with sqlite3.connect(world.folder / "shop.db") as database:
        assert sorted(name for (name,) in database.execute("SELECT name FROM orders")) == [
            "charge",
            "confirm",
            "reserve",
        ]
