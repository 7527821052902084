"""The person who settles what is parked: looks into the shop's ledger, and says what was seen by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SUREFOOT = (sys.executable, "-c", "import sys; from surefoot.cli import main; sys.exit(main())")
SECONDS_MAX = 60


def settle(store: Path, receipt: str | None) -> int:
    """Resolve every parked effect of this store: it happened, with that receipt, or it did not; how many there were."""
    listed: Any = json.loads(_surefoot(store, "doubts", "--json"))
    parked = [d["effect"] for d in listed["doubts"] if d["effect"]["status"] == "parked"]
    for effect in parked:
        said = ["--did-not-happen"] if receipt is None else ["--happened", json.dumps(receipt)]
        _surefoot(store, "resolve", effect["run"], effect["key"], *said, "--why", "the shop's ledger")
    return len(parked)


def _surefoot(store: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*SUREFOOT, "--db", str(store), *arguments], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    if done.returncode:
        raise RuntimeError(f"surefoot {' '.join(arguments)} exited with {done.returncode}: {done.stderr}")
    return done.stdout
