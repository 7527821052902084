"""A thousand real SIGKILLs at random moments, against a real receiver that errs: what happened stands in its ledger.

Each agent is killed again and again until it was killed often enough, then lives to its end. Every kill is proved by
the exit status, and where it fell by the last thing that the agent said. A third of them is aimed at the moments around
a request, the others fall anywhere. `python -m pytest -s tests/crash/test_sigkill.py` prints the figures, and
SUREFOOT_KILLS asks for more than a thousand.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.core.effect import TERMINAL
from surefoot.core.run import RunStatus
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import Line, performed, read_ledger

KILLS = int(os.environ.get("SUREFOOT_KILLS", "1000"))
SEED = int(os.environ.get("SUREFOOT_SEED", "20261201"))
AGENTS_AT_ONCE = 10
KILLS_PER_RUN = 12
LIFE_SECONDS_MAX = 60.0
AGENT = str(Path(__file__).with_name("killed_agent.py"))
FAULTS = ("500", "timeout", "reset", "late", "not_performed")
PROMISES = ("keyed", "lookup", "natural", "opaque")
MOMENTS = tuple(f"{what} {promise}" for what in ("sending", "answered") for promise in PROMISES)

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]


@pytest.fixture
def receiver(quick_path: Path) -> Iterator[tuple[int, Path]]:
    """A receiver in a process of its own: (port, ledger)."""
    ledger = quick_path / "ledger.jsonl"
    command = [sys.executable, "-m", "surefoot.testing.receiver", str(ledger), "0.3", "0.03"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    yield int(process.stdout.readline()), ledger
    process.stdin.close()
    assert process.wait(30) == 0


class Campaign:
    """Kills agents until there were enough, and remembers what each of them said."""

    def __init__(self, server: ForkServer, folder: Path, port: int, ledger: Path) -> None:
        self.server, self.folder, self.port, self.ledger = server, folder, port, ledger
        self.kills = 0
        self.lives = 0
        self.fell: Counter[str] = Counter()
        self.results: dict[str, dict[str, Any]] = {}
        self.problems: list[str] = []
        self.life_seconds = 0.05
        self._lock = threading.Lock()

    def work(self, worker: int) -> None:
        """One thread: runs, one after the other, in a database that it shares with another thread."""
        dice = random.Random(SEED * 1000 + worker)
        number = 0
        try:
            while not self.is_over() and not self.problems:
                self.one_run(f"w{worker}-{number}", str(self.folder / f"agents{worker // 2}.db"), dice)
                number += 1
        except BaseException as error:
            self.problems.append(f"worker {worker}: {type(error).__name__}: {error}")

    def missing(self) -> list[str]:
        """The moments around a request in which no kill fell yet; a busy machine brings most of them too early."""
        return [moment for moment in MOMENTS if not self.fell[moment]] if KILLS >= 1000 else []

    def is_over(self) -> bool:
        """True if there were enough kills, and one in each moment, or twice as many."""
        return self.kills >= KILLS and (not self.missing() or self.kills >= 2 * KILLS)

    def one_run(self, run: str, db: str, dice: random.Random) -> None:
        faults = {promise: dice.choice(FAULTS) if dice.random() < 0.3 else "none" for promise in PROMISES}
        if dice.random() < 0.05:
            faults["keyed"] = "400"
        acked: set[str] = set()
        for life in range(KILLS_PER_RUN + 1):
            last = life == KILLS_PER_RUN or self.is_over()
            child = self.server.start("live", db, self.port, str(self.ledger), run, faults)
            began = time.monotonic()
            status = child.join() if last else self.kill_some_time(child, dice)
            self.account(run, child, status, acked, time.monotonic() - began)
            if status == 0:
                return
            if last or status != -9:
                self.problems.append(f"{run} is stuck or failed with status {status}; it said {child.lines[-5:]}")
                return

    def kill_some_time(self, child: Child, dice: random.Random) -> int:
        if dice.random() < 0.33:
            missing = self.missing() if self.kills >= KILLS else []
            child.read(5.0 if missing else 0.5, until=dice.choice(missing or MOMENTS))
            return child.kill()
        if dice.random() < 0.9:
            child.read(LIFE_SECONDS_MAX, until="ready")
        child.read(dice.uniform(0, 1.3) * self.life_seconds)
        if child.lines[-1:] == ["parked"] and dice.random() < 0.8:  # else most kills would fall into a person's pause
            child.read(5, until="decided")
            child.read(dice.uniform(0, 0.05))
        return child.kill()

    def account(self, run: str, child: Child, status: int, acked: set[str], seconds: float) -> None:
        again = {line for line in child.lines if line.startswith("exec ")} & {f"exec {name}" for name in acked}
        acked |= {line.removeprefix("ack ") for line in child.lines if line.startswith("ack ")}
        result = child.said("result ")
        with self._lock:
            self.lives += 1
            if again:
                self.problems.append(f"{run}: acknowledged steps ran again: {again}")
            if status == -9:
                self.kills += 1
                self.fell[child.lines[-1].partition("{")[0] if child.lines else "starting"] += 1
            elif result is not None:
                self.results[run] = json.loads(result)
                if "parked" not in child.lines:
                    self.life_seconds = 0.9 * self.life_seconds + 0.1 * min(seconds, 0.5)


def judge(campaign: Campaign, lines: list[Line]) -> dict[str, dict[str, int]]:
    """Count every effect of every finished run in the ledger: once, or refused and never."""
    counts = performed(lines)
    table = {promise: Counter(effects=0, once=0, refused=0, twice=0, lost=0) for promise in PROMISES}
    for run, result in campaign.results.items():
        for promise in PROMISES:
            row, times = table[promise], counts[f"{run}.{promise}"]
            refused = "refused" in result[promise]
            row["effects"] += 1
            row["once"] += times == 1 and not refused
            row["refused"] += refused and times == 0
            row["twice"] += times > 1
            row["lost"] += times == 0 and not refused
            if not refused:
                assert result[promise]["name"] == f"{run}.{promise}", "a run got another's receipt"
    return {promise: dict(row) for promise, row in table.items()}


def test_a_thousand_kills_lose_nothing_and_repeat_nothing(receiver: tuple[int, Path], quick_path: Path) -> None:
    port, ledger = receiver
    with ForkServer(AGENT) as server:
        campaign = Campaign(server, quick_path, port, ledger)
        threads = [threading.Thread(target=campaign.work, args=(worker,)) for worker in range(AGENTS_AT_ONCE)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
    time.sleep(0.5)  # what is late acts now, if it acts
    table = judge(campaign, read_ledger(ledger))
    print(f"\nseed {SEED}: {campaign.kills} kills, {campaign.lives} lives, {len(campaign.results)} runs, {took:.0f} s")
    print("\n".join(f"{promise:8} {row}" for promise, row in table.items()))
    print("kills fell after:", dict(campaign.fell.most_common()))
    assert not campaign.problems, campaign.problems[:5]
    assert campaign.kills >= KILLS
    for promise, row in table.items():
        assert row["twice"] == row["lost"] == 0, f"{promise}: {row}"
        assert row["once"] + row["refused"] == row["effects"] == len(campaign.results)
    check_stores(campaign, quick_path)
    assert not campaign.missing(), "no kill fell where it counts"


def check_stores(campaign: Campaign, folder: Path) -> None:
    """Nothing is stuck: every run succeeded, every effect ended, every chain verifies."""
    runs = 0
    for path in sorted(folder.glob("agents*.db")):
        store = SqliteStore(path)
        assert all(held.status in TERMINAL for held in store.find_effects(limit=100_000))
        for run in store.find_runs(limit=100_000):
            assert run.status is RunStatus.SUCCEEDED, (run.id, run.status, run.reason)
            read = store.read_run(run.id)
            assert read is not None and len(read[1]) == run.length == 12 + run.fences
            runs += 1
        store.close()
    assert runs == len(campaign.results)
