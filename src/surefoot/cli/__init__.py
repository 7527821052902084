"""The `surefoot` command: read what is stored, and end the doubts that only a person can end.

It has no rules of its own: what may be done with a run or an effect is decided by `core`, and written by the same
transactions that a workflow uses, so it may run while other processes work on the same file. It never imports a user's
code, and never creates a store by looking for one.

Exit codes:

    0  fine
    1  something needs attention (doctor)
    2  the command line makes no sense, or names several things where one is meant
    3  typer and rich are not installed: pip install 'surefoot[cli]'
    4  there is no such store, run or effect
    5  the store was refused, is locked or is damaged
    6  not possible as things stand: the effect is not parked, or the run has ended already

With `--json` stdout holds one document and nothing else (its shapes are the classes in `surefoot.cli.shapes`), and an
error is one line `{"error": message, "code": exit code}` on stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

__all__ = ["main"]

NEEDED = frozenset({"typer", "rich", "click", "jinja2"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["crashtest"]:  # what follows its -- is another program's command line
            from ..crashtest.main import run as run_crashtest

            return run_crashtest(arguments[1:])
        from .app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        text = f"this command needs {error.name}: pip install 'surefoot[cli]'"
        print(json.dumps({"error": text, "code": 3}) if "--json" in arguments else f"surefoot: {text}", file=sys.stderr)
        return 3
    return run(arguments)
