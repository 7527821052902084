"""The tests of a framework's folder, run by its own environment; each may name the feature that it proves.

@pytest.mark.feature("approval")
def test_...

FRAMEWORKS_PYTHON is the interpreter that has all of Surefoot's own extras, such as `surefoot proxy`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .layout import Framework
from .measure import environment

SECONDS = 600


def run_tests(framework: Framework, version: str, python: Path) -> tuple[dict[str, list[int]], list[str]]:
    """[passed, failed] by feature ("" for those that name none), and what was wrong."""
    if not list(framework.folder.glob("test_*.py")):
        return {}, []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["-p", "frameworks.tests", "-q", "--timeout", "120", "--rootdir", str(framework.folder)]
        done = subprocess.run(
            [python, "-m", "pytest", *options, "-c", "/dev/null", "--import-mode=importlib", str(framework.folder)],
            env={**environment(framework), "FRAMEWORKS_REPORT": str(report), "FRAMEWORKS_PYTHON": sys.executable},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        counted: dict[str, list[int]] = json.loads(report.read_text()) if report.exists() else {}
    print(f"  {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else 'no test ran'}", flush=True)
    if done.returncode:
        return counted, [f"{framework.name} ({version}): its tests\n{done.stdout[-6000:]}"]
    return counted, []


# --- in the environment of the framework: a plugin of pytest -------------------------------------------------------

_counted: dict[str, list[int]] = {}


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "feature(name): the column of docs/frameworks/README.md that this proves")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        mark = item.get_closest_marker("feature")
        item.user_properties.append(("feature", mark.args[0] if mark else ""))


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and not report.failed:
        return
    feature = dict(report.user_properties).get("feature", "")
    _counted.setdefault(feature, [0, 0])[int(report.failed)] += 1


def pytest_sessionfinish() -> None:
    import os

    if path := os.environ.get("FRAMEWORKS_REPORT"):
        Path(path).write_text(json.dumps(_counted))
