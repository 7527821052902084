"""Breaks each rule of gated tools on purpose, one at a time in a copy of the code, and says which test goes red.

    python -m tests.integrations.broken_on_purpose            # all, some minutes
    python -m tests.integrations.broken_on_purpose memo       # those whose description holds the word

Exits 1 if a change survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 200


class Change(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`."""

    what: str
    file: str
    old: str
    new: str


GATE, GATED, SEEN = (f"integrations/{name}.py" for name in ("gate", "gated", "appearance"))
CHANGES = [
    Change("an id is relied on that no recorded answer holds", GATE, "and calls.knows(place, known)", ""),
    Change(
        "a known id is not used",
        GATE,
        "        if known is not None and is_known and not",
        "        if known is not None and is_known and False and not",
    ),
    Change(
        "a call moves to its id's slot when that becomes known",
        GATE,
        " and not self._is_recorded(place, what):",
        ":",
    ),
    Change(
        "no memo: a call that is run again acts again",
        GATE,
        "        self.held.end(self.slot, Done(self.digest, value, None))\n        return value\n\n"
        "    async def run_async",
        "        self.held.end(self.slot, None)\n        return value\n\n    async def run_async",
    ),
    Change(
        "the memo looks at no arguments",
        GATE,
        "        if done.digest != self.digest:",
        "        if False:",
    ),
    Change(
        "two uses by one call of the model share a slot",
        GATE,
        "            number = call.occurrence(name) if call is not None and call.id == known else 0",
        "            number = 0",
    ),
    Change(
        "equal calls without ids share a slot",
        GATE,
        "            text = _nth(what, self.held.occurrence(scope, what))",
        "            text = _nth(what, 0)",
    ),
    Change(
        "the stop is told to one tool only",
        GATE,
        "            told = self.session.suspended[self.branch.path] = ToolInDoubt(error.reason)\n"
        "        if isinstance(told, Signal):\n            calls.stop(self.place, told)",
        "            told = ToolInDoubt(error.reason)\n            self.session.suspended.clear()",
    ),
    Change(
        "doubt is an ordinary exception", GATE, "class ToolInDoubt(Suspend):", "class ToolInDoubt(Suspend, Exception):"
    ),
    Change(
        "a stop cuts off what runs beside it",
        GATE,
        "        return bool(self.held.flying)",
        "        return False",
    ),
    Change(
        "what is shown can be unwrapped",
        SEEN,
        "        del shown.__wrapped__  # what unwraps it would find the attempt, and a way around the gate\n",
        "",
    ),
    Change(
        "the attempt is shown",
        SEEN,
        '    hidden = {"attempt"} if tool.wants_attempt else set[str]()',
        "    hidden = set[str]()",
    ),
    Change(
        "a gated call can be found by its name later",
        GATED,
        '    def register(self) -> None:\n        """Not."""\n',
        "",
    ),
    Change(
        "an approval is asked for, and not needed",
        "integrations/tool.py",
        "        needs = self.approval is not None\n",
        "        needs, self.approval = False, None\n",
    ),
    Change(
        "an async effect that a loop left open is called as if it were def",
        "effects/use.py",
        "        if effect.is_async:  # left open by an event loop that is gone, in a def workflow\n"
        "            return _in_new_loop(lambda: self.send_async(session, record))\n",
        "",
    ),
]


def first_red(source: Path) -> str:
    """The first test that goes red with this copy of the code, or ""."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--timeout=60"]
    try:
        ran = subprocess.run(
            [*command, "tests/integrations/test_tool.py", "tests/integrations/test_tool_in_doubt.py"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found[1].rpartition("::")[2] if found else ""


def try_out(change: Change) -> bool:
    """Break it, look, and print what went red; True if a test saw it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "surefoot" / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise SystemExit(f"{change.file}: expected once, found {text.count(change.old)} times: {change.old!r}")
        path.write_text(text.replace(change.old, change.new))
        red = first_red(source)
    print(f"| {change.what} | `{red or 'SURVIVED'}` |", flush=True)
    return bool(red)


def main(words: list[str]) -> int:
    """One after the other."""
    chosen = [change for change in CHANGES if not words or any(word in change.what for word in words)]
    seen = [try_out(change) for change in chosen]
    print(f"{sum(seen)} of {len(seen)} changes were seen")
    return 0 if all(seen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
