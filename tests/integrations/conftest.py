"""A store, and a clean list of what was sent, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import Surefoot
from tests.integrations.tools import sent


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    sent.clear()


@pytest.fixture
def sf(tmp_path: Path) -> Iterator[Surefoot]:
    with Surefoot(str(tmp_path / "agents.db")) as opened:
        yield opened
