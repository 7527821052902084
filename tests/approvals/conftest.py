"""A store, a clock that needs no waiting, and an open Surefoot on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import Surefoot
from tests.approvals import support
from tests.approvals.support import Bystander


@pytest.fixture(autouse=True)
def nothing_is_sent_yet() -> None:
    support.sent.clear()


@pytest.fixture
def clock() -> Bystander:
    return Bystander()


@pytest.fixture(params=["memory", "sqlite"])
def sf(request: pytest.FixtureRequest, tmp_path: Path, clock: Bystander) -> Iterator[Surefoot]:
    url = "memory:" if request.param == "memory" else str(tmp_path / "agents.db")
    with Surefoot(url, clock=clock) as opened:
        yield opened
