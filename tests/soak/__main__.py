"""`python -m tests.soak`: the whole soak on a private PostgreSQL; its sizes are flags."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from surefoot.testing.postgres import PrivatePostgres
from tests.soak.soak import Plan, soak


def main() -> None:
    """Print what was done and the table of counts; ends with an error where something does not hold."""
    flags = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    flags.add_argument("--runs", type=int, default=2000)
    flags.add_argument("--workers", type=int, default=4)
    flags.add_argument("--concurrency", type=int, default=16)
    flags.add_argument("--kill-every", type=float, default=2.0)
    flags.add_argument("--pause-every", type=float, default=11.0)
    flags.add_argument("--restart-every", type=float, default=15.0)
    flags.add_argument("--seconds-max", type=float, default=1800.0)
    flags.add_argument("--seed", type=int, default=20261203)
    flags.add_argument("--sqlite", action="store_true", help="on one SQLite file instead; nothing is restarted")
    flags.add_argument("--no-fsync", action="store_true", help="a faster PostgreSQL; a kill loses nothing either")
    asked = vars(flags.parse_args())
    sqlite, no_fsync = asked.pop("sqlite"), asked.pop("no_fsync")
    plan = Plan(**asked)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if sqlite:
            report = soak(plan, str(folder / "soak.db"), folder)
        else:
            with PrivatePostgres(fsync=not no_fsync) as server:
                report = soak(plan, server.url, folder, server)
    print("\n".join(report.lines()))


if __name__ == "__main__":
    main()
