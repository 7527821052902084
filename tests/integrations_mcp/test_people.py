"""A tool that asks a person: its state outlives the agent, and the answer reaches it from another process."""

from __future__ import annotations

import signal
import time

import pytest

from surefoot import Surefoot

from .conftest import World

pytest.importorskip("mcp.server.mcpserver", reason="mcp 1.x has no results that ask for input")


def ask_and_die(world: World, *, approved: bool) -> None:
    """An agent asks, and is killed while it waits; then a person decides."""
    child = world.start_agent("close", "close")
    with Surefoot(world.folder / "agents.db") as surefoot:
        give_up = time.monotonic() + 60
        while not (open_ones := surefoot.approvals()):
            assert time.monotonic() < give_up and child.read(0.05), f"nobody was asked; it said {child.lines}"
        assert child.kill() == -signal.SIGKILL
        (asked,) = open_ones
        assert "Really close?" in str(asked)
        if approved:
            surefoot.approve(asked.id, who="ann", digest=asked.digest)
        else:
            surefoot.deny(asked.id, who="ann", why="no")


@pytest.mark.parametrize("approved", [True, False])
def test_a_question_of_a_tool_is_answered_in_the_inbox_and_goes_on_in_another_process(
    world: World, approved: bool
) -> None:
    ask_and_die(world, approved=approved)
    status, said = world.agent("close", "close")
    assert (status, said) == (0, "result charge 0 done" if approved else "result kept: decline")
    assert world.performed() == ({"charge": 1} if approved else {})
    arrived = [line.name for line in world.lines() if line.what == "arrived"]
    assert arrived == ["charge first", "charge again"], "each round is asked for once"
    assert world.agent("close", "close") == (status, said)


def test_a_kill_in_the_gap_of_the_second_round_acts_once(world: World) -> None:
    ask_and_die(world, approved=True)
    world.place("kill", "gap charge")
    assert world.agent("close", "close")[0] == -signal.SIGKILL
    assert world.agent("close", "close") == (0, "result charge 0 done")
    assert world.performed() == {"charge": 1}
