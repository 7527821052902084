"""Where the tests of fleets keep their stores: killing a process says nothing about the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.forkserver import ForkServer


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder where an fsync costs nothing, if this machine has one."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="surefoot-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def family() -> Iterator[ForkServer]:
    """Forks processes of `family.py`."""
    with ForkServer(str(Path(__file__).with_name("family.py"))) as server:
        yield server
