"""One private PostgreSQL server for each test process that asks for it, and an empty database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surefoot.testing.postgres import PrivatePostgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """A running server; no test cuts its power. One that kills or reconfigures a server starts its own."""
    with PrivatePostgres(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PrivatePostgres) -> str:
    """The URL of a new, empty database."""
    return postgres.create_database()
