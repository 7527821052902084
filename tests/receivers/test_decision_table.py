"""Class of receiver x way into doubt: no duplicate, nothing lost, and a person only where the table says so.

`python -m pytest -s tests/receivers/test_decision_table.py` prints the table.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.forkserver import ForkServer

from .decision_table import AGENT, CELLS, Cell, Performed, perform_all

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
