"""A store's path, a clock that needs no waiting, and a ledger that counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.support import FakeClock, Ledger, restart


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Iterator[None]:
    restart()
    yield
    restart()
