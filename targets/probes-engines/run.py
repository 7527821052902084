"""Every probe that applies, done to each engine and to plain Surefoot."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from engines import servers
from engines.envs import ENVIRONMENTS
from surefoot.testing.postgres import PrivatePostgres
from targets.bench import Bench
from targets.layout import HERE
from targets.probing import OURS, PROBES, Arm, Probe, measure_row
from targets.results import Row

OUR_WORD = "effect renamed, formerly= said so; killed at the mail"
ENGINES = {
    "DBOS": "dbos",
    "Temporal": "temporal",
    "Restate": "restate",
    "LangGraph": "langgraph",
    "Absurd": "absurd",
    "kairo": "kairo",
}
TOLD = {"Temporal": ("TMPRL1100",), "Restate": ("mismatch",)}
"""With which words an engine's log says that newer code does not fit a run that is under way."""


def measure(bench: Bench) -> Iterator[Row]:
    """Engine by engine: each needs its servers once."""
    for name, env in ENGINES.items():
        if any(bench.wants(f"{name}: {probe.row}") for probe in PROBES):
            with ExitStack() as stack:
                yield from rows(bench, _arm(name, env, bench, stack))
    yield from rows(bench, Arm(name=OURS, command=(sys.executable, bench.file("agent_surefoot.py"))))


def rows(bench: Bench, arm: Arm) -> Iterator[Row]:
    """The probes of one arm, but for those that do not apply."""
    for probe in PROBES:
        if applies(probe) and bench.wants(f"{arm.name}: {probe.row}"):
            yield measure_row(bench, probe, arm)


def applies(probe: Probe) -> bool:
    """False for the row about a word that is Surefoot's own."""
    return probe.row != OUR_WORD


def _arm(name: str, env: str, bench: Bench, stack: ExitStack) -> Arm:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"probes-{env}-")))
    match env:
        case "dbos" | "absurd":
            server = stack.enter_context(PrivatePostgres())
            place = lambda world: {"ENGINE": server.create_database()}  # noqa: E731
        case "temporal":
            told = stack.enter_context(servers.temporal(folder))
            place = lambda world: told  # noqa: E731
        case "restate":
            told = stack.enter_context(servers.restate(folder))
            place = lambda world: {**told, "PORT": str(servers.free_ports(1)[0])}  # noqa: E731
        case _:
            place = lambda world: {}  # noqa: E731
    return Arm(
        name=name,
        command=(str(ENVIRONMENTS[env].python), bench.file(f"with_{env}.py")),
        place=lambda world: {"PROBES": str(HERE / "probes"), **place(world)},
        told=TOLD.get(name, ()),
    )
