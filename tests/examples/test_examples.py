"""Every example runs as it stands, in an empty folder, and prints exactly what the file beside it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))


def run_example(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    done = run_example(path, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == path.with_suffix(".out").read_text()
    assert done.stderr == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_on_a_screen_and_opens_with_what_it_shows(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60 and text.startswith('"""')


def test_no_output_is_left_without_its_example() -> None:
    assert {path.stem for path in HERE.glob("*.out")} == {path.stem for path in EXAMPLES}
