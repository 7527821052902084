"""The runner: `python -m targets [list | install | run | page] [NAME ...]`.

`run` makes the environments that are missing, measures each named target (without names: all of
them, or those of `--by`), replaces its `results.json`, and writes docs/kill-anywhere.md.
Exit codes: 0, or 1 if a row proves nothing, a target could
not be measured, or `page --check` finds the page out of date.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from targets import envs, page, results
from targets.bench import Bench
from targets.layout import ENVS, ROOT, Target, every


def main() -> int:
    """One command."""
    args = _arguments()
    chosen = _choose(args.names, by=args.by)
    match args.command:
        case "list":
            for target in chosen:
                print(f"{target.name:18} {target.by:16} {target.title}")
            return 0
        case "install":
            for target in chosen:
                print(f"{target.name}: {', '.join(target.envs) or 'needs no environment'}", flush=True)
                envs.install(target)
            return 0
        case "page":
            return page.check() if args.check else page.write()
    failed = [target.name for target in chosen if not _run(target, args)]
    if not args.no_save:
        page.write()
    if failed:
        print(f"not measured: {', '.join(failed)}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m targets", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("list", "install", "run", "page"), default="run")
    parser.add_argument("names", nargs="*", help="only these targets")
    parser.add_argument("--by", default=None, help="only those that this make target runs")
    parser.add_argument(
        "--only", default="", help="only arms that fit this pattern, or ARM: ROW; the others keep their rows"
    )
    parser.add_argument("--keep", action="store_true", help="keep each world's folder, and say where")
    parser.add_argument("--no-save", action="store_true", help="measure and print, and replace nothing")
    parser.add_argument("--check", action="store_true", help="page: write nothing, exit 1 if it would change")
    return parser.parse_intermixed_args()  # names may stand behind options, as in `make targets ARGS=NAME`


def _choose(names: list[str], *, by: str | None) -> list[Target]:
    known = {target.name: target for target in every()}
    if strange := [name for name in names if name not in known]:
        raise SystemExit(f"no such target: {', '.join(strange)}; there are {', '.join(known)}")
    if names:
        return [known[name] for name in names]
    return [target for target in known.values() if by is None or target.by == by]


def _run(target: Target, args: argparse.Namespace) -> bool:
    """Measure one target and save it; False, with the reason printed, if that was not possible."""
    scratch = Path(tempfile.mkdtemp(prefix=f"target-{target.name}-", dir=os.environ.get("TARGETS_SCRATCH")))
    started = time.monotonic()
    print(f"\n{target.name}: {target.title}", flush=True)
    try:
        envs.install(target)
        rows: list[results.Row] = []
        for row in measure_of(target)(Bench(target=target, scratch=scratch, only=args.only)):
            rows.append(row)
            print(f"  {row.arm:34} {row.row:38} {row.seen:16} {row.good} of {row.tries}  {row.verdict}", flush=True)
        result = results.Result(
            target=target.name,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            command=f"python -m targets run {target.name}" + (f" --only {args.only!r}" if args.only else ""),
            machine=f"{os.cpu_count()} cores, {platform.system()}",
            versions=envs.versions(target),
            seconds=round(time.monotonic() - started, 1),
            rows=rows,
        )
        if args.only and target.results.exists():
            result = results.merged(results.read(target.results), result, by_row=": " in args.only)
        if not args.no_save:
            if result.complaints():
                print(f"  refused; all rows are in {results.keep_refused(result, ENVS)}", flush=True)
            results.save(target.results, result)
        else:
            print("\n".join(result.complaints()))
        return not result.complaints()
    except Exception:
        traceback.print_exc()
        return False
    finally:
        forget_modules(target)
        if args.keep:
            print(f"  kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)


def forget_modules(target: Target) -> None:
    """Targets may name their modules alike: what this one imported from its folder must not be the next one's."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{target.folder}{os.sep}"):
            del sys.modules[name]


def measure_of(target: Target) -> Any:
    """The function `measure` of the target's run.py, whose folder its own modules are imported from."""
    sys.path.insert(0, str(target.folder))
    spec = importlib.util.spec_from_file_location(f"target_{target.name.replace('-', '_')}", target.folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(target.folder))
    return module.measure


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
