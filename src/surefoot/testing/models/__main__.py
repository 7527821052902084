"""`python -m surefoot.testing.models`: a scripted model as a process of its own.

It prints its address and serves until standard input closes. `--planner` is one of the shipped ones, or
`module:function` of your own, or a JSON file of turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from ...core.errors import UsageError
from .planners import PLANNERS, scripted
from .server import ModelServer
from .words import Planner


def planner_named(name: str) -> Planner:
    """A shipped planner, `module:function`, or the turns in a JSON file."""
    if name in PLANNERS:
        return PLANNERS[name]
    if name.endswith(".json"):
        return scripted(json.loads(Path(name).read_text("utf-8")))
    module, _, function = name.partition(":")
    found: Planner | None = getattr(importlib.import_module(module), function, None) if function else None
    if not callable(found):
        known = ", ".join(PLANNERS)
        raise UsageError(f"no planner {name!r}: expected {known}, module:function, or a .json file of turns")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(prog="python -m surefoot.testing.models", description=__doc__)
    parser.add_argument("--planner", default="checkout")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path, help="a file for each paid answer, on disk before it leaves")
    parser.add_argument("--lenient", action="store_true", help="answer what the real endpoints refuse")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--event-seconds", type=float, default=0.0)
    told = parser.parse_args(arguments)
    sys.path.insert(0, "")
    server = ModelServer(
        planner_named(told.planner),
        record=told.record,
        strict=not told.lenient,
        compress=told.gzip,
        event_seconds=told.event_seconds,
        port=told.port,
    )
    with server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
