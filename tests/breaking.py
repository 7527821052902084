"""Breaks safety rules on purpose, one at a time in a copy of the tree, and says which test sees it.

    python -m tests.breaking                            # every area, about three hours
    python -m tests.breaking proxy crashtest            # these
    python -m tests.proxy.broken_on_purpose token       # those of one area whose description holds a word

A change counts as seen only if the same tests pass without it, and pytest names a test that FAILED with it. An error
while tests are collected, a time-out, a pytest that ends in any other way: none of them counts. The checkout is never
written to, so a run that is killed leaves nothing broken behind. Exits 1 unless each change was seen.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 600
FAILED = re.compile(r"^FAILED (\S+?::.+?)(?: - (.*))?$", re.MULTILINE)
TIMED_OUT = re.compile(r"\bTimeout\b.*pytest-timeout|^Failed: Timeout")
OPTIONS = ("-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--timeout=120")


class Area(NamedTuple):
    """Where files and tests of some changes lie. A change that names no test of its own is shown to all `suites`."""

    code: str
    tests: str
    suites: tuple[tuple[str, ...], ...] = ()


class Change(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`; with several, each does.

    `tests` are those that should see it: a file or folder below the area's, and perhaps `-k` with an expression.
    """

    what: str
    file: str
    old: str | tuple[str, ...]
    new: str
    tests: str = ""
    rule: str = ""


class Seen(NamedTuple):
    """The test that failed; or, where none did, why that proves nothing."""

    test: str
    why: str = ""


def broken(area: Area, change: Change, root: Path = ROOT) -> tuple[Path, str]:
    """(the file, its text with the rule broken). Raises ValueError where the change does not fit the code."""
    file = root / area.code / change.file
    text = file.read_text("utf-8")
    for old in (change.old,) if isinstance(change.old, str) else change.old:
        if text.count(old) != 1 or old == change.new:
            raise ValueError(
                f"{change.what}: {change.file} should hold once, and not as what it becomes, {old!r}; "
                f"it holds it {text.count(old)} times"
            )
        text = text.replace(old, change.new)
    return file, text


@contextmanager
def copied() -> Iterator[Path]:
    """The tree as it stands, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory(prefix="surefoot-broken-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            target = Path(folder, name)
            if (ROOT / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target)
        yield Path(folder)


class Breaker:
    """Runs tests in one copy of the tree, broken or not."""

    def __init__(self, copy: Path) -> None:
        """Raises RuntimeError where Python would import Surefoot from anywhere else."""
        self._copy = copy
        paths = f"{copy / 'src'}{os.pathsep}{copy}"
        self._env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "2000"}
        self._whole: dict[tuple[str, ...], str] = {}
        found = self._python("-c", "import surefoot; print(surefoot.__file__)").stdout.strip()
        if not found.startswith(str(copy)):
            raise RuntimeError(f"surefoot is imported from {found or 'nowhere'}, not from the copy in {copy}")

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self._copy,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
        )

    def _run(self, tests: tuple[str, ...]) -> Seen:
        """The named test that failed, or why none did; both are empty when all passed."""
        try:
            done = self._python("-m", "pytest", *OPTIONS, *tests)
        except subprocess.TimeoutExpired:
            return Seen("", f"pytest took more than {SECONDS_MAX} s")
        return judged(done.returncode, done.stdout, done.stderr)

    def whole(self, tests: tuple[str, ...]) -> str:
        """ "" if these tests pass with nothing broken; asked once for each."""
        if tests not in self._whole:
            red = self._run(tests)
            self._whole[tests] = red.why or (f"{red.test} fails without it, too" if red.test else "")
        return self._whole[tests]

    def look(self, area: Area, change: Change) -> Seen:
        """Break it, run its tests until one sees it, and put it right again."""
        file, text = broken(area, change, self._copy)
        right = file.read_text("utf-8")
        seen = Seen("", "no test")
        for tests in given_to(area, change):
            if why := self.whole(tests):
                return Seen("", why)
            file.write_text(text, "utf-8")
            try:
                seen = self._run(tests)
            finally:
                file.write_text(right, "utf-8")
            if seen.test or seen.why:
                return seen
        return seen


def given_to(area: Area, change: Change) -> Sequence[tuple[str, ...]]:
    """What pytest is given, one suite after the other."""
    if not change.tests:
        return area.suites
    file, *words = change.tests.split(" ", 2)
    return [("/".join(filter(None, [area.tests, file])), *words)]


def judged(code: int, out: str, err: str) -> Seen:
    """What a run of pytest proves."""
    if code == 0:
        return Seen("")
    found = FAILED.search(out) if code == 1 else None
    if found is None:
        last = " ".join((out + err).split())[-300:]
        return Seen("", f"pytest ended with {code} and named no test that failed: {last}")
    if TIMED_OUT.search(found[2] or ""):
        return Seen("", f"{found[1]} timed out")
    return Seen(found[1])


def run(area: Area, changes: Sequence[Change], words: Sequence[str] = ()) -> int:
    """Try each change that a word picks, and print a row of a table for it; how many were not seen."""
    chosen = [c for c in changes if not words or any(word == c.rule or word in c.what for word in words)]
    missed = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, and tests inherit that
    with copied() as copy:
        breaker = Breaker(copy)
        for change in chosen:
            seen = breaker.look(area, change)
            missed += not seen.test
            told = f"`{seen.test}`" if seen.test else f"NOT SEEN {seen.why}".strip()
            print("| " + " | ".join([*filter(None, [change.rule]), change.what, told]) + " |", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} changes were seen", flush=True)
    return missed


def main(area: Area, changes: Sequence[Change]) -> None:
    """The command line of one area."""
    sys.exit(1 if run(area, changes, sys.argv[1:]) else 0)


def areas() -> dict[str, tuple[Area, Sequence[Change]]]:
    """Every list of changes, by the folder of its tests; the one of the core is called `core`."""
    found: dict[str, tuple[Area, Sequence[Change]]] = {}
    for file in [ROOT / "tests" / "broken_on_purpose.py", *sorted(ROOT.glob("tests/*/broken_on_purpose.py"))]:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        module = importlib.import_module(name)
        found["core" if file.parent.name == "tests" else file.parent.name] = module.AREA, module.CHANGES
    return found


if __name__ == "__main__":
    every = areas()
    wanted = sys.argv[1:] or list(every)
    if unknown := [name for name in wanted if name not in every]:
        sys.exit(f"there are no changes for {', '.join(unknown)}; there are some for {', '.join(every)}")
    count = 0
    for each in wanted:
        print(f"{each}:", flush=True)
        count += run(*every[each])
    sys.exit(1 if count else 0)
