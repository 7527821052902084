"""`python -m frameworks [NAME ...]`: make each environment, run its rows and its tests, and write down what happened.

Exits 1 when a kill did not happen, or when an arm with Surefoot did anything twice, lost anything, or paid too much.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from collections.abc import Sequence

from . import table
from .envs import megabytes, python_of, versions_in
from .layout import Framework, framework, names
from .measure import measure
from .pages import run_page
from .results import Measured, Result, save
from .tests import run_tests


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m frameworks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="frameworks; all, if none is named")
    parser.add_argument("--light", action="store_true", help="those that CI runs")
    parser.add_argument("--version", choices=["newest", "oldest"], help="one environment only")
    parser.add_argument("--row", action="append", default=[], help="only this row; may be repeated")
    parser.add_argument("--arm", action="append", default=[], help="only this arm; may be repeated")
    parser.add_argument("--no-tests", action="store_true", help="rows only")
    parser.add_argument("--no-rows", action="store_true", help="tests only")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write frameworks/results/NAME.json and the table; rows that were not measured now are kept",
    )
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--table", action="store_true", help="only make docs/frameworks/README.md from the results")
    told = parser.parse_args(arguments)
    chosen = [framework(name) for name in told.names or names()]
    chosen = [one for one in chosen if one.light or not told.light]
    if told.list:
        for one in chosen:
            print(f"{one.name:16} {one.title}; {one.by}; {len(one.arm)} arms; {', '.join(one.versions)}")
        return 0
    wrong: list[str] = []
    for one in [] if told.table else chosen:
        wrong += run(one, told)
    if told.table or told.save:
        print(f"wrote {table.write()}")
    for fault in wrong:
        print(f"\nFAULT {fault}")
    if not told.table:
        print(f"\nframeworks: {len(chosen)} measured, {len(wrong)} faults")
    return bool(wrong)


def run(one: Framework, told: argparse.Namespace) -> list[str]:
    """One framework in each of its environments."""
    if one.not_run:
        print(f"{one.name}: not run: {one.not_run}")
        return []
    wrong: list[str] = []
    rows: list[Measured] = []
    versions: dict[str, dict[str, str]] = {}
    tests: dict[str, dict[str, list[int]]] = {}
    size = 0
    for version in [told.version] if told.version else one.versions:
        began = time.monotonic()
        python = python_of(one, version)
        versions[version] = versions_in(python, one.packages)
        size = size or megabytes(python)
        print(
            f"\n{one.title}, {version}: {versions[version]} ({time.monotonic() - began:.0f} s to install)", flush=True
        )
        arms = [a for a in one.arm if version in a.versions and (not told.arm or a.name in told.arm)]
        if not told.no_rows:
            done, faults = measure(one, version, arms, told.row, Shown())
            rows, wrong = rows + done, wrong + faults
        if not told.no_tests and not told.row and not told.arm:
            tests[version], faults = run_tests(one, version, python)
            paged, unlike = run_page(one, version, python)
            tests[version] |= paged
            wrong += faults + unlike
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    if told.save:
        save(
            one,
            Result(
                framework=one.name,
                date=datetime.datetime.now(datetime.UTC).date().isoformat(),
                command=f"make test-frameworks ARGS={one.name}",
                python=platform.python_version(),
                versions=versions,
                megabytes=size,
                rows=rows,
                tests=tests,
            ),
        )
    return wrong


class Shown:
    """Prints each row as soon as it is measured, below the name of its arm."""

    def __init__(self) -> None:
        """Nothing is printed yet."""
        self.arm = ""

    def __call__(self, row: Measured) -> None:
        """Print this row."""
        if row.arm != self.arm:
            self.arm = row.arm
            print(f"  {row.arm}", flush=True)
        counts = "/".join(str(n) for n in row.effects.values())
        flag = "" if set(row.effects.values()) == {1} and row.ends[-1] == 0 else "  <--"
        calls = f"{row.model_calls:3} model calls  {row.kills} killed  ends {row.ends}  {row.seconds:.0f} s"
        print(f"    {row.row:20} {counts:8} {calls}{flag}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
