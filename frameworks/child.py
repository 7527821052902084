"""Runs one life of an agent: as a function of the fork server's module, or as a script of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

from frameworks import kit

kit.quiet()


def load(path: str) -> Any:
    """The agent's module."""
    spec = importlib.util.spec_from_file_location("agent", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    return module


AGENT = load(os.environ["FRAMEWORKS_AGENT"]) if "FRAMEWORKS_AGENT" in os.environ else None


def live(say: Any, job: dict[str, Any], output: str) -> None:
    """One life, forked: the agent was imported before."""
    assert AGENT is not None
    kit.start(job, AGENT.run, output)


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    kit.start(told["job"], load(sys.argv[1]).run, told["output"])
