"""Around the decision table: agents without Surefoot, twins that lie, requests still in flight, indexes that lose.

Each of these shows that the table's counts can go wrong: a test that nothing can fail proves nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from surefoot import receivers
from surefoot.testing.forkserver import ForkServer

from .decision_stage import AGENT, LIFE_SECONDS_MAX, Stage, margin_is_over, perform
from .decision_table import ACTED, CELLS, LATE, LOST, ROWS, STORE_LOST, Cell, Column, Row, Way

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]
MAIN_ROWS = [row for row in ROWS if not row.more]
BY_CONTENT = ("heuristic_window", "silent_drop_window")
BY_TOKEN = ("single_use_secret", "rotating_reusable_secret", "reusable_secret")
"""Classes that recognise a plain repeat by its content or its token, without a key."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder where an fsync costs nothing, if this machine has one."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="surefoot-") as path:
        yield Path(path) / "cell"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(AGENT) as server:
        yield server


def cell_of(receiver: str, column: Column, point: Any) -> Cell:
    return next(c for c in CELLS if (c.row.receiver, c.column, c.point) == (receiver, column, point))


@pytest.fixture
def stage(server: ForkServer, folder: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The stage of one cell (`receiver, column, point[, lies]`), where a test plays what is not in the table."""
    receiver, column, point, *lies = request.param
    stage = Stage(server, folder, cell_of(receiver, column, point), **(lies[0] if lies else {}))
    yield stage
    stage.close()
    assert not stage.done.problems, stage.done


# --- agents without Surefoot ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", MAIN_ROWS, ids=lambda row: row.receiver)
def test_an_agent_that_simply_tries_again_acts_twice(server: ForkServer, folder: Path, row: Row) -> None:
    stage = Stage(server, folder, cell_of(row.receiver, Column.WITHIN, ACTED))
    stage.die(ACTED, function="live_plainly")
    stage.twin.advance(5.0)
    stage.live("live_plainly")
    acts = len(stage.acts())
    stage.close()
    assert not stage.done.problems, stage.done
    assert acts == (1 if stage.receiver.class_ in BY_CONTENT + BY_TOKEN else 2)


@pytest.mark.parametrize("row", MAIN_ROWS, ids=lambda row: row.receiver)
def test_an_agent_that_never_tries_again_loses_what_was_never_performed(
    server: ForkServer, folder: Path, row: Row
) -> None:
    stage = Stage(server, folder, cell_of(row.receiver, Column.WITHIN, LOST))
    stage.die(LOST, function="live_plainly")
    acts = len(stage.acts())
    stage.close()
    assert not stage.done.problems and acts == 0


# --- twins that lie -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("receiver", "lie"),
    [
        ("stripe.v1", {"window_seconds": 1.0}),
        ("oauth.xero", {"window_seconds": 1.0}),
        ("mailgrid_style.hash_dedup", {"window_seconds": 1.0}),
        ("notion.pages", {"lag_seconds": 3600.0}),
        ("google.sheets", {"lag_seconds": 3600.0}),
    ],
)
def test_a_receiver_that_protects_or_shows_less_than_it_says_is_caught_by_the_count(
    server: ForkServer, folder: Path, receiver: str, lie: dict[str, float]
) -> None:
    done = perform(server, folder, cell_of(receiver, Column.WITHIN, ACTED), **lie)
    if receiver.startswith("oauth"):  # a spent token is told, so it is a person's and not a second act
        assert done.end == "parked" and done.acts == 1 and done.problems
    else:
        assert done.acts == 2 and "2 acts in the end" in done.problems


# --- requests that are still in flight ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stage",
    [
        ("stripe.v1", Column.WITHIN, LATE),
        ("zendesk.tickets", Column.WITHIN, ACTED),
        ("aws.s3.conditional_put", Column.WITHIN, LATE),
        ("mailgrid_style.hash_dedup", Column.WITHIN, LATE),
    ],
    indirect=True,
    ids=lambda told: told[0],
)
def test_a_repeat_that_meets_its_own_request_still_running_waits_for_it(stage: Stage) -> None:
    stage.meets("late")
    first = stage.start()
    stage.twin.wait_for("held")
    assert first.kill() == -9 and not stage.acts()
    second = stage.start()
    stage.twin.wait_for("refused", timeout=LIFE_SECONDS_MAX)  # told that the first one still runs
    assert stage.twin.release() == 1 and len(stage.acts()) == 1
    assert second.join() == 0 and second.said("result ") is not None
    assert len(stage.acts()) == 1


@pytest.mark.parametrize(
    "stage",
    [("kubernetes.create", Column.WITHIN, LATE), ("oauth.xero", Column.WITHIN, LATE)],
    indirect=True,
    ids=lambda told: told[0],
)
def test_a_repeat_that_the_receiver_holds_gets_the_first_ones_result(stage: Stage) -> None:
    stage.meets("late")
    first = stage.start()
    stage.twin.wait_for("held")
    assert first.kill() == -9 and not stage.acts()
    second = stage.start()
    stage.twin.wait_for("arrived", 2, timeout=LIFE_SECONDS_MAX)
    assert stage.twin.release() == 1
    assert second.join() == 0 and second.said("result ") is not None
    assert len(stage.acts()) == 1


# --- lookups that show late, or never -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stage",
    [
        (row.receiver, Column.PAST, ACTED)
        for row in ROWS
        if row.past is Way.ASK_PARK and receivers.get(row.receiver).lookups
    ],
    indirect=True,
    ids=lambda told: told[0],
)
def test_an_index_that_never_shows_it_is_no_proof_that_it_did_not_happen(stage: Stage) -> None:
    stage.die(ACTED)
    stage.twin.hide()
    margin_is_over(stage)
    said = stage.live()
    assert said.startswith("parked") and len(stage.sends()) == 1 and len(stage.acts()) == 1
    assert len(stage.lines("looked_up")) >= 2, "it was asked only once"


@pytest.mark.parametrize(
    "stage",
    [
        ("notion.pages", Column.WITHIN, ACTED, {"lag_seconds": 29.0}),
        ("google.calendar", Column.WITHIN, ACTED, {"lag_seconds": 29.0}),
    ],
    indirect=True,
    ids=lambda told: told[0],
)
def test_a_lookup_that_shows_within_its_lag_is_waited_for(stage: Stage) -> None:
    stage.die(ACTED)
    assert stage.live().startswith("result")
    assert len(stage.acts()) == 1 and len(stage.sends()) == 1


# --- what a used key made -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stage", [("moov.transfers", Column.CHANGED, STORE_LOST)], indirect=True, ids=["moov.transfers"]
)
def test_a_first_send_that_meets_a_used_key_is_not_taken_for_its_own(stage: Stage) -> None:
    """Nothing of ours was unresolved, so whoever used the key was a request that this store never recorded."""
    assert stage.live().startswith("result")
    said = stage.live(db=str(stage.folder / "another.db"), text="something else", compares=False)
    assert not said.startswith("result")


# --- numbers that are overtaken ---------------------------------------------------------------------------------------


def overtaken(stage: Stage, *, setting: str = "") -> str:
    """One number is in doubt and was never performed, a later one of the same producer goes through; how it ends."""
    if setting:
        stage.contracts["contract"] = msgspec.to_builtins(stage.receiver.with_(setting=setting).contract)
    stage.die(LOST)
    assert stage.live(run="r2", order="o2").startswith("result") and len(stage.twin.acts("o2")) == 1
    return stage.live()


NUMBERED = pytest.mark.parametrize(
    "stage", [("rabbitmq.stream", Column.WITHIN, LOST)], indirect=True, ids=["rabbitmq.stream"]
)


@NUMBERED
def test_a_number_that_may_have_been_overtaken_is_left_to_a_person(stage: Stage) -> None:
    assert overtaken(stage).startswith("parked") and len(stage.sends()) == 2


@NUMBERED
def test_a_person_who_says_that_it_did_not_happen_gets_it_sent_under_a_number_that_counts(stage: Stage) -> None:
    assert overtaken(stage).startswith("parked")
    assert stage.live(decision="did_not_happen").startswith("result")
    assert len(stage.acts()) == 1


@NUMBERED
def test_who_says_one_writer_and_has_two_loses_the_overtaken_number(stage: Stage) -> None:
    """A known limit: with that setting the number is resent, and the receiver confirms and drops it."""
    assert overtaken(stage, setting="one_writer").startswith("result")
    assert len(stage.acts()) == 0
