"""The rows on PostgreSQL: one process, several processes that share a queue, and many runs that wait.

A fleet is measured from what its steps noted, never from what an engine says of itself. All workers are started first
and wait at a gate, so that no engine is charged for its imports; what they work on lies in the queue already.
"""

import os
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench import peers
from bench.launch import (
    ASYNC,
    DEF,
    GROUP,
    Answer,
    Bench,
    Contestant,
    bare,
    command,
    environment,
    others,
    ours,
)
from bench.rows import Figures, take_turns
from bench.table import Line, Mark
from bench.workers.protocol import percentile

LOOK_SECONDS = 0.01
READY_SECONDS_MAX = 30.0
ROW_SECONDS_MAX = 60.0
TAKEOVER_SECONDS_MAX = 40.0
LEASE_SECONDS = 15.0


def peers_here(**kinds: str) -> list[Contestant]:
    """Those that use the same PostgreSQL, and those that are a server with a store of its own."""
    return [*others(keeps="postgres", **kinds), *others(keeps="own")]


def with_queue() -> list[Contestant]:
    shared = {peer.name for peer in peers.PEERS if peer.queue}
    queued = [peer for peer in others(keeps="postgres") if peer.name in shared]
    return [ours("async", postgres=True), bare("group", postgres=True), *queued]


# --- one process ------------------------------------------------------------------------------------------------


def in_sequence(bench: Bench) -> list[Line]:
    row = "P1. PostgreSQL, one run in sequence: p50 of a step over a raw psycopg INSERT, in turns"
    marks = {DEF: Mark(at_most=1.5)}
    contestants = [
        *(ours(kind, postgres=True) for kind in ("def", "async")),
        *(bare(kind, postgres=True) for kind in ("inline", "group")),
        *peers_here(langgraph="graph"),
    ]

    def options(who: Contestant) -> tuple[str, ...]:
        few = bench.count(60 if who.engine == "temporal-dev" else 200, 20)
        return "--n", str(few if who.engine not in ("surefoot", "bare") else bench.count(600, 40))

    figures = take_turns(bench, row, contestants, "sequence", options)
    lines: list[Line] = []
    for name in figures.by_name:
        lines.append(figures.line(name, "step / raw INSERT", figures.values(name, "ratio"), mark=marks.get(name)))
        lines.append(figures.line(name, "p50", figures.values(name, "p50_us"), unit=" us"))
        lines.append(figures.line(name, "CPU a step", figures.values(name, "cpu_us"), unit=" us"))
    raw = [value for name in figures.by_name for value in figures.values(name, "raw_us")]
    return [*lines, Line(row=row, who="raw INSERT", what="p50", values=tuple(raw), unit=" us")]


def at_once(bench: Bench) -> list[Line]:
    row = "P2. PostgreSQL, 100 runs at once in one process, 20 steps each"
    contestants = [ours("async", postgres=True), bare("group", postgres=True), *peers_here(langgraph="graph")]
    runs = bench.count(100, 5)

    def options(who: Contestant) -> tuple[str, ...]:
        repeat = bench.count(10, 1) if who.engine in ("surefoot", "bare") else 1
        return "--runs", str(runs), "--repeat", str(repeat)

    figures = take_turns(bench, row, contestants, "at_once", options)
    lines = [figures.line(ASYNC, "over bare group commit", figures.over(ASYNC, GROUP, "steps_s"))]
    if "dbos" in figures.by_name:
        over = figures.over(ASYNC, "dbos", "steps_s")
        lines.append(figures.line(ASYNC, "steps/s over DBOS", over, mark=Mark(at_least=12)))
    for name in figures.by_name:
        mark = Mark(at_least=10_000) if name == ASYNC else None
        lines += [
            figures.line(name, "steps/s", figures.values(name, "steps_s"), mark=mark),
            figures.line(name, "CPU a step", figures.values(name, "cpu_us"), unit=" us"),
            figures.line(name, "peak resident memory", figures.values(name, "peak_rss_mb"), unit=" MB"),
        ]
    return lines


# --- a fleet ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Note:
    """A step's body was entered."""

    at: float
    pid: int
    run: str
    number: int


class Fleet:
    """Worker processes of one engine on one database; all end with the `with` block."""

    def __init__(self, who: Contestant, folder: str, url: str) -> None:
        self.who, self.folder, self.url = who, Path(folder), url
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        """Returns when all of them stand at the gate."""
        line = command(self.who, "serve", str(self.folder), "--url", self.url)
        with open(self.folder / "errors", "ab") as errors:
            for _ in range(count):
                self.workers.append(
                    subprocess.Popen(line, env=environment(), stdout=errors, stderr=errors, start_new_session=True)
                )
        self.until(lambda: len(list(self.folder.glob("ready-*"))) == count, READY_SECONDS_MAX, "a worker is not ready")

    def open_gate(self) -> None:
        (self.folder / "go").touch()

    def notes(self) -> list[Note]:
        """All that was noted so far, in order."""
        found: list[Note] = []
        for path in self.folder.glob("notes-*"):
            pid = int(path.name.partition("-")[2])
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    at, run, number = line.split()
                    found.append(Note(at=float(at), pid=pid, run=run, number=int(number)))
        return sorted(found, key=lambda note: note.at)

    def noted_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("notes-*"))

    def until(self, done: Callable[[], bool], seconds: float, problem: str) -> None:
        """Wait for it; raises TimeoutError with the workers' last words."""
        give_up = time.monotonic() + seconds
        while not done():
            if time.monotonic() > give_up or self.is_gone():
                said = (self.folder / "errors").read_text(errors="replace").strip().splitlines()
                raise TimeoutError(f"{problem} in {seconds:.0f} s; {said[-1][:200] if said else 'nothing was said'}")
            time.sleep(LOOK_SECONDS)

    def is_gone(self) -> bool:
        """True if every worker has ended, though none is told to."""
        return bool(self.workers) and all(worker.poll() is not None for worker in self.workers)

    def end(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@contextmanager
def fleet_of(bench: Bench, who: Contestant) -> Iterator[Fleet]:
    folder = bench.folder()
    fleet = Fleet(who, folder, bench.database())
    try:
        yield fleet
    finally:
        fleet.end()
        shutil.rmtree(folder, ignore_errors=True)


def fill(bench: Bench, fleet: Fleet, *, runs: int, steps: int, seconds: float = 0.0) -> None:
    options = ("--runs", str(runs), "--n", str(steps), "--seconds", str(seconds), "--url", fleet.url)
    answer = bench.ask(fleet.who, "fill", *options, folder=str(fleet.folder))
    if "error" in answer:
        raise RuntimeError(answer["error"])


def one_round(bench: Bench, who: Contestant, work: str, measure: Callable[[Fleet], Answer]) -> Answer:
    """The answer of one fleet, or `error` in its place."""

    def attempt() -> Answer:
        with fleet_of(bench, who) as fleet:
            try:
                return measure(fleet)
            except (TimeoutError, RuntimeError, OSError) as error:
                return {"error": str(error)}

    answer, cores = bench.beside(attempt)
    # The workers are not this process's children while it measures, so what they used cannot be told from others' work.
    record = {"who": who.name, "work": work, "others_cores": None if "error" in answer else cores, **answer}
    bench.answers.append(record)
    return record


def fleet_turns(
    bench: Bench, row: str, contestants: list[Contestant], work: str, measure: Callable[[Fleet], Answer]
) -> Figures:
    got: dict[str, list[Answer]] = {}
    for number in range(bench.rounds):
        for who in bench.keep(contestants):
            if number and "error" in got[who.name][-1]:
                continue  # what did not end once would only cost the same minute again
            got.setdefault(who.name, []).append(one_round(bench, who, work, measure))
    return Figures(row=row, by_name=got)


def share(bench: Bench, workers: int, runs: int, steps: int) -> Callable[[Fleet], Answer]:
    """All runs lie in the queue before the gate opens; timed from the first body to the last."""

    def measure(fleet: Fleet) -> Answer:
        fill(bench, fleet, runs=runs, steps=steps)
        fleet.start(workers)
        fleet.open_gate()
        least = runs * steps * len("1.000000 run-0 0\n")
        fleet.until(
            lambda: fleet.noted_bytes() >= least and len(fleet.notes()) >= runs * steps, ROW_SECONDS_MAX, "not all"
        )
        notes = fleet.notes()
        places = {(note.run, note.number) for note in notes}
        shares = [sum(note.pid == pid for note in notes) / len(notes) for pid in {note.pid for note in notes}]
        return {
            "steps_s": (len(places) - 1) / (notes[-1].at - notes[0].at), "again": len(notes) - len(places),
            "least_share": min(shares) * workers if len(shares) == workers else 0.0,
        }  # fmt: skip

    return measure


def sharing(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    for workers in (2, 4):
        runs = bench.count(1_000, 20)
        row = f"P3. {workers} worker processes share {runs:,} runs of 10 steps"
        figures = fleet_turns(bench, row, with_queue(), "share", share(bench, workers, runs, 10))
        if "dbos" in figures.by_name:
            mark = Mark(at_least=30) if workers == 2 else None
            lines.append(figures.line(ASYNC, "steps/s over DBOS", figures.over(ASYNC, "dbos", "steps_s"), mark=mark))
        for name in figures.by_name:
            mark = Mark(at_least=15_000) if name == ASYNC and workers == 2 else None
            again = Mark(at_most=0) if name == ASYNC else None
            lines += [
                figures.line(name, "steps/s", figures.values(name, "steps_s"), mark=mark),
                figures.line(name, "least share of a worker, 1 is even", figures.values(name, "least_share")),
                figures.line(name, "bodies that ran again", figures.values(name, "again"), mark=again),
            ]
    return lines


def pick_up(bench: Bench, asked: int) -> Callable[[Fleet], Answer]:
    """Two idle workers; from the call that puts a run into the queue to the entry of its first step."""

    def measure(fleet: Fleet) -> Answer:
        fill(bench, fleet, runs=2, steps=1)
        fleet.start(2)
        fleet.open_gate()
        fleet.until(lambda: len(fleet.notes()) == 2, READY_SECONDS_MAX, "the first runs did not begin")
        answer = bench.ask(
            fleet.who, "ask", "--runs", str(asked), "--url", fleet.url, folder=str(fleet.folder), limit=ROW_SECONDS_MAX
        )
        if "error" in answer:
            return answer
        fleet.until(lambda: len(fleet.notes()) >= asked + 3, READY_SECONDS_MAX, "some runs did not begin")
        begun = {note.run: note.at for note in reversed(fleet.notes())}
        waits = [(begun[run] - at) * 1e3 for run, at in answer.pop("asked").items()]
        return {"p50_ms": percentile(waits, 50), "p99_ms": percentile(waits, 99), "max_ms": max(waits)}

    return measure


def pickup(bench: Bench) -> list[Line]:
    row = "P4. pickup: from start(queue=) to the first step, two idle workers"
    figures = fleet_turns(bench, row, with_queue(), "pickup", pick_up(bench, bench.count(150, 5)))
    return milliseconds(figures, {"p50_ms": 5, "p99_ms": 10})


def milliseconds(figures: Figures, marks: dict[str, float]) -> list[Line]:
    lines: list[Line] = []
    for name in figures.by_name:
        for key, at_most in marks.items():
            mark = Mark(at_most=at_most, unit=" ms") if name == ASYNC else None
            lines.append(figures.line(name, key.removesuffix("_ms"), figures.values(name, key), unit=" ms", mark=mark))
    return lines


def take_over(bench: Bench, number: signal.Signals) -> Callable[[Fleet], Answer]:
    """20 runs of 10 s under way; from the signal to the next step of each run of the worker that got it."""

    def measure(fleet: Fleet) -> Answer:
        fill(bench, fleet, runs=20, steps=200, seconds=0.05)
        fleet.start(2)
        fleet.open_gate()
        fleet.until(lambda: len({note.run for note in fleet.notes()}) >= 10, READY_SECONDS_MAX, "runs did not begin")
        time.sleep(0.5)
        held = defaultdict[int, set[str]](set)
        for run, pid in {note.run: note.pid for note in fleet.notes()}.items():
            held[pid].add(run)
        victim = max((worker.pid for worker in fleet.workers), key=lambda pid: len(held[pid]))
        os.kill(victim, number)
        struck = time.monotonic()

        def followed() -> dict[str, float]:
            later = [note for note in fleet.notes() if note.at > struck and note.pid != victim]
            return {note.run: (note.at - struck) * 1e3 for note in reversed(later) if note.run in held[victim]}

        fleet.until(lambda: len(followed()) == len(held[victim]), TAKEOVER_SECONDS_MAX, "not all runs were taken over")
        waits = list(followed().values())
        return {"p50_ms": percentile(waits, 50), "p99_ms": percentile(waits, 99), "runs": len(waits)}

    return measure


def takeover(bench: Bench) -> list[Line]:
    row = "P5. takeover: from SIGKILL of one of two workers to the next step of each of its runs"
    killed = fleet_turns(bench, row, with_queue(), "SIGKILL", take_over(bench, signal.SIGKILL))
    row = f"P5. takeover: from SIGSTOP of one of two workers (a hung one), lease {LEASE_SECONDS:.0f} s"
    hung = fleet_turns(bench, row, with_queue()[:1], "SIGSTOP", take_over(bench, signal.SIGSTOP))
    two_leases = 2 * LEASE_SECONDS * 1e3
    return [
        *milliseconds(killed, {"p50_ms": 100, "p99_ms": 1_000}),
        *milliseconds(hung, {"p50_ms": two_leases, "p99_ms": two_leases}),
    ]


# --- many that wait, and an idle snapshot -----------------------------------------------------------------------


def waiting(bench: Bench, row: str, *, postgres: bool) -> list[Line]:
    count = bench.count(100_000, 60)
    row = f"{row}. {count:,} waiting runs: a worker's memory, and how late it wakes a run that is due"
    who = replace(ours("async", postgres=postgres), worker="waiting.py")
    answers: dict[str, list[Answer]] = {}
    for runs in (0, count) if bench.keep([who]) else ():
        name = f"{runs:,} waiting"
        answers[name] = [bench.ask(who, "waiting", "--runs", str(runs), "--n", str(bench.count(200, 5)), limit=600)]
    figures = Figures(row=row, by_name=answers)
    lines: list[Line] = []
    for name in answers:
        full = name != "0 waiting"
        lines += [
            figures.line(name, "worker's resident memory", figures.values(name, "rss_mb"), unit=" MB",
                         mark=Mark(at_most=100, unit=" MB") if full else None),
            figures.line(name, "late, p50", figures.values(name, "p50_ms"), unit=" ms"),
            figures.line(name, "late, p99", figures.values(name, "p99_ms"), unit=" ms",
                         mark=Mark(at_most=1_000, unit=" ms") if full else None),
            figures.line(name, "runs put to wait a second", figures.values(name, "put_s"), unit="/s"),
            figures.line(name, "memory of the one that put them", figures.values(name, "carrier_mb"), unit=" MB"),
        ]  # fmt: skip
    if len(answers) == 2:
        over = figures.over(f"{count:,} waiting", "0 waiting", "p50_ms")
        lines.append(figures.line(f"{count:,} waiting", "late, p50, over none waiting", over, mark=Mark(at_most=1.5)))
    return lines


def claiming(bench: Bench) -> list[Line]:
    row = "P7. claims a second under a snapshot that is held open, over without"
    claims = bench.count(12_000, 40)
    who = replace(ours("def", postgres=True), worker="claims.py")
    answers: dict[str, list[Answer]] = {}
    for _ in range(bench.rounds):
        for kind in ("no snapshot", "idle snapshot") if bench.keep([who]) else ():
            seconds = "1" if kind == "idle snapshot" else "0"
            answer = bench.ask(who, "claims", "--n", str(claims), "--seconds", seconds, limit=120)
            answers.setdefault(kind, []).append(answer)
    figures = Figures(row=row, by_name=answers)
    lines = [
        figures.line(kind, f"claims/s, last quarter of {claims:,}", figures.values(kind, "last_s")) for kind in answers
    ]
    over = figures.over("idle snapshot", "no snapshot", "last_s")
    own = tuple(a["last_s"] / a["first_s"] for a in answers.get("idle snapshot", []) if "error" not in a)
    return [
        *lines,
        figures.line("idle snapshot", "over no snapshot", over, mark=Mark(at_least=0.5)),
        figures.line("idle snapshot", "last quarter over first", own),
    ]


ROWS: dict[str, Callable[[Bench], list[Line]]] = {
    "P1": in_sequence,
    "P2": at_once,
    "P3": sharing,
    "P4": pickup,
    "P5": takeover,
    "P6": partial(waiting, row="P6", postgres=True),
    "9": partial(waiting, row="9", postgres=False),
    "P7": claiming,
}
