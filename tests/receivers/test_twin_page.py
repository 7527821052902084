"""`docs/twins.md` says what is: its program prints what it shows, and its tables are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from surefoot.testing.twins import Fault

PAGE = Path(__file__).resolve().parents[2] / "docs" / "twins.md"


def test_the_program_on_the_page_prints_what_the_page_shows(tmp_path: Path) -> None:
    found = re.search(r"```python\n(# tickets\.py\n.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "tickets.py").write_text(found[1])
    done = subprocess.run([sys.executable, "tickets.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (found[2], "")


def test_every_fault_stands_on_the_page() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert named == set(Fault) - {Fault.NONE}
