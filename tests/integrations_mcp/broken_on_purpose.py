"""Breaks each rule of the MCP client and server on purpose, in a copy, and says which test goes red.

    python -m tests.integrations_mcp.broken_on_purpose

Exits 1 if a change survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Change(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`; `tests` must go red."""

    file: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]


CHANGES = [
    Change(
        "mcp_rules.py",
        "annotations count from any server",
        'return annotated(getattr(tool, "annotations", None)) if trusted else Rule(contract=opaque())',
        'return annotated(getattr(tool, "annotations", None))',
        ("test_rules.py",),
    ),
    Change(
        "mcp_rules.py",
        "nothing said means that a repeat does no harm",
        "Rule(contract=natural() if repeats else opaque())",
        "Rule(contract=natural())",
        ("test_rules.py",),
    ),
    Change(
        "mcp_rules.py",
        "any protocol error is a refusal",
        "    if code in REFUSING:",
        "    if code is not None and code != HEADER_MISMATCH:",
        ("test_rules.py",),
    ),
    Change(
        "mcp_protected.py",
        "a repeat runs the tool again",
        'return self._stored(cast("str", claim.result))\n            case Reused',
        "return await self._body(arguments)\n            case Reused",
        ("test_server.py",),
    ),
    Change(
        "mcp_protected.py",
        "the tool dies with its client",
        "return await asyncio.shield(task)",
        "return await task",
        ("test_server.py",),
    ),
    Change(
        "mcp_protected.py",
        "a failure means that nothing happened",
        "Move.RELEASE if undone else Move.LOSE",
        "Move.RELEASE",
        ("test_server.py",),
    ),
    Change(
        "mcp.py",
        "each try has a key of its own",
        "META_KEY: now.key, META_RUN",
        'META_KEY: f"{now.key}{now.number}", META_RUN',
        ("test_rows.py", "-k", "gap and keyed and killed_anywhere"),
    ),
]


def survives(change: Change) -> str:
    """What the tests said if they stayed green with the change; "" if one went red."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        shutil.copytree(ROOT / "tests" / "integrations_mcp", Path(folder) / "tests" / "integrations_mcp")
        file = Path(folder) / "src" / "surefoot" / "integrations" / change.file
        text = file.read_text("utf-8")
        assert text.count(change.old) == 1, (
            f"{change.file} holds {change.old!r} {text.count(change.old)} times, not once"
        )
        file.write_text(text.replace(change.old, change.new), "utf-8")
        tests = [f"tests/integrations_mcp/{change.tests[0]}", *change.tests[1:]]
        options = ["-q", "-x", "--timeout", "100", "-c", str(ROOT / "pyproject.toml"), "--rootdir", folder]
        env = {**os.environ, "PYTHONPATH": f"{folder}/src{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *tests]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        red = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        print(f"{change.what}: {red[0] if done.returncode == 1 and red else 'SURVIVED'}", flush=True)
        return "" if done.returncode == 1 and red else done.stdout[-2000:]


if __name__ == "__main__":
    sys.exit(bool([said for said in map(survives, CHANGES) if said and not print(said)]))
