"""A scripted model for each test, and a store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.models import ModelServer, replies
from tests.runtime.support import restart


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    restart()


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(replies("hello big world", "and again"), strict=False) as server:
        yield server
