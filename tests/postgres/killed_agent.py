"""The agent of `tests/crash/killed_agent.py`, with the driver loaded before the fork, so that a life costs little."""

from __future__ import annotations

import surefoot.stores.postgres.store  # noqa: F401
from tests.crash.killed_agent import live as live
