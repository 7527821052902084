"""The twin that a test of twins asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.testing.twins import Twin

from .twin_calls import behave


@pytest.fixture
def twin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twin]:
    """The twin of the behaviour that a test gives, of a keyed one if it gives none."""
    behaviour = getattr(request, "param", None) or behave()
    with Twin(behaviour, tmp_path / "ledger.jsonl") as twin:
        yield twin
