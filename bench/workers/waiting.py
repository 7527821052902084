"""Many runs that wait: what they cost the worker that carried them, and how late those that are due are woken.

The store is a PostgreSQL database (`--url`) or a SQLite file in `--dir`. The first process puts `--runs` runs into the
queue and works until all of them wait; a second one, which is the worker that is measured, finds them waiting and runs
`--n` short sleepers beside them. Both are workers as a user has them.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from protocol import arguments, percentile, rss_mb

import surefoot
from surefoot import Surefoot, step, workflow

DAY_SECONDS = 86_400.0
NAP_SECONDS = 0.5
PAUSE_SECONDS = 0.02
LOOK_SECONDS = 0.05
LANES = 32
late: list[float] = []


@step
def lie_down() -> float:
    return time.monotonic() + NAP_SECONDS


@step
def get_up(due: float) -> None:
    late.append((time.monotonic() - due) * 1e3)


@workflow
async def wait_long(number: int) -> None:
    await surefoot.sleep(DAY_SECONDS)


@workflow
def nap(number: int) -> None:
    due = lie_down()
    surefoot.sleep(NAP_SECONDS)
    get_up(due)


def put_to_wait(place: str, runs: int) -> dict[str, Any]:
    """Returns when every run has begun to wait and nobody has it."""
    with Surefoot(place) as sf:
        started = time.perf_counter()
        with sf.worker([wait_long], concurrency=1_000), ThreadPoolExecutor(LANES) as pool:
            begin = partial(sf.start, wait_long, queue="default")
            for _ in pool.map(lambda number: begin(number, id=f"wait-{number}"), range(runs)):
                pass
            while sf.list("pending", limit=1) or sf.list("running", limit=1):
                time.sleep(LOOK_SECONDS)
        seconds = time.perf_counter() - started
        waiting = len(sf.list("waiting", limit=runs + 1))
        return {"put_s": runs / seconds, "carrier_mb": rss_mb(), "waiting": waiting}


def wake(place: str, naps: int) -> dict[str, Any]:
    """How late each short sleeper was woken, with its queue, its claim and the replay of its journal."""
    with Surefoot(place) as sf, sf.worker([wait_long, nap]):
        for number in range(naps):
            sf.start(nap, number, id=f"nap-{number}", queue="default")
            time.sleep(PAUSE_SECONDS)
        while len(late) < naps:
            time.sleep(LOOK_SECONDS)
        return {"rss_mb": rss_mb(), "p50_ms": percentile(late, 50), "p99_ms": percentile(late, 99), "naps": len(late)}


def main() -> None:
    args = arguments(("async",))
    place = args.url or f"{args.dir}/surefoot.db"
    if args.work == "put":
        answer = put_to_wait(place, args.runs)
    elif args.work == "wake":
        answer = wake(place, args.n)
    else:
        answer = {}
        for work in ("put", "wake") if args.runs else ("wake",):
            line = [sys.executable, str(Path(__file__)), work, *sys.argv[2:]]
            answer |= json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
