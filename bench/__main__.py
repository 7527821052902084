"""`make bench`: a table of ratios measured side by side in one run, and the same as JSON.

Speed is not a test: the exit code is 0 whatever the figures are. A mark that was missed is shown as missed.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from bench import fleet, models, peers, rows
from bench.launch import ROOT, Bench, file_system
from bench.table import Line, render, tally

ROWS = {**rows.ROWS, **fleet.ROWS, **models.ROWS}
RESULT = ROOT / "bench" / "results" / "latest.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="which rows, such as 1,2,P3 (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only these engines, such as surefoot,bare")
    parser.add_argument("--long", action="store_true", help="peers resume 10,000 steps too")
    parser.add_argument(
        "--small", action="store_true", help="tiny counts, to see that it works: no figure means anything"
    )
    parser.add_argument("--profile", action="store_true", help="show where the time goes instead")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="seconds, all in all, to wait for moments when nothing else runs"
    )
    parser.add_argument("--dir", type=Path, help="where the databases go (default: a new folder under bench/)")
    parser.add_argument("--out", type=Path, default=RESULT)
    return parser.parse_args()


def measure(bench: Bench, wanted: list[str]) -> list[Line]:
    """A row that breaks is one line that says so."""
    lines: list[Line] = []
    for name in wanted:
        started = time.perf_counter()
        try:
            lines += ROWS[name](bench)
        except Exception as error:
            lines.append(Line(row=f"{name}. failed", who="bench", what="error", why=f"{type(error).__name__}: {error}"))
        print(f"row {name}: {time.perf_counter() - started:.0f} s", flush=True)
    return lines


def main() -> None:
    args = arguments()
    wanted = [name for name in args.rows.split(",") if name in ROWS]
    if args.dir:
        args.dir.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="surefoot-bench-", dir=args.dir or default_home()))
    only = tuple(filter(None, args.only.split(",")))
    bench = Bench(
        home=home, rounds=args.rounds, long=args.long, only=only, patience_seconds=args.patience, small=args.small
    )
    kind = file_system(home.resolve())
    names = ", ".join(peer.name for peer in peers.installed()) or "none"
    print(f"databases in {home} ({kind}), {args.rounds} rounds; peers: {names}")
    if kind in ("tmpfs", "ramfs"):
        print("WARNING: a sync costs nothing here; the ratios below say nothing about a disk")
    try:
        if args.profile:
            print(rows.profile(bench))
            lines: list[Line] = []
        else:
            lines = measure(bench, wanted)
            print(render(lines), f"{tally(lines)}\n{bench.company()}", sep="\n\n")
        about = {"file_system": kind, "at": time.time(), **rows.machine(bench)}
        record = {"machine": about, "lines": [line.as_json() for line in lines], "answers": bench.answers}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written to {args.out}")
    finally:
        bench.close()
        shutil.rmtree(home, ignore_errors=True)


def default_home() -> Path:
    """Not the system's temporary folder, which is often memory."""
    folder = ROOT / "bench" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
