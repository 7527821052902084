"""One definition of the work for every engine, and the form of its answer.

A worker is a script, `python bench/workers/NAME.py WORK --dir DIR [...]`, run by the engine's own interpreter; it
prints one JSON object as its last line. It may import nothing but this module, the standard library and its engine:
the environments share nothing else.

A step does nothing and returns VALUE, 200 bytes of JSON. It notes the time when its body is entered, so the gap between
two bodies of one run is the whole cost of a step as a user sees it: result encoded, stored, acknowledged, next body
entered.
"""

import argparse
import itertools
import json
import os
import resource
import signal
import sqlite3
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, MutableSequence
from typing import Any

VALUE = {"text": "x" * 188}
ENCODED = json.dumps(VALUE)
assert len(ENCODED) == 200
STEPS_PER_RUN = 20

entered: MutableSequence[float] = []
at: dict[int, Callable[[], None]] = {}  # what a body does besides: die here, report here
spawned_at = float(os.environ.get("BENCH_SPAWNED_AT", time.time()))


def body(number: int) -> dict[str, str]:
    """The no-op that every engine runs as a step; `number` is its place in its run."""
    entered.append(time.perf_counter())
    if number in at:
        at[number]()
    return VALUE


class Engine:
    """What a worker implements. A run is known by its name; each method returns when all of it is durable."""

    kinds: tuple[str, ...] = ("def",)
    url = ""
    """The PostgreSQL database to use, empty at first; "" where the engine keeps its records in `folder`."""

    def __init__(self, *, folder: str, kind: str, durability: str) -> None:
        self.folder, self.kind, self.durability = folder, kind, durability

    def open(self) -> None: ...

    def close(self) -> None: ...

    def sequence(self, name: str, count: int) -> None:
        """One run of `count` steps, one after the other."""
        raise NotImplementedError

    def resume(self, name: str, count: int) -> None:
        """The same run again, after its process died."""
        self.sequence(name, count)

    def effects(self, name: str, count: int) -> None:
        """One run of `count` effects, each of which may change the world once."""
        raise NotImplementedError

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        """`runs` runs of `count` steps each, all started before the first one ends."""
        raise NotImplementedError

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        """`runs` runs without steps, `lanes` at a time."""
        raise NotImplementedError

    def enqueue(self, name: str, count: int, seconds: float) -> None:
        """Put one run of `count` steps that last `seconds` each into the queue; its steps are `fleet.note`."""
        raise NotImplementedError

    def serve(self) -> None:
        """Work on what is in the queue until killed, with the engine's own settings."""
        raise NotImplementedError


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def gaps_us(skip: int = 0) -> list[float]:
    marks = list(entered)[skip:]
    return [(later - earlier) * 1e6 for earlier, later in itertools.pairwise(marks)]


def raw_commits_us(folder: str, url: str = "", count: int = 120) -> list[float]:
    """The limit: one INSERT of the same 200 bytes, committed alone; a fresh file, WAL, synchronous=FULL, or psycopg."""
    return raw_postgres_us(url, count) if url else raw_sqlite_us(folder, count)


def raw_postgres_us(url: str, count: int) -> list[float]:
    """psycopg as it comes: autocommit, and a statement that it prepares by itself after five times."""
    import psycopg

    times: list[float] = []
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS raw_commit (run bigint, number bigint, value text)")
        for number in range(count):
            started = time.perf_counter()
            db.execute("INSERT INTO raw_commit VALUES (1, %s, %s)", (number, ENCODED))
            times.append((time.perf_counter() - started) * 1e6)
    return times[8:]  # the first ones are not prepared


def raw_sqlite_us(folder: str, count: int) -> list[float]:
    path = f"{folder}/raw-commit.tmp"
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE entry (run INTEGER, number INTEGER, value TEXT)")
    times: list[float] = []
    for number in range(count):
        started = time.perf_counter()
        connection.execute("INSERT INTO entry VALUES (1, ?, ?)", (number, ENCODED))
        times.append((time.perf_counter() - started) * 1e6)
    connection.close()
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
    return times


def written_bytes() -> int | None:
    """Bytes this process caused to be written to storage; None where the system does not say."""
    try:
        with open("/proc/self/io") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    except OSError:
        return None


def rss_mb() -> float:
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    except OSError:
        return peak_rss_mb()


def peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def one_after_the_other(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Raw commits and runs take turns, since a disk drifts within a second."""
    run = engine.effects if args.work == "effects" else engine.sequence
    run("warm", 20)
    turns = min(4, max(1, args.n // 50))
    steps = args.n // turns
    raw, gaps, cpu_seconds, bodies = raw_commits_us(args.dir, args.url), list[float](), 0.0, 0
    for turn in range(turns):
        entered.clear()
        cpu = time.process_time()
        run(f"measured{turn}", steps)
        cpu_seconds += time.process_time() - cpu
        bodies += len(entered)
        gaps += gaps_us(skip=5)
        raw += raw_commits_us(args.dir, args.url)
    p50, raw_us = percentile(gaps, 50), percentile(raw, 50)
    return {
        "bodies": bodies, "p50_us": p50, "p99_us": percentile(gaps, 99), "cpu_us": cpu_seconds / bodies * 1e6,
        "raw_us": raw_us, "raw_p99_us": percentile(raw, 99), "ratio": p50 / raw_us,
    }  # fmt: skip


def many_at_once(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    engine.at_once("warm", 4, STEPS_PER_RUN)
    entered.clear()
    written, cpu, started = written_bytes(), time.process_time(), time.perf_counter()
    for turn in range(args.repeat):
        engine.at_once(f"turn{turn}", args.runs, STEPS_PER_RUN)
    seconds, cpu_seconds, now_written = time.perf_counter() - started, time.process_time() - cpu, written_bytes()
    steps = args.repeat * args.runs * STEPS_PER_RUN
    return {
        "steps": steps, "bodies": len(entered), "seconds": seconds, "steps_s": steps / seconds,
        "cpu_us": cpu_seconds / steps * 1e6, "peak_rss_mb": peak_rss_mb(),
        "written_bytes": None if written is None or now_written is None else (now_written - written) / steps,
    }  # fmt: skip


def empty_runs(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    engine.empty("warm", 10, 1)
    started = time.perf_counter()
    engine.empty("alone", args.n, 1)
    alone = args.n / (time.perf_counter() - started)
    runs = args.n * args.repeat
    started = time.perf_counter()
    engine.empty("together", runs, 100)
    return {"runs": runs, "alone_s": alone, "together_s": runs / (time.perf_counter() - started)}


def die_in_body(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    at[args.n] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    engine.sequence("killed", args.n + 1)
    return {"error": "the body that kills was never entered"}


def resume_to_body(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Ends inside the body: only the way there is timed. `bodies_before` counts acknowledged steps that ran again."""

    def report() -> None:
        print(json.dumps({
            "import_ms": (imported_at - spawned_at) * 1e3, "reached_ms": (time.time() - spawned_at) * 1e3,
            "resume_ms": (time.time() - imported_at) * 1e3, "bodies_before": len(entered) - 1,
        }), flush=True)  # fmt: skip
        os._exit(0)

    at[args.n] = report
    engine.resume("killed", args.n + 1)
    return {"error": "the body after the last recorded one was never entered"}


def growing(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Step n beside step 10.

    The disk drifts in the seconds between, so step 10 of a short run started right after is the yardstick.
    """
    window = min(500, args.n // 4)
    engine.sequence("warm", 200)

    def median_of_short_run(name: str) -> float:
        entered.clear()
        engine.sequence(name, window + 10)
        return statistics.median(gaps_us(skip=9))

    early = median_of_short_run("before")
    entered.clear()
    started = time.perf_counter()
    engine.sequence("grown", args.n)
    seconds = time.perf_counter() - started
    gaps = gaps_us()
    head, late = statistics.median(gaps[9 : 9 + window]), statistics.median(gaps[-window:])
    fresh = median_of_short_run("after")
    return {
        "bodies": args.n, "step_10_us": head, "step_n_us": late, "fresh_step_10_us": fresh, "seconds": seconds,
        "before_step_10_us": early, "over_step_10": late / head, "over_fresh_step_10": late / fresh,
    }  # fmt: skip


def remembering(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Resident memory along one long run. The times of the bodies are not kept: they would be the memory measured."""
    global entered
    entered = deque(maxlen=1)
    seen: dict[int, float] = {}

    def look(number: int) -> Callable[[], None]:
        def note() -> None:
            seen[number] = rss_mb()

        return note

    places = {max(1, args.n // 10), args.n // 2, args.n - 1}
    at.update({number: look(number) for number in places})
    started = time.perf_counter()
    engine.sequence("long", args.n)
    seconds = time.perf_counter() - started
    first, middle, last = (seen[number] for number in sorted(places))
    return {
        "steps": args.n, "first_mb": first, "middle_mb": middle, "last_mb": last, "peak_rss_mb": peak_rss_mb(),
        "bytes_per_step": (last - first) * 1024 * 1024 / (args.n * 0.9), "seconds": seconds,
    }  # fmt: skip


def resting(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    engine.sequence("resting", args.n)
    return {"bodies": len(entered)}


WORKS: dict[str, Callable[[Engine, argparse.Namespace], dict[str, Any]]] = {
    "sequence": one_after_the_other,
    "effects": one_after_the_other,
    "at_once": many_at_once,
    "empty": empty_runs,
    "killed": die_in_body,
    "resumed": resume_to_body,
    "growth": growing,
    "memory": remembering,
    "rest": resting,
}


def arguments(kinds: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--dir", required=True, help="an empty folder for the engine's files")
    parser.add_argument("--n", type=int, default=300, help="steps in the run, or runs")
    parser.add_argument("--runs", type=int, default=100, help="runs at once")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--kind", choices=kinds, default=kinds[0])
    parser.add_argument("--durability", choices=("sync", "pipelined"), default="sync")
    parser.add_argument("--url", default="", help="a PostgreSQL database, for the engine and for the raw commit")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long a queued step lasts")
    parser.add_argument("--profile", action="store_true", help="the functions that take the time, instead of figures")
    return parser.parse_args()


def main(make: type[Engine]) -> None:
    global imported_at
    imported_at = time.time()
    args = arguments(make.kinds)
    os.makedirs(args.dir, exist_ok=True)
    engine = make(folder=args.dir, kind=args.kind, durability=args.durability)
    engine.url = args.url
    if args.profile:
        from profiling import profiled

        answer = profiled(engine, args)
    else:
        from fleet import FLEET_WORKS

        engine.open()
        try:
            answer = {**WORKS, **FLEET_WORKS}[args.work](engine, args)
        finally:
            engine.close()  # an engine that is a server must not outlive this process
    print(json.dumps({"work": args.work, "kind": args.kind, **answer}), flush=True)
    os._exit(0)  # no peer's background thread may keep the process


imported_at = spawned_at
