"""Runs one worker at a time, each in a fresh process, on a fresh folder, with its own engine's interpreter.

A worker that fails is a line that says so; it never ends the benchmark.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import peers

ROOT = Path(__file__).resolve().parent.parent
WORKERS = ROOT / "bench" / "workers"
Answer = dict[str, Any]
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


def ours(kind: str, *, durability: str = "sync", label: str | None = None) -> Contestant:
    return Contestant(
        name=label or (ASYNC if kind == "async" else DEF),
        engine="surefoot",
        worker="ours.py",
        python=sys.executable,
        kind=kind,
        durability=durability,
    )


def bare(kind: str) -> Contestant:
    name = GROUP if kind == "group" else INLINE
    return Contestant(name=name, engine="bare", worker="bare.py", python=sys.executable, kind=kind)


def others(**kinds: str) -> list[Contestant]:
    """The peers that are installed; `kinds` says in which kind, for those that have several."""
    return [
        Contestant(
            name=peer.name,
            engine=peer.name,
            worker=peer.worker,
            python=str(peer.python),
            kind=kinds.get(peer.name, ""),
        )
        for peer in peers.installed()
    ]


@dataclass(kw_only=True)
class Bench:
    """The settings of one benchmark, and every answer it got."""

    home: Path
    rounds: int
    long: bool
    only: tuple[str, ...] = ()
    answers: list[Answer] = field(default_factory=list)

    def folder(self) -> str:
        return tempfile.mkdtemp(prefix="run-", dir=self.home)

    def keep(self, contestants: list[Contestant]) -> list[Contestant]:
        return [one for one in contestants if not self.only or one.engine in self.only]

    def ask(self, who: Contestant, work: str, *options: str, folder: str | None = None, limit: float = 240) -> Answer:
        """One worker's answer, or `error` in its place. The folder is removed unless the caller gave it."""
        own = folder is None
        place = self.folder() if folder is None else folder
        try:
            answer = run_worker(command(who, work, place, *options), limit)
        finally:
            if own:
                shutil.rmtree(place, ignore_errors=True)
        self.answers.append({"who": who.name, "work": work, "options": list(options), **answer})
        return answer


def command(who: Contestant, work: str, folder: str, *options: str) -> list[str]:
    line = [who.python, str(WORKERS / who.worker), work, "--dir", folder, "--durability", who.durability]
    return [*line, *(("--kind", who.kind) if who.kind else ()), *options]


def environment() -> dict[str, str]:
    """`src` first, so that a checkout is measured even where nothing is installed."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "BENCH_SPAWNED_AT": repr(time.time())}


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
