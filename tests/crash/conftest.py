"""Where crash tests keep their stores.

A simulated or real death of a process says nothing about the disk, so those tests may use a file system in memory;
what power loss does is proved elsewhere, on recorded writes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder where an fsync costs nothing, if this machine has one."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="surefoot-") as folder:
        yield Path(folder)
