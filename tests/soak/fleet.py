"""A fleet of workers on one store, what is done to it, and how its end is judged: by the receiver's ledger alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from surefoot import Surefoot
from surefoot.cli.desk import Desk
from surefoot.cli.doctor import examine
from surefoot.cli.resolve import Decision, resolve
from surefoot.core.effect import TERMINAL, Do, Effect, Status
from surefoot.core.run import FINAL, RunStatus
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import Line, performed, read_ledger
from tests.soak.agent import PROMISES, onboard

EVERYTHING = 1_000_000
SETTLED_SECONDS = 1.0
"""No request of this receiver acts later than this after its sender's death."""


@contextmanager
def a_receiver(folder: Path) -> Iterator[tuple[int, Path]]:
    """The port of a receiver in a process of its own, and its ledger."""
    ledger = folder / "ledger"
    command = [sys.executable, "-m", "surefoot.testing.receiver", str(ledger), "0.3", "0.0"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    try:
        yield int(process.stdout.readline()), ledger
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


class Fleet:
    """So many workers; each that is killed is replaced at once."""

    def __init__(self, forks: ForkServer, url: str, port: int, *, workers: int, lease: float, concurrency: int) -> None:
        self._forks, self._lease, self._concurrency = forks, lease, concurrency
        self.url, self.port = url, port
        self.workers: list[Child] = []
        self._paused: list[tuple[float, Child]] = []
        self.kills = self.pauses = 0
        for _ in range(workers):
            self.start()

    def start(self) -> Child:
        """One worker more."""
        child = self._forks.start("work", self.url, self.port, self._lease, self._concurrency)
        self.workers.append(child)
        return child

    def kill(self, child: Child) -> None:
        """SIGKILL; the exit status proves that it was killed and had not ended before."""
        self.workers.remove(child)
        assert child.kill() == -9, f"a worker had ended by itself: {child.lines}"
        self.kills += 1

    def kill_one(self, dice: random.Random) -> None:
        """Kill one that is not paused, and start another."""
        paused = [child for _, child in self._paused]
        awake = [child for child in self.workers if child not in paused]
        if awake:
            self.kill(dice.choice(awake))
            self.start()

    def pause_one(self, dice: random.Random, seconds: float) -> None:
        """SIGSTOP one; it goes on, unaware, after so many seconds."""
        child = dice.choice(self.workers)
        if any(child is paused for _, paused in self._paused):
            return
        child.signal(signal.SIGSTOP)
        give_up = time.monotonic() + 5
        while not child.is_stopped():
            assert time.monotonic() < give_up, f"a worker had ended by itself: {child.join()}, {child.lines[-3:]}"
            time.sleep(0.001)
        self._paused.append((time.monotonic() + seconds, child))
        self.pauses += 1

    def wake_due(self, *, everybody: bool = False) -> None:
        """SIGCONT those that have been paused for long enough."""
        for due, child in list(self._paused):
            if everybody or time.monotonic() >= due:
                child.signal(signal.SIGCONT)
                self._paused.remove((due, child))

    def stop(self, sf: Surefoot) -> None:
        """SIGTERM, once the living and nobody else have a row; each gives back what it has and ends by itself."""
        self.wake_due(everybody=True)
        living, give_up = {child.pid for child in self.workers}, time.monotonic() + 30
        while (found := {owner.pid for owner in sf.store.board.find_owners()} - {os.getpid()}) != living:
            assert time.monotonic() < give_up, f"expected rows of the processes {living}, found {found}"
            time.sleep(0.05)
        for child in self.workers:
            child.signal(signal.SIGTERM)
        statuses = [child.join() for child in self.workers]
        assert set(statuses) <= {0}, [child.lines[-3:] for child in self.workers]


def count_performed(ledger: Path) -> int:
    """How many effects have happened so far."""
    return sum(line.what == "performed" for line in read_ledger(ledger)) if ledger.exists() else 0


# --- the person who stands by ------------------------------------------------------------------------------------


def resolve_from(ledger: Path, url: str) -> list[Effect]:
    """End every doubt that is parked, as the receiver's books say, by what `surefoot resolve` does; those effects."""
    with Desk(url) as desk:
        found = desk.store.find_effects([Status.PARKED], limit=EVERYTHING)
        parked = [held for held in found if desk.now > held.updated_at + SETTLED_SECONDS]
        done = {line.name: line for line in read_ledger(ledger) if line.what == "performed"}
        for held in parked:
            line = done.get(msgspec.json.decode(held.request)["name"])
            receipt = b"" if line is None else msgspec.json.encode({"name": line.name, "number": line.number})
            do = Do.DID_NOT_HAPPEN if line is None else Do.HAPPENED
            resolve(desk, held.run, held.key, Decision(do=do, receipt=receipt, why="the ledger says so", who="soak"))
    return parked


def retry_quarantined(sf: Surefoot) -> list[str]:
    """Let runs go on whose workers were killed several times in a row: here a person knows that they are innocent."""
    found = [run.id for run in sf.store.find_runs([RunStatus.QUARANTINED], limit=EVERYTHING)]
    for run_id in found:
        sf.retry(run_id, why="the soak kills at random")
    return found


# --- the end ------------------------------------------------------------------------------------------------------


def put_runs(sf: Surefoot, names: Sequence[str]) -> None:
    """Leave so many runs to the workers; each is in the store when this returns."""
    for name in names:
        sf.start(onboard, name, id=name, queue="soak", dedupe=None)


def unfinished(sf: Surefoot) -> int:
    """How many runs have not ended."""
    return sum(run.status not in FINAL for run in sf.store.find_runs(limit=EVERYTHING))


def count(names: Sequence[str], lines: Sequence[Line]) -> dict[str, dict[str, int]]:
    """For each promise: effects, performed once, performed twice or more, lost."""
    times = performed(lines)
    table: dict[str, dict[str, int]] = {}
    for promise in PROMISES:
        each = Counter(min(times[f"{name}.{promise}"], 2) for name in names)
        table[promise] = {"effects": len(names), "once": each[1], "twice": each[2], "lost": each[0]}
    strangers = set(times) - {f"{name}.{promise}" for name in names for promise in PROMISES}
    assert not strangers, f"effects of nobody: {sorted(strangers)[:5]}"
    return table


def judge(url: str, names: Sequence[str], ledger: Path) -> dict[str, dict[str, int]]:
    """Everything that has to hold once the workers have ended; the table of counts."""
    table = count(names, read_ledger(ledger))
    for promise, row in table.items():
        assert row["twice"] == row["lost"] == 0, f"{promise}: {row}"
    with Surefoot(url) as sf:
        runs = sf.store.find_runs(limit=EVERYTHING)
        assert sorted(run.id for run in runs) == sorted(names)
        assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
        assert all(held.status in TERMINAL for held in sf.store.find_effects(limit=EVERYTHING))
        assert sf.store.board.backlog(limit=EVERYTHING) == [], "rows of runs that have ended"
        assert sf.store.board.find_owners() == [], "rows of processes that are gone"
        for name in names:
            result = sf.run(onboard, name, id=name)
            assert {promise: receipt["name"] for promise, receipt in result.items()} == {
                promise: f"{name}.{promise}" for promise in PROMISES
            }
    with Desk(url) as desk:
        checkup = examine(desk)
    assert not (checkup.runs or checkup.effects or checkup.damage or checkup.attention), checkup
    return table
