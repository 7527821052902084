"""What is measured, row by row, and the mark for each figure.

Inside a row the engines take turns, A B C A B C, so that whatever else the machine does hits all of them; a ratio
between two engines is taken within one round and never between rounds.
"""

import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench import peers
from bench.launch import (
    ASYNC,
    DEF,
    GROUP,
    Answer,
    Bench,
    Contestant,
    bare,
    bytes_in_use,
    command,
    environment,
    is_quiet,
    others,
    ours,
    run_worker,
)
from bench.table import Line, Mark

SIZES = (" B", " MB")  # what other work cannot change


@dataclass(kw_only=True)
class Figures:
    """The answers of one row, by engine and round. Where some rounds were quiet, only those count."""

    row: str
    by_name: dict[str, list[Answer]]

    def values(self, name: str, key: str) -> tuple[float, ...]:
        found = [answer for answer in self.by_name.get(name, []) if answer.get(key) is not None]
        return tuple(answer[key] for answer in [one for one in found if is_quiet(one)] or found)

    def over(self, name: str, other: str, key: str) -> tuple[float, ...]:
        pairs = zip(self.by_name.get(name, []), self.by_name.get(other, []), strict=False)
        found = [(mine, theirs) for mine, theirs in pairs if mine.get(key) and theirs.get(key)]
        quiet = [pair for pair in found if is_quiet(pair[0]) and is_quiet(pair[1])]
        return tuple(mine[key] / theirs[key] for mine, theirs in quiet or found)

    def line(self, who: str, what: str, values: Sequence[float], *, unit: str = "", mark: Mark | None = None) -> Line:
        answers = self.by_name.get(who, [])
        why = ["not run", *(answer["error"] for answer in answers if "error" in answer)][-1]
        busy = unit not in SIZES and not any(is_quiet(answer) for answer in answers)
        return Line(row=self.row, who=who, what=what, values=tuple(values), unit=unit, mark=mark, why=why, busy=busy)


def take_turns(
    bench: Bench, row: str, contestants: list[Contestant], work: str, options: Callable[[Contestant], Sequence[str]]
) -> Figures:
    got: dict[str, list[Answer]] = {}
    for _ in range(bench.rounds):
        for who in bench.keep(contestants):
            got.setdefault(who.name, []).append(bench.ask(who, work, *options(who)))
    return Figures(row=row, by_name=got)


def is_slow(who: Contestant) -> bool:
    return who.engine in ("dbos", "langgraph")


def in_sequence(bench: Bench) -> list[Line]:
    row = "1. one run in sequence: p50 of a step over the raw commit, in turns"
    marks = {DEF: Mark(at_most=1.0), ASYNC: Mark(at_most=1.8)}
    contestants = [ours("def"), ours("async"), bare("inline"), bare("group"), *others(langgraph="graph")]
    figures = take_turns(bench, row, contestants, "sequence", lambda who: ("--n", "200" if is_slow(who) else "600"))
    lines: list[Line] = []
    for name in figures.by_name:
        lines.append(figures.line(name, "step / raw commit", figures.values(name, "ratio"), mark=marks.get(name)))
        lines.append(figures.line(name, "p50", figures.values(name, "p50_us"), unit=" us"))
        lines.append(figures.line(name, "CPU a step", figures.values(name, "cpu_us"), unit=" us"))
    raw = [value for name in figures.by_name for value in figures.values(name, "raw_us")]
    return [*lines, Line(row=row, who="raw commit", what="p50", values=tuple(raw), unit=" us")]


def at_once(bench: Bench) -> list[Line]:
    """The peers take part at 100 runs only: at 1,000 each would need a minute, and none of them gets faster."""
    got: dict[int, dict[str, list[Answer]]] = {100: {}, 1_000: {}}
    for _ in range(bench.rounds):
        for runs, by_name in got.items():
            for who in bench.keep([ours("async"), bare("group"), *(others(langgraph="graph") if runs == 100 else ())]):
                repeat = 1 if is_slow(who) else max(1, 20_000 // (runs * 20))
                answer = bench.ask(who, "at_once", "--runs", str(runs), "--repeat", str(repeat))
                by_name.setdefault(who.name, []).append(answer)
    dbos = got[100].get("dbos", [])
    lines: list[Line] = []
    for runs, by_name in got.items():
        row = f"2. {runs:,} runs at once, 20 steps each"
        lines += at_once_lines(Figures(row=row, by_name=by_name), Figures(row=row, by_name={**by_name, "dbos": dbos}))
    return lines


def at_once_lines(figures: Figures, with_dbos: Figures) -> list[Line]:
    over_bare = figures.over(ASYNC, GROUP, "steps_s")
    lines = [figures.line(ASYNC, "steps/s over bare group commit", over_bare, mark=Mark(at_least=0.5))]
    if with_dbos.by_name["dbos"]:
        over_dbos = with_dbos.over(ASYNC, "dbos", "steps_s")
        lines.append(figures.line(ASYNC, "steps/s over DBOS with 100 runs", over_dbos, mark=Mark(at_least=50)))
    for name in figures.by_name:
        cpu, written = (Mark(at_most=30, unit=" us"), Mark(at_most=4096, unit=" B")) if name == ASYNC else (None, None)
        lines += [
            figures.line(name, "steps/s", figures.values(name, "steps_s")),
            figures.line(name, "CPU a step", figures.values(name, "cpu_us"), unit=" us", mark=cpu),
            figures.line(name, "written a step", figures.values(name, "written_bytes"), unit=" B", mark=written),
            figures.line(name, "peak resident memory", figures.values(name, "peak_rss_mb"), unit=" MB"),
        ]
    return lines


def effects(bench: Bench) -> list[Line]:
    row = "3. keyed effects in sequence: p50 of an effect over the raw commit, in turns"
    figures = take_turns(bench, row, [ours("def"), ours("async")], "effects", lambda _: ("--n", "400"))
    lines: list[Line] = []
    for name in figures.by_name:
        mark = Mark(at_most=2.2) if name == DEF else None
        lines.append(figures.line(name, "effect / raw commit", figures.values(name, "ratio"), mark=mark))
        lines.append(figures.line(name, "p50", figures.values(name, "p50_us"), unit=" us"))
    return lines


def kill_and_resume(bench: Bench, who: Contestant, steps: int) -> Answer:
    """The first process must die of SIGKILL inside body number `steps`; the second ends when it enters that body."""
    folder = bench.folder()
    try:
        died = bench.ask(who, "killed", "--n", str(steps), folder=folder)
        if died.get("exit") != -9:
            return {"error": f"was not killed: {died}"}
        return bench.ask(who, "resumed", "--n", str(steps), folder=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def resuming(bench: Bench) -> list[Line]:
    row = "4. kill -9, then the same run again: time to the body after the last recorded one, imports taken off"
    lengths, us = (100, 1_000, 10_000), (DEF, ASYNC)
    found: dict[tuple[str, int], list[Answer]] = {}
    for _ in range(bench.rounds):
        for steps in lengths:
            contestants = [ours("def"), ours("async"), bare("inline")]
            if steps < 10_000 or bench.long:
                contestants += others(langgraph="functional")
            for who in bench.keep(contestants):
                found.setdefault((who.name, steps), []).append(kill_and_resume(bench, who, steps))
    lines: list[Line] = []
    for name in dict.fromkeys(name for name, _ in found):
        again: list[float] = []
        for steps in lengths:
            if (name, steps) not in found:
                continue
            figures = Figures(row=row, by_name={name: found[name, steps]})
            mark = Mark(at_most=100, unit=" ms") if name in us and steps == 10_000 else None
            times = figures.values(name, "resume_ms")
            lines.append(figures.line(name, f"resume of {steps:,}", times, unit=" ms", mark=mark))
            again += figures.values(name, "bodies_before")
        if name in us:
            lines += linear(row, name, found)
        mark = Mark(at_most=0) if name in us else None
        worst = (max(again),) if again else ()
        lines.append(Line(row=row, who=name, what="acknowledged steps that ran again", values=worst, mark=mark))
    return lines


def linear(row: str, name: str, found: dict[tuple[str, int], list[Answer]]) -> list[Line]:
    """Linear: 10,000 steps take at most ten times what 1,000 take; what does not grow with them only lowers that."""
    times = [
        Figures(row=row, by_name={name: found[name, steps]}).values(name, "resume_ms") for steps in (1_000, 10_000)
    ]
    if not all(times):
        return []
    thousand, ten_thousand = (statistics.median(some) for some in times)
    each = (ten_thousand - thousand) / 9_000 * 1_000
    return [
        Line(row=row, who=name, what="10,000 / 1,000", values=(ten_thousand / thousand,), mark=Mark(at_most=10)),
        Line(row=row, who=name, what="each step from 1,000 to 10,000", values=(each,), unit=" us"),
    ]


def growth(bench: Bench) -> list[Line]:
    row = "5. growth along one run: the median step at its end over the median step at its start"
    steps = 100_000
    lines: list[Line] = []
    for durability in ("pipelined", "sync"):
        who = ours("def", durability=durability, label=f"surefoot, {durability}")
        if not bench.keep([who]):
            continue
        rounds = bench.rounds if durability == "pipelined" else 1
        answers = [bench.ask(who, "growth", "--n", str(steps)) for _ in range(rounds)]
        figures = Figures(row=row, by_name={who.name: answers})
        near = figures.values(who.name, "over_fresh_step_10")
        lines += [
            figures.line(who.name, f"step {steps:,} / step 10 of a run right after", near, mark=Mark(at_most=1.1)),
            figures.line(who.name, f"step {steps:,} / its own step 10", figures.values(who.name, "over_step_10")),
            figures.line(who.name, f"step {steps:,}", figures.values(who.name, "step_n_us"), unit=" us"),
        ]
    return lines


def memory(bench: Bench) -> list[Line]:
    row = "5. memory along one run, pipelined"
    steps = 1_000_000
    who = ours("def", durability="pipelined", label="surefoot, pipelined")
    if not bench.keep([who]):
        return []
    answer = bench.ask(who, "memory", "--n", str(steps), limit=600)
    if "error" in answer:
        return [Line(row=row, who=who.name, what=f"over {steps:,} steps", mark=Mark(at_most=1.1), why=answer["error"])]
    lines = [
        Line(row=row, who=who.name, what=f"resident at step {place:,}", values=(answer[key],), unit=" MB")
        for place, key in ((steps // 10, "first_mb"), (steps // 2, "middle_mb"), (steps, "last_mb"))
    ]
    flat = answer["last_mb"] / answer["first_mb"]
    each = answer["seconds"] / steps * 1e6
    return [
        *lines,
        Line(row=row, who=who.name, what=f"last over first, {steps:,} steps", values=(flat,), mark=Mark(at_most=1.1)),
        Line(row=row, who=who.name, what="kept in memory a step", values=(answer["bytes_per_step"],), unit=" B"),
        Line(row=row, who=who.name, what="a step, on average", values=(each,), unit=" us"),
    ]


def at_rest(bench: Bench) -> list[Line]:
    row = "6. at rest: bytes a step in the database file, its WAL written back"
    lines: list[Line] = []
    for who in bench.keep([ours("def"), bare("inline"), *others(langgraph="graph")]):
        few, many = (200, 1_200) if is_slow(who) else (1_000, 5_000)
        sizes: list[int] = []
        why = ""
        for steps in (few, many):
            folder = bench.folder()
            answer = bench.ask(who, "rest", "--n", str(steps), folder=folder)
            why = answer.get("error", why)
            sizes.append(bytes_in_use(folder))
            shutil.rmtree(folder, ignore_errors=True)
        values = () if why else ((sizes[1] - sizes[0]) / (many - few),)
        mark = Mark(at_most=300, unit=" B") if who.engine == "surefoot" else None
        lines.append(Line(row=row, who=who.name, what="bytes a step", values=values, unit=" B", mark=mark, why=why))
    return lines


def empty_runs(bench: Bench) -> list[Line]:
    row = "7. empty runs per second"
    contestants = [ours("def"), ours("async"), bare("group"), *others(langgraph="graph")]

    def options(who: Contestant) -> tuple[str, ...]:
        if is_slow(who):
            return "--n", "100", "--repeat", "2"
        return "--n", "500", "--repeat", "10" if who.kind in ("async", "group") else "2"

    figures = take_turns(bench, row, contestants, "empty", options)
    lines: list[Line] = []
    for name in figures.by_name:
        mark = Mark(at_least=10_000) if name == ASYNC else None
        lines.append(figures.line(name, "one after the other", figures.values(name, "alone_s"), unit="/s"))
        lines.append(figures.line(name, "100 at once", figures.values(name, "together_s"), unit="/s", mark=mark))
    if over := figures.over(ASYNC, GROUP, "together_s"):
        lines.append(figures.line(ASYNC, "100 at once, over bare group commit", over))
    return lines


IMPORT_AND_OPEN = "import sys; from surefoot import Surefoot; Surefoot(sys.argv[1]).__enter__()"
LEAVE = "\nimport os; os._exit(0)"  # neither side pays for its shutdown


def wall_ms(python: str, code: str, *args: str) -> float | None:
    started = time.perf_counter()
    done = subprocess.run([python, "-c", code, *args], env=environment(), capture_output=True, check=False)
    return (time.perf_counter() - started) * 1e3 if done.returncode == 0 else None


def over_bare_ms(python: str, code: str, path: str) -> float | None:
    bare_ms, full_ms = wall_ms(python, LEAVE), wall_ms(python, code + LEAVE, path)
    return None if bare_ms is None or full_ms is None else full_ms - bare_ms


def importing(bench: Bench) -> list[Line]:
    """Each time is over the bare interpreter's, started right before it; ours in `peers.OURS`, where that was made."""
    row = "8. import: wall time over the bare interpreter's"
    folder = bench.folder()
    own = str(peers.OURS.python) if peers.OURS.installed else sys.executable
    asked: list[tuple[str, str, str, str]] = [
        ("surefoot", "import", own, "import surefoot"),
        ("surefoot", "import and open a new file", own, IMPORT_AND_OPEN),
        ("surefoot", "import and open a known file", own, IMPORT_AND_OPEN),
        *((peer.name, "import", str(peer.python), f"import {peer.module}") for peer in peers.installed()),
    ]
    asked = [one for one in asked if not bench.only or one[0] in bench.only]
    found = Figures(row=row, by_name={})
    for turn in range(16):
        for who, what, python, code in asked:
            if is_peer(who) and turn > 5:
                continue
            path = f"{folder}/known.db" if "known" in what else f"{folder}/{turn}.db"
            over_bare, cores = bench.beside(partial(over_bare_ms, python, code, path))
            if turn and over_bare is not None:  # the first turn fills the caches
                answers = found.by_name.setdefault(f"{who} {what}", [])
                answers.append({"ms": over_bare, "others_cores": cores})
    lines: list[Line] = []
    for who, what, _, _ in asked:
        mark = Mark(at_most=60 if what == "import" else 100, unit=" ms") if who == "surefoot" else None
        line = found.line(f"{who} {what}", what, found.values(f"{who} {what}", "ms"), unit=" ms", mark=mark)
        lines.append(replace(line, who=who))
    return lines


def is_peer(name: str) -> bool:
    return any(peer.name == name for peer in peers.PEERS)


ROWS: dict[str, Callable[[Bench], list[Line]]] = {
    "1": in_sequence,
    "2": at_once,
    "3": effects,
    "4": resuming,
    "5": lambda bench: [*growth(bench), *memory(bench)],
    "6": at_rest,
    "7": empty_runs,
    "8": importing,
}


def profile(bench: Bench) -> str:
    """The fifteen dearest functions of rows 1 and 2, by their own time."""
    asked = (
        ("row 1, def", ours("def"), ("sequence", "--n", "2000")),
        ("row 1, async def", ours("async"), ("sequence", "--n", "2000")),
        ("row 2, 100 runs at once", ours("async"), ("at_once", "--runs", "100")),
    )
    out: list[str] = []
    for title, who, (work, *options) in asked:
        folder = bench.folder()
        answer = run_worker(command(who, work, folder, *options, "--profile"), 120)
        shutil.rmtree(folder, ignore_errors=True)
        bench.answers.append({"who": who.name, "work": f"profile of {work}", **answer})
        out.append(f"\nprofile of {title} (own us a step, total us a step, calls a step)")
        if "error" in answer:
            out.append(f"  {answer['error']}")
        for function in answer.get("functions", []):
            figures = f"{function['own_us']:8.2f} {function['total_us']:8.2f} {function['calls_per_step']:7.2f}"
            out.append(f"  {figures}  {function['function']}")
    return "\n".join(out)


def machine(bench: Bench) -> dict[str, object]:
    return {
        "python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "system": platform.platform(),
        "cpus": os.cpu_count(), "load_1m": os.getloadavg()[0], "rounds": bench.rounds, "long": bench.long,
        "peers": [list(peer.requirements) for peer in peers.installed()],
    }  # fmt: skip
