"""One private PostgreSQL server for each test process that asks for it, and an empty database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.postgres import PrivatePostgres

# The tests start thousands of processes; what one of them compiles, the others read, whatever the machine's habit.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """A running server; no test cuts its power. One that kills or reconfigures a server starts its own."""
    with PrivatePostgres(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PrivatePostgres) -> str:
    """The URL of a new, empty database."""
    return postgres.create_database()
