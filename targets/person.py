"""The person who ends a doubt: looks into the receiver's ledger, and says what was seen with Surefoot's own command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from targets.shop import Shop

SUREFOOT = (sys.executable, "-c", "import sys; from surefoot.cli import main; sys.exit(main())")


def resolve_by_ledger(store: Path, shop: Shop) -> bool:
    """Resolve each parked effect of this store from the shop's ledger; True if there was one.

    An effect is found by the name of the shop's channel in its identity, or in its own name.
    """
    listed: dict[str, Any] = json.loads(_surefoot(store, "doubts", "--json"))
    parked = [doubt["effect"] for doubt in listed["doubts"] if doubt["effect"]["status"] == "parked"]
    for effect in parked:
        done = [
            line for line in shop.lines("performed") if line.name in f"{effect.get('identity', '')} {effect['name']}"
        ]
        receipt = {"receipt": f"receipt:{done[-1].name}:{done[-1].number}", "number": done[-1].number} if done else None
        said = ["--happened", json.dumps(receipt)] if receipt else ["--did-not-happen"]
        _surefoot(store, "resolve", effect["run"] or "-", effect["key"], *said, "--why", "so says the shop's ledger")
    return bool(parked)


def _surefoot(store: Path, *arguments: str) -> str:
    done = subprocess.run([*SUREFOOT, "--db", str(store), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"surefoot {' '.join(arguments)} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def approve_all(store: Path) -> bool:
    """Approve whatever waits for approval; True if there was something, False also while the store is being made."""
    try:
        listed: dict[str, Any] = json.loads(_surefoot(store, "approvals", "--json"))
    except RuntimeError:
        return False
    asked = [approval["id"] for approval in listed["approvals"]]
    for each in asked:
        _surefoot(store, "approve", each, "--why", "10 is fine")
    return bool(asked)
