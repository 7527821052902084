"""Breaks rules of the fleet on purpose, one at a time in a copy of the code, and says which test goes red.

    python -m tests.worker.broken_on_purpose            # all, a few minutes
    python -m tests.worker.broken_on_purpose probation  # those whose description holds the word

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
SECONDS_MAX = 400


class Change(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`; `tests` are those that should see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


CHANGES = [
    Change(
        "a death counts as the last although others were there",
        "core/dispatch_writes.py",
        "    if deaths < (2 * deaths_max - 1 if beside else deaths_max):",
        "    if deaths < deaths_max:",
        "tests/worker/test_choosing.py",
    ),
    Change(
        "a run that never was alone is never quarantined",
        "core/dispatch_writes.py",
        "    if deaths < (2 * deaths_max - 1 if beside else deaths_max):",
        "    if beside or deaths < deaths_max:",
        "tests/worker/test_choosing.py",
    ),
    Change(
        "all runs on probation are taken at once",
        "core/dispatch_writes.py",
        "        admitted, self._full = not self._full, True",
        "        admitted = True",
        "tests/contract -k probation",
    ),
    Change(
        "a run stays on probation although its journal has grown",
        "core/dispatch_writes.py",
        "    return run.deaths >= PROBATION_DEATHS and view.seal_of(run.id)[0] == run.deaths_length",
        "    return run.deaths >= PROBATION_DEATHS",
        "tests/contract -k probation",
    ),
    Change(
        "the reaper forgets who was beside whom",
        "runtime/reaper.py",
        "self._free(run, vantage, had[run.owner] - 1) for run in left",
        "self._free(run, vantage, 0) for run in left",
        "tests/worker/test_takeover.py -k in_company",
    ),
    Change(
        "a database that does not answer ends a worker",
        "stores/postgres/connection.py",
        "    ping = psycopg.pq.PGconn.ping(address.conninfo.encode())\n",
        "    return False\n    ping = psycopg.pq.PGconn.ping(address.conninfo.encode())\n",
        "tests/worker/test_waiting_for_the_store.py",
    ),
    Change(
        "a worker waits for a database that refuses it",
        "stores/postgres/connection.py",
        "    return ping in (psycopg.pq.Ping.REJECT, psycopg.pq.Ping.NO_RESPONSE)",
        "    return True",
        "tests/worker/test_waiting_for_the_store.py -k told_from",
    ),
    Change(
        "a run is given back although the wait of one of its tasks has just ended",
        "runtime/tasks.py",
        "    if waiter is not None and waiter.done():\n        return False\n",
        "",
        "tests/waits/test_tasks_that_wait.py -k timer_has_come",
    ),
    Change(
        "nobody looks for the right to draw a run's number",
        "stores/postgres/queries.sql",
        "has_sequence_privilege('{schema}.runs_num_seq'::regclass, 'USAGE')",
        "true",
        "tests/postgres/test_opening.py -k right",
    ),
]


def first_red(source: Path, tests: str) -> str:
    """The first test that fails with this code, or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split(" ", 2)]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    if ran.returncode not in (0, 1):
        raise SystemExit(f"pytest {tests} ended with {ran.returncode}: {ran.stdout[-800:]}{ran.stderr[-800:]}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found[1] if found else ""


def try_out(change: Change) -> bool:
    """Break it, look, and print a row of the table; True if a test saw it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "surefoot" / change.file
        text = path.read_text("utf-8")
        if text.count(change.old) != 1:
            raise SystemExit(f"{change.file}: expected once, found {text.count(change.old)} times: {change.old!r}")
        path.write_text(text.replace(change.old, change.new), "utf-8")
        red = first_red(source, change.tests)
    print(f"| {change.what} | `{red or 'SURVIVED'}` |", flush=True)
    return bool(red)


def main(words: list[str]) -> int:
    """One at a time: each test has processes of its own."""
    chosen = [change for change in CHANGES if not words or any(word in change.what for word in words)]
    seen = [try_out(change) for change in chosen]
    print(f"{sum(seen)} of {len(seen)} changes were seen")
    return 0 if all(seen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
