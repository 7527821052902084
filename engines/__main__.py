"""`python -m engines`: install environments, run the rows, check the rest, write the table of docs/inside.md."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from engines.checking import PLACES, check
from engines.envs import ENVIRONMENTS, NotInstalled, install, versions
from engines.matrix import ENGINES, Engine, measure
from engines.page import write_page
from surefoot import __version__
from targets.results import Result, Row, save

RESULTS = Path(__file__).resolve().parent / "results"


def installed(engine: Engine) -> dict[str, str]:
    """The versions that a result is of; makes the environment if it is not there."""
    found = {"surefoot": __version__, "python": platform.python_version()}
    if engine.env:
        install(ENVIRONMENTS[engine.env])
        found |= versions(ENVIRONMENTS[engine.env])
    return found


def run(engine: Engine, tries: int, arms: tuple[str, ...], together: int) -> None:
    """Measure one engine and save its result, unless only some of its arms were asked for."""
    print(f"{engine.title}:", flush=True)
    used, started = installed(engine), time.monotonic()
    rows: list[Row] = []
    for row in measure(engine, tries, arms, together):
        rows.append(row)
        print(f"{row.arm} | {row.row} | {row.seen} | {row.verdict} | {row.good} of {row.tries}", flush=True)
        for complaint in row.complaints():
            print(f"  NOT PROVED: {complaint}", flush=True)
    if arms:
        return
    at_once = f" --together {together}" if together > 1 else ""
    result = Result(
        target=engine.name,
        date=datetime.now(UTC).date().isoformat(),
        command=f"python -m engines run {engine.name} --tries {tries}{at_once}",
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        versions=used,
        seconds=round(time.monotonic() - started, 1),
        rows=rows,
        note=engine.title,
    )
    save(RESULTS / f"{engine.name}.json", result)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines", description=__doc__)
    parser.add_argument("command", choices=("install", "run", "check", "page"))
    parser.add_argument("names", nargs="*", help=f"only these: {', '.join(ENGINES)}")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--together", type=int, default=1, help="so many tries of a row at once")
    parser.add_argument("--arms", default="", help="only these arms, with commas between; nothing is saved")
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(ENGINES)):
        parser.error(f"unknown {', '.join(unknown)}; known are {', '.join(ENGINES)}")
    chosen = [ENGINES[name] for name in args.names or ENGINES]
    failed = 0
    if args.command == "check":
        failed = sum(not check(env) for env in PLACES)
    elif args.command != "page":
        for engine in chosen:
            try:
                if args.command == "install":
                    installed(engine)
                else:
                    run(engine, args.tries, tuple(filter(None, args.arms.split(","))), args.together)
            except NotInstalled as error:
                failed += 1
                print(f"{engine.name}: {error}", file=sys.stderr)
    write_page()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
