"""The rows: each engine as published, with its own id as a key, and with Surefoot inside; n tries each, k of n."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from engines import servers
from engines.servers import Place
from engines.world import Seen, Try, perform
from surefoot.testing.postgres import PrivatePostgres
from targets.results import Row, Verdict

HERE = Path(__file__).resolve().parent
STOPPED_EXIT = 76
"""How a program ends whose engine has stopped the run for somebody's review, and says so."""
ARMS = {
    "published": "as published",
    "published_key": "as published, the engine's id as the key, which the shop honours",
    "keyed": "Surefoot inside, keyed",
    "lookup": "Surefoot inside, lookup",
    "opaque": "Surefoot inside, opaque",
}
ROWS = {"control": "control", "gap": "killed in the gap", "model": "killed while a model call is served"}
PLAN = (
    ("published", "control"),
    ("published", "gap"),
    ("published", "model"),
    ("published_key", "gap"),
    ("keyed", "control"),
    ("keyed", "gap"),
    ("keyed", "model"),
    ("lookup", "gap"),
    ("opaque", "gap"),
)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine in one setting."""

    name: str
    title: str
    env: str
    program: str
    open: Callable[[ExitStack, Path], Callable[[Path], Place]]
    """Starts what all tries share; the function it gives says what one try, in its folder, is told."""
    store: str = "surefoot.db"
    """PLACE: Surefoot's tables are where the engine's are."""
    own_victim: bool = False
    arms: tuple[str, ...] = tuple(ARMS)


def _nothing(stack: ExitStack, folder: Path) -> Callable[[Path], Place]:
    return lambda world: {}


def _temporal(stack: ExitStack, folder: Path) -> Callable[[Path], Place]:
    place = stack.enter_context(servers.temporal(folder))
    return lambda world: place


def _restate(stack: ExitStack, folder: Path) -> Callable[[Path], Place]:
    place = stack.enter_context(servers.restate(folder))
    return lambda world: {**place, "PORT": str(servers.free_ports(1)[0])}


def _postgres(**more: str) -> Callable[[ExitStack, Path], Callable[[Path], Place]]:
    def start(stack: ExitStack, folder: Path) -> Callable[[Path], Place]:
        server = stack.enter_context(PrivatePostgres())
        return lambda world: {"ENGINE": server.create_database(), **more}

    return start


def _sqlite(mode: str) -> Callable[[ExitStack, Path], Callable[[Path], Place]]:
    return lambda stack, folder: lambda world: {"ENGINE": str(world / "langgraph.db"), "MODE": mode}


def _celery(stack: ExitStack, folder: Path) -> Callable[[Path], Place]:
    return lambda world: {"ENGINE": str(world / "celery")}


_GRAPH = {"env": "langgraph", "program": "with_langgraph.py"}
ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            name="temporal",
            title="Temporal, development server",
            env="temporal",
            program="with_temporal.py",
            open=_temporal,
        ),
        Engine(
            name="dbos",
            title="DBOS on PostgreSQL, Surefoot in the same database",
            env="dbos",
            program="with_dbos.py",
            open=_postgres(),
            store="PLACE",
        ),
        Engine(name="restate", title="Restate", env="restate", program="with_restate.py", open=_restate),
        Engine(name="langgraph-sync", title="LangGraph, SqliteSaver, sync", open=_sqlite("sync"), **_GRAPH),
        Engine(
            name="langgraph-async",
            title="LangGraph, SqliteSaver, async (its default)",
            open=_sqlite("async"),
            **_GRAPH,
        ),
        Engine(
            name="langgraph-postgres",
            title="LangGraph, PostgresSaver, sync, Surefoot in the same database",
            open=_postgres(MODE="sync"),
            store="PLACE",
            **_GRAPH,
        ),
        Engine(
            name="celery",
            title="Celery, late acknowledgement, file system broker",
            env="celery",
            program="with_celery.py",
            open=_celery,
            own_victim=True,
        ),
        Engine(
            name="absurd",
            title="Absurd on PostgreSQL, Surefoot in the same database",
            env="absurd",
            program="with_absurd.py",
            open=_postgres(),
            store="PLACE",
        ),
        Engine(
            name="kairo",
            title="kairo on SQLite",
            env="kairo",
            program="with_kairo.py",
            open=lambda stack, folder: lambda world: {"ENGINE": str(world / "kairo.db")},
        ),
        Engine(
            name="script", title="a plain script under a supervisor", env="", program="with_script.py", open=_nothing
        ),
    )
}


def measure(engine: Engine, tries: int, only: tuple[str, ...] = (), together: int = 1) -> Iterator[Row]:
    """Every row of one engine; `only` names arms, `together` is how many tries run at once."""
    folder = Path(tempfile.mkdtemp(prefix=f"engines-{engine.name}-"))
    kept = False
    try:
        with ExitStack() as stack:
            placed = engine.open(stack, folder)
            for arm, row in PLAN:
                if arm not in engine.arms or (only and arm not in only):
                    continue
                worlds = [_world(engine, arm, row, number, folder, placed) for number in range(1, tries + 1)]
                with ThreadPoolExecutor(together) as pool:
                    seen = list(pool.map(lambda world: _one(engine, *world), worlds))
                made = judged(arm, row, seen)
                kept = kept or bool(list(made.complaints()))
                yield made
    finally:
        if kept:
            print(f"  kept for a look: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _world(
    engine: Engine, arm: str, row: str, number: int, folder: Path, placed: Callable[[Path], Place]
) -> tuple[Try, Path]:
    world = folder / f"{arm}-{row}-{number}"
    world.mkdir()
    place = placed(world)
    this = Try(
        engine=engine.env,
        program=engine.program,
        place=place,
        arm=arm,
        row=row,
        order=f"{arm.replace('_', '-')}-{row}-{number}",
        db=place["ENGINE"] if engine.store == "PLACE" else engine.store,
        own_victim=engine.own_victim,
    )
    return this, world


def _one(engine: Engine, this: Try, world: Path) -> Seen:
    started = time.monotonic()
    seen = perform(this, world)
    print(
        f"  {engine.name} {this.order}: {seen.counts}, {seen.calls} calls, ends {seen.lives.ends}, "
        f"kills {seen.kills}, {'right' if seen.right else 'NOT RIGHT'}{', parked' if seen.parked else ''} "
        f"({time.monotonic() - started:.1f} s)",
        flush=True,
    )
    return seen


def verdict_of(seen: Seen, arm: str, row: str) -> Verdict:
    """What one try amounts to."""
    if max(seen.happened.values(), default=0) > 1:
        return "twice"
    if seen.lives.ends[-1] == STOPPED_EXIT:
        return "told"
    if not seen.lives.finished:
        return "stuck"
    if not seen.right:
        return "wrong"
    if seen.counts != "1/1/1":
        return "lost"
    if arm == "opaque" and row == "gap":
        return "told" if seen.parked and seen.at_park.get("charge") == 1 else "wrong"
    return "once"


WORST: tuple[Verdict, ...] = ("twice", "wrong", "lost", "stuck", "told", "once")


def judged(arm: str, row: str, seen: list[Seen]) -> Row:
    """One row of n tries: the worst verdict, and how many were good."""
    verdicts = [verdict_of(one, arm, row) for one in seen]
    faulty = row != "control"
    ends = Counter(str(end) for one in seen for end in one.lives.ends)
    lost = sum(one.kills for one in seen) - ends.get("-9", 0)
    if lost > 0:
        ends["-9"] += lost  # a process of a pool, whose end its parent has told
    shown = Counter(f"{one.counts}, {one.calls} calls" for one in seen)
    return Row(
        row=ROWS[row],
        arm=ARMS[arm],
        seen="; ".join(
            text if count == len(seen) else f"{text} ({count} of {len(seen)})" for text, count in shown.most_common()
        ),
        verdict=min(verdicts, key=WORST.index),
        ours=not arm.startswith("published"),
        tries=len(seen),
        good=sum(verdict in ("once", "told") for verdict in verdicts),
        fault="kill" if faulty else "none",
        asked=len(seen) if faulty else 0,
        done=sum(min(one.kills, 1) for one in seen) if faulty else 0,
        ends=dict(ends),
        counts={"model calls, mean": round(sum(one.calls for one in seen) / len(seen), 2)},
    )
