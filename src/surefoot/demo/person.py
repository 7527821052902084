"""The person who resolves parked effects: looks where they would have happened, and says what was seen.

The evidence is the world's ledger alone. Surefoot is asked only which effects are parked, and is told the answer by
the command that a person would type.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from surefoot.demo.count import Line
from surefoot.demo.scenario import BY_TOOL

# What the installed `surefoot` script does; it works also where only the package is on the path.
SUREFOOT = (sys.executable, "-c", "import sys; from surefoot.cli import main; sys.exit(main())")

_COMMAND_SECONDS_MAX = 30.0


class _Effect(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    name: str
    run: str
    status: str


class _Doubt(msgspec.Struct, frozen=True, kw_only=True):
    effect: _Effect


class _Doubts(msgspec.Struct, frozen=True, kw_only=True):
    doubts: list[_Doubt]


def answer_doubts(store: Path, ledger: Sequence[Line], environment: Mapping[str, str]) -> int:
    """Resolves every parked effect in this store from what the ledger holds; returns how many."""
    listed = msgspec.json.decode(_surefoot(store, environment, "doubts", "--json"), type=_Doubts)
    parked = [doubt.effect for doubt in listed.doubts if doubt.effect.status == "parked"]
    for effect in parked:
        _surefoot(store, environment, "resolve", effect.run, effect.key, *_say(effect, ledger))
    return len(parked)


def _say(effect: _Effect, ledger: Sequence[Line]) -> list[str]:
    kind = BY_TOOL[effect.name].kind
    receipts = [line.receipt for line in ledger if line.event == "performed" and line.kind == kind]
    if receipts:
        return ["--happened", json.dumps(receipts[-1]), "--why", f"the ledger shows it among {kind}"]
    return ["--did-not-happen", "--why", f"the ledger shows no {kind}"]


def _surefoot(store: Path, environment: Mapping[str, str], *arguments: str) -> bytes:
    command = [*SUREFOOT, "--db", str(store), *arguments]
    finished = subprocess.run(
        command, env=dict(environment), capture_output=True, timeout=_COMMAND_SECONDS_MAX, check=False
    )
    if finished.returncode != 0:
        said = finished.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"surefoot {' '.join(arguments)} exited with {finished.returncode}: {said}")
    return finished.stdout
