"""Counts how many requests of one call arrive, by each package's defaults and by ours: the table in docs/clients.md.

    python -m tests.effects.count_requests           # all packages
    python -m tests.effects.count_requests stripe    # those with that in their name

The packages' own waits between two tries are cut short; the counts come from the server's ledger.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from surefoot.effects.guard import Watch
from tests.effects.arrivals import NAMED, serving
from tests.effects.clients import CALLS, an_attempt, quietly

FAULTS = tuple(NAMED)


def count(name: str, options: Mapping[str, Any], fault: str, *, guarded: bool = False) -> int:
    """How many acting requests of one call arrive at a server that errs like that."""
    _, call = CALLS[name]
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), NAMED[fault]) as server:
        if guarded:
            with Watch(lambda: False):
                quietly(call, server.url, options)
        else:
            quietly(call, server.url, options)
        return server.arrived("POST", "PUT", "PATCH", "DELETE")


def row(name: str) -> str:
    """One line of the table."""
    library, _ = CALLS[name]
    package = name.split()[0].split(".")[0]
    found = "Python" if package == "urllib" else version(package)
    helper = an_attempt().options(library) if library else {}
    default = [count(name, {}, fault) for fault in FAULTS]
    ours = [count(name, helper, fault) for fault in FAULTS] if library else "-"
    guarded = [count(name, {}, fault, guarded=True) for fault in FAULTS]
    cells = [" ".join(str(number) for number in numbers) for numbers in (default, ours, guarded)]
    return f"| {name} | {found} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    time.sleep = lambda seconds: None
    names = [name for name in CALLS if not sys.argv[1:] or any(part in name for part in sys.argv[1:])]
    print(f"| call | version | defaults: {' '.join(FAULTS)} | attempt.options | defaults, in an attempt |")
    print("|---|---|---|---|---|")
    with ThreadPoolExecutor(4) as pool:
        for line in pool.map(row, names):
            print(line, flush=True)


if __name__ == "__main__":
    main()
