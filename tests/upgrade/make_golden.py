"""Makes `golden_v1.sql`: `python -m tests.upgrade.make_golden PATH`, never again once that schema was released.

Each run has a process of its own. The one in doubt really died while it was sending, and left its lease behind.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from surefoot import RunWaiting, Surefoot
from surefoot.runtime import engine
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.clock import STARTS_AT, FakeClock
from tests.upgrade import agents

GOLDEN_AT = STARTS_AT
GOLDEN_BOOT = "00000000-0000-4000-8000-0000000golden"
INLINE_BYTES = 256
"""Less than the default, so that a large value of the file is small enough to be read by people."""
RUNS = {"done": (agents.order, "tides"), "unfinished": (agents.charging, "o-1"), "parked": (agents.mailing, "ada")}


def run(db: Path, run_id: str) -> None:
    """One process: its store is of another boot than whoever reads the file later."""
    workflow, argument = RUNS[run_id]
    store = SqliteStore(db)
    store.lease_boot = GOLDEN_BOOT
    with Surefoot(store, clock=FakeClock(GOLDEN_AT), lease=86400.0, inline_bytes=INLINE_BYTES) as sf:
        try:
            sf.run(workflow, argument, id=run_id)
        except RunWaiting:
            pass
    store.close()


def make(db: Path) -> None:
    """Fill the file, run by run."""
    engine.host_name = lambda: "golden"  # nobody has to know whose machine this was
    for run_id in RUNS:
        if run_id != "unfinished":
            run(db, run_id)
            continue
        child = os.fork()
        if child == 0:
            agents.DIES_WHILE_SENDING.append("charge")
            run(db, run_id)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17, "it has to die while it is sending"


def dump(db: Path) -> str:
    """The file as text, with the two numbers that a dump leaves out."""
    with closing(sqlite3.connect(db)) as source:
        names = ("application_id", "user_version")
        numbers: list[Any] = [source.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
        lines = list(source.iterdump())
    pragmas = [f"PRAGMA application_id = {numbers[0]};", f"PRAGMA user_version = {numbers[1]};"]
    return "\n".join([*pragmas, *lines]) + "\n"


def rebuild(text: str, db: Path) -> None:
    """The file that a dump describes."""
    with closing(sqlite3.connect(db)) as target:
        target.executescript(text)
        target.execute("PRAGMA journal_mode = WAL")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "golden.db")
        Path(sys.argv[1]).write_text(dump(Path(folder) / "golden.db"))
