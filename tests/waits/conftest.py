"""A store on each database, and a process that knows no workflow of another test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.conftest import quick_path as quick_path
from tests.runtime.support import restart


@pytest.fixture
def db(quick_path: Path) -> str:
    return str(quick_path / "agents.db")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("db" if request.param == "sqlite" else "postgres_url")


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Iterator[None]:
    restart()
    yield
    restart()
