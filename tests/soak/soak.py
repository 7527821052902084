"""One soak: runs are put, workers are killed and paused, the database dies, and in the end everything is counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from surefoot import Surefoot
from surefoot.cli.desk import Desk
from surefoot.cli.doctor import examine
from surefoot.core.effect import Effect
from surefoot.core.errors import SurefootError
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.postgres import PrivatePostgres
from tests.soak.fleet import (
    Fleet,
    a_receiver,
    count_performed,
    judge,
    put_runs,
    resolve_from,
    retry_quarantined,
    unfinished,
)

LOOK_SECONDS = 0.02


@dataclass(kw_only=True)
class Plan:
    """What is done, and how often: so many seconds apart, or by `effects` so many effects apart. 0: never."""

    runs: int
    workers: int
    concurrency: int = 8
    lease: float = 1.5
    kill_every: float = 2.0
    pause_every: float = 0.0
    paused_seconds: float = 5.0
    restart_every: float = 0.0
    effects: bool = False
    restarts_max: int = 1_000_000
    seconds_max: float = 60.0
    seed: int = 20261203


@dataclass
class Report:
    """What was done, and what came of it."""

    kills: int = 0
    pauses: int = 0
    restarts: int = 0
    seconds: float = 0.0
    parked: list[Effect] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    table: dict[str, dict[str, int]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For people."""
        done = f"{self.kills} kills, {self.pauses} pauses, {self.restarts} restarts of the database"
        return [
            f"{done}, {self.seconds:.0f} s",
            f"{len(self.parked)} parked and resolved from the ledger, {len(self.quarantined)} quarantined and retried",
            *(f"{promise:8} {row}" for promise, row in self.table.items()),
        ]


class Meter:
    """Tells when a reading has grown by another `step`; never when that is 0."""

    def __init__(self, step: float, read: Callable[[], float]) -> None:
        self._step, self._read = step, read
        self._due = read() + step

    def is_due(self) -> bool:
        if not self._step or self._read() < self._due:
            return False
        self._due = self._read() + self._step
        return True


def soak(plan: Plan, url: str, folder: Path, server: PrivatePostgres | None = None) -> Report:
    """Do all of it; AssertionError where something does not hold."""
    report, dice, began = Report(), random.Random(plan.seed), time.monotonic()
    names = [f"r{number:05}" for number in range(plan.runs)]
    with a_receiver(folder) as (port, ledger), ForkServer("tests.soak.agent") as forks:
        with Surefoot(url) as sf:
            put_runs(sf, names)
            fleet = Fleet(forks, url, port, workers=plan.workers, lease=plan.lease, concurrency=plan.concurrency)
            disturb(plan, fleet, dice, server, report, sf, ledger)
            fleet.stop(sf)
        report.kills, report.pauses = fleet.kills, fleet.pauses
        report.table = judge(url, names, ledger)
    report.seconds = time.monotonic() - began
    return report


def stuck(url: str) -> list[str]:
    """What the doctor says of the first few."""
    with Desk(url) as desk:
        checkup = examine(desk)
        found = [f"{finding.run.id}: {finding.why}; {finding.next}" for finding in checkup.runs]
        return [*checkup.damage, *found[:5], *(repr(effect) for effect in checkup.effects[:5])]


def disturb(
    plan: Plan,
    fleet: Fleet,
    dice: random.Random,
    server: PrivatePostgres | None,
    report: Report,
    sf: Surefoot,
    ledger: Path,
) -> None:
    """Until nothing is left: kill, pause, restart, and let a person decide what is parked."""
    read = (lambda: count_performed(ledger)) if plan.effects else time.monotonic
    kill, pause, restart = (Meter(step, read) for step in (plan.kill_every, plan.pause_every, plan.restart_every))
    give_up, look = time.monotonic() + plan.seconds_max, Meter(0.5, time.monotonic)
    while True:
        assert time.monotonic() < give_up, f"{unfinished(sf)} are left after {plan.seconds_max} s: {stuck(fleet.url)}"
        time.sleep(LOOK_SECONDS)
        fleet.wake_due()
        if kill.is_due():
            fleet.kill_one(dice)
        if pause.is_due():
            fleet.pause_one(dice, plan.paused_seconds)
        if server is not None and report.restarts < plan.restarts_max and restart.is_due():
            end = dice.choice((server.kill, server.crash))
            end()
            server.start()
            report.restarts += 1
        if look.is_due():
            try:
                report.parked += resolve_from(ledger, fleet.url)
                report.quarantined += retry_quarantined(sf)
                if not unfinished(sf):
                    return
            except SurefootError:
                continue  # the database is starting
