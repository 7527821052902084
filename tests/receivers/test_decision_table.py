"""Class of receiver x way into doubt: no duplicate, nothing lost, and a person only where the table says so.

`python -m pytest -s tests/receivers/test_decision_table.py` prints the table.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import receivers
from surefoot.receivers.words import Class, Do
from surefoot.testing.forkserver import ForkServer

from .decision_page import DOCUMENT, document, kills, table
from .decision_stage import AGENT, Performed, perform_all
from .decision_table import CELLS, ROWS, Cell, Row, Way

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder where an fsync costs nothing, if this machine has one: a killed process says nothing about the disk."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="surefoot-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(AGENT) as server:
        yield server


@pytest.fixture(scope="module")
def performed(server: ForkServer, folder: Path, request: pytest.FixtureRequest) -> dict[str, Performed]:
    """All cells that were asked for, performed a few at a time."""
    called = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = {params["cell"].id for params in called if "cell" in params}
    return perform_all(server, folder, [cell for cell in CELLS if cell.id in wanted])


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_every_cell_of_the_decision_table_acts_once(cell: Cell, performed: dict[str, Performed]) -> None:
    done = performed[cell.id]
    assert not done.problems, f"{cell.id} ({cell.way}): {done}"


def test_every_class_of_receivers_stands_in_the_table() -> None:
    assert {receivers.get(row.receiver).class_ for row in ROWS} == set(Class)


def test_the_table_is_printed_and_its_page_is_fresh() -> None:
    print(f"\n{len(CELLS)} cells, {kills(CELLS)} kills\n{table()}")
    assert DOCUMENT.read_text() == document(), "write it anew: python -m tests.receivers.decision_page"


SAME = {
    Do.RESEND: (Way.RESEND, Way.RESEND_ASK, Way.RESEND_FETCH),
    Do.LOOKUP_FIRST: (Way.ASK_SEND, Way.ASK_PARK),
    Do.LOOKUP_THEN_RESEND: (Way.ASK_SEND,),
    Do.LOOKUP_THEN_PARK: (Way.ASK_PARK,),
    Do.PARK: (Way.PARK,),
    Do.WAIT_FOR_EVENT: (Way.PARK, Way.ASK_PARK),
    Do.RESEND_IF_CONSUMER_DROPS_REPEATS: (Way.PARK, Way.ASK_PARK),
}


@pytest.mark.parametrize("row", [row for row in ROWS if not row.why], ids=lambda row: row.receiver)
def test_a_row_is_what_the_catalog_says_or_says_why_it_is_not(row: Row) -> None:
    action = receivers.get(row.receiver).action
    assert row.within in SAME[action.within] and row.past in SAME[action.past], action
