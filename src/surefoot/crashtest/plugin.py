"""The pytest plugin: the fixture `crashtest`.

    def test_agent(crashtest):
        crashtest.run("python agent.py").assert_no_duplicates()

pytest loads this module in every project that has Surefoot, so it imports nothing until the fixture is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .api import Report
    from .config import Words


class Crashtest:
    """Runs crash tests for one test function; `here` is the folder of its file, or the root if that has the config."""

    def __init__(self, here: Path) -> None:
        """Made by the fixture."""
        self.here = here

    def run(self, command: Words | None = None, **keys: Any) -> Report:
        """Crash-test a command; see `surefoot.crashtest.api.crash` for the keys."""
        from .api import crash

        given: dict[str, Any] = {"here": self.here, **keys}
        return crash(command, **given)


@pytest.fixture(name="crashtest")
def make_crashtest(request: pytest.FixtureRequest) -> Crashtest:
    """Kills an agent at each of its requests: `crashtest.run("python agent.py").assert_no_duplicates()`."""
    beside, root = request.path.parent, request.config.rootpath
    return Crashtest(
        root if not (beside / "crashtest.toml").exists() and (root / "crashtest.toml").exists() else beside
    )
