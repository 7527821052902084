"""Runs one worker at a time, each in a fresh process, on a fresh folder, with its own engine's interpreter.

A worker that fails is a line that says so; it never ends the benchmark.
"""

import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench import peers
from surefoot.testing.postgres import PrivatePostgres

ROOT = Path(__file__).resolve().parent.parent
WORKERS = ROOT / "bench" / "workers"
Answer = dict[str, Any]
T = TypeVar("T")
# The server's own defaults where they differ from those of a test server, and room for ten workers' connections.
POSTGRES = {"shared_buffers": "128MB", "max_connections": "300", "log_min_messages": "fatal"}
BUSY_CORES = 0.3
QUIET_WAIT_SECONDS = 20.0
DEF, ASYNC = "surefoot, def", "surefoot, async def"
GROUP, INLINE = "bare group commit", "bare inline commit"


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """An engine in one of its kinds, as it appears in the table."""

    name: str
    engine: str
    worker: str
    python: str
    kind: str = ""
    durability: str = "sync"
    wants_database: bool = False
    """True if it is given an empty PostgreSQL database: to keep its records in, or for the raw commit beside it."""


def ours(kind: str, *, durability: str = "sync", label: str | None = None, postgres: bool = False) -> Contestant:
    return Contestant(
        name=label or (ASYNC if kind == "async" else DEF),
        engine="surefoot",
        worker="ours.py",
        python=sys.executable,
        kind=kind,
        durability=durability,
        wants_database=postgres,
    )


def bare(kind: str, *, postgres: bool = False) -> Contestant:
    name, worker = GROUP if kind == "group" else INLINE, "bare_pg.py" if postgres else "bare.py"
    return Contestant(
        name=name, engine="bare", worker=worker, python=sys.executable, kind=kind, wants_database=postgres
    )


def others(*, keeps: str = "sqlite", **kinds: str) -> list[Contestant]:
    """The peers that are installed and keep records there; `kinds` says in which kind, for those that have several."""
    return [
        Contestant(
            name=peer.name,
            engine=peer.name,
            worker=peer.worker,
            python=str(peer.python),
            kind=kinds.get(peer.name, ""),
            wants_database=keeps != "sqlite",
        )
        for peer in peers.installed()
        if keeps in peer.keeps
    ]


@dataclass(kw_only=True)
class Bench:
    """The settings of one benchmark, and every answer it got."""

    home: Path
    rounds: int
    long: bool
    patience_seconds: float = 0.0
    only: tuple[str, ...] = ()
    small: bool = False
    """Tiny counts in the rows on PostgreSQL: to see that they work."""
    answers: list[Answer] = field(default_factory=list)
    server: PrivatePostgres | None = None

    def database(self) -> str:
        """The URL of a new, empty database on a server of the benchmark's own, with fsync on."""
        if self.server is None:
            self.server = PrivatePostgres(settings=POSTGRES)
            self.server.start()
        return self.server.create_database()

    def close(self) -> None:
        if self.server is not None:
            self.server.close()

    def count(self, full: int, small: int) -> int:
        return small if self.small else full

    def folder(self) -> str:
        return tempfile.mkdtemp(prefix="run-", dir=self.home)

    def keep(self, contestants: list[Contestant]) -> list[Contestant]:
        return [one for one in contestants if not self.only or one.engine in self.only]

    def ask(self, who: Contestant, work: str, *options: str, folder: str | None = None, limit: float = 240) -> Answer:
        """One worker's answer, or `error` in its place. The folder is removed unless the caller gave it."""
        if who.wants_database and "--url" not in options:
            options = (*options, "--url", self.database())
        own = folder is None
        place = self.folder() if folder is None else folder
        try:
            answer, cores = self.beside(lambda: run_worker(command(who, work, place, *options), limit))
        finally:
            if own:
                shutil.rmtree(place, ignore_errors=True)
        record = {"who": who.name, "work": work, "options": list(options), "others_cores": cores, **answer}
        self.answers.append(record)
        return record

    def beside(self, measure: Callable[[], T]) -> tuple[T, float | None]:
        """Wait for a quiet moment, measure, and say how many processors other work used meanwhile."""
        self.patience_seconds -= wait_for_quiet(min(self.patience_seconds, QUIET_WAIT_SECONDS))
        used, started, times = cpu_seconds_used(), time.perf_counter(), os.times()
        result = measure()
        seconds, now = time.perf_counter() - started, os.times()
        mine = sum(now[:4]) - sum(times[:4])  # this process and the children it has waited for
        after = cpu_seconds_used()
        if used is None or after is None:
            return result, None
        return result, max(0.0, after - used - mine) / seconds

    def company(self) -> str:
        """How much else went on: ratios are doubtful where that is much, however carefully the engines take turns."""
        cores = [answer["others_cores"] for answer in self.answers if answer.get("others_cores") is not None]
        if not cores:
            return "what else this machine did is not known"
        quiet = sum(some <= BUSY_CORES for some in cores)
        return (
            f"other work used {statistics.median(cores):.2f} cores [{min(cores):.2f}..{max(cores):.2f}]; {quiet} of "
            f"{len(cores)} measurements were quiet (at most {BUSY_CORES}); where an engine has some, only those count"
        )


def is_quiet(answer: Answer) -> bool:
    return (answer.get("others_cores") or 0.0) <= BUSY_CORES


def command(who: Contestant, work: str, folder: str, *options: str) -> list[str]:
    line = [who.python, str(WORKERS / who.worker), work, "--dir", folder, "--durability", who.durability]
    return [*line, *(("--kind", who.kind) if who.kind else ()), *options]


def cpu_seconds_used() -> float | None:
    """Of all processors together, since the machine started; None where the system does not say."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(seconds: float) -> float:
    """Wait until the machine has been nearly idle for a quarter of a second, `seconds` at most; how long it took."""
    started = time.perf_counter()
    while (waited := time.perf_counter() - started) < seconds:
        before = cpu_seconds_used()
        time.sleep(0.25)
        after = cpu_seconds_used()
        if before is None or after is None or (after - before) / 0.25 < BUSY_CORES:
            break
    return waited


def environment() -> dict[str, str]:
    """`src` first, so that a checkout is measured even where nothing is installed.

    Bytecode may be written, as it is where a package is installed: else every import would pay for compiling.
    """
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "BENCH_SPAWNED_AT": repr(time.time())}


def run_worker(line: list[str], limit: float) -> Answer:
    process = subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"error": f"no answer after {limit:.0f} s"}
    for text in reversed(out.splitlines()):
        if text.startswith("{"):
            return json.loads(text)
    last = (err.strip().splitlines() or ["no output"])[-1]
    return {"error": last[:300], "exit": process.returncode}


def bytes_in_use(folder: str) -> int:
    """What the engine's SQLite files hold once their WAL is written back; pages on the free list do not count."""
    total = 0
    for path in Path(folder).rglob("*"):
        if not path.is_file() or path.read_bytes()[:15] != b"SQLite format 3":
            continue
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        connection.close()
        total += (pages - free) * size
    return total


def file_system(folder: Path) -> str:
    """The type under the folder: a sync on tmpfs costs nothing, so figures from there mean nothing."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in mounts:
        _, mount, type_, *_ = line.split()
        inside = mount == "/" or f"{folder}/".startswith(f"{mount}/")
        if inside and len(mount) >= len(best):
            best, kind = mount, type_
    return kind
