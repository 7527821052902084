"""Several processes and one file: one owner at a time, and a stale one changes and sends nothing (R7).

Real processes, real SIGSTOP, SIGCONT, SIGKILL. A process that stands still past its lease is the hard case: it wakes in
the middle of what it was doing and does not know that anything happened.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, effect, keyed, workflow
from surefoot.core.effect import Effect, Status
from surefoot.core.journal import Entry
from surefoot.core.run import Run, RunStatus
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import performed, read_ledger

AGENT = str(Path(__file__).with_name("paired_agent.py"))
SIGSTOP_COMMANDS_MIN = 12

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(AGENT) as server:
        yield server


@pytest.fixture
def receiver(quick_path: Path) -> Iterator[tuple[int, Path]]:
    ledger = quick_path / "ledger.jsonl"
    command = [sys.executable, "-m", "surefoot.testing.receiver", str(ledger), "0.3", "0"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    yield int(process.stdout.readline()), ledger
    process.stdin.close()
    assert process.wait(30) == 0


def stored(db: Path, run: str) -> tuple[Run, list[Entry], list[Effect]]:
    store = SqliteStore(db)
    read = store.read_run(run)
    effects = store.find_effects(run_id=run)
    store.close()
    assert read is not None
    return *read, effects


def start_shared(
    server: ForkServer, db: Path, *, lease: float = 60, hold: Path | str = "", when_running: str = "wait"
) -> Child:
    return server.start("run_shared", str(db), "one", lease, str(hold), when_running)


# --- one claim ----------------------------------------------------------------------------------------------------


def test_eight_processes_ask_for_one_run_and_one_of_them_works(server: ForkServer, quick_path: Path) -> None:
    db = quick_path / "agents.db"
    children = [start_shared(server, db) for _ in range(8)]
    assert [child.join() for child in children] == [0] * 8
    said = [line for child in children for line in child.lines]
    assert sorted(line for line in said if line.startswith(("exec", "body"))) == [
        "body", "exec a", "exec b", "exec c", "exec d", "exec hold"
    ]  # fmt: skip
    assert [child.said("result ") for child in children] == ["['a', 'b', 'c', 'd', 'held']"] * 8
    run, entries, _ = stored(db, "one")
    assert (run.fence, len(entries)) == (1, 5)


def test_a_killed_owners_run_is_taken_over_at_once_again_and_again(server: ForkServer, quick_path: Path) -> None:
    """With a lease of a minute: presence tells, not time."""
    db, hold = quick_path / "agents.db", quick_path / "go on"
    children = [start_shared(server, db, hold=hold) for _ in range(6)]
    living, owners, took = children.copy(), [], []
    while len(living) > 1:
        began = time.monotonic()
        owner = next_owner(living)
        took.append(time.monotonic() - began)
        owners.append(owner)
        living.remove(owner)
        assert not any("exec hold" in child.lines for child in living), "two owners at a time"
        assert owner.kill() == -9
    hold.touch()
    assert living[0].join() == 0
    said = [line for child in children for line in child.lines]
    assert {line: said.count(line) for line in said if line.startswith("exec") and "hold" not in line} == {
        f"exec {part}": 1 for part in "abcd"
    }
    run, _, _ = stored(db, "one")
    assert run.fence == 6 and run.status is RunStatus.SUCCEEDED
    assert max(took) < 5, f"a takeover took {max(took):.1f} s; the lease is a minute"


def next_owner(living: list[Child]) -> Child:
    """Whoever holds the run now."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        for child in living:
            child.read(0.01)
            if "exec hold" in child.lines:
                return child
    raise AssertionError("nobody took the run over")


def test_a_live_run_is_refused_or_waited_for(server: ForkServer, quick_path: Path) -> None:
    db, hold = quick_path / "agents.db", quick_path / "go on"
    owner = start_shared(server, db, hold=hold)
    assert owner.read(20, until="exec hold")
    refused = start_shared(server, db, when_running="refuse")
    assert refused.join() == 0 and f"process {owner.pid} on" in (refused.said("busy ") or "")
    waiting = start_shared(server, db)
    waiting.read(0.3)
    assert waiting.lines == ["ready"]
    hold.touch()
    assert owner.join() == waiting.join() == 0
    assert waiting.said("result ") == owner.said("result ") and "body" not in waiting.lines


# --- a process that stood still -----------------------------------------------------------------------------------


def test_a_stale_owner_cannot_write_while_its_successor_works(server: ForkServer, quick_path: Path) -> None:
    """Both hold the same run, and only the fence token tells them apart."""
    db, let_first, let_second = quick_path / "agents.db", quick_path / "first", quick_path / "second"
    first = start_shared(server, db, lease=0.5, hold=let_first)
    assert first.read(20, until="exec hold")
    first.signal(signal.SIGSTOP)
    second = start_shared(server, db, lease=0.5, hold=let_second)
    assert second.read(20, until="exec hold") and "exec a" not in second.lines
    let_first.touch()
    first.signal(signal.SIGCONT)
    first.read(0.5)
    run, entries, _ = stored(db, "one")
    assert (run.status, run.fence, len(entries) - run.fences) == (RunStatus.RUNNING, 2, 4), (
        "a stale owner wrote into the journal"
    )
    let_second.touch()
    assert first.join() == second.join() == 0
    assert first.said("result ") == second.said("result ") == "['a', 'b', 'c', 'd', 'held']"
    run, entries, _ = stored(db, "one")
    assert len(entries) - run.fences == 5


class Standstill:
    """Process A stops itself at one place; B takes the run over and ends it; A wakes up."""

    def __init__(self, server: ForkServer, folder: Path, port: int, name: str) -> None:
        self.server, self.port, self.name = server, port, name
        self.db = folder / f"{name}.db"
        self.before: Any = None

    def play(self, number: int, when: str, *, in_body: bool = False) -> Child:
        first = self.start(number, when, in_body)
        if not first.read(30, until="stopping"):
            assert first.join() == 0
            return first
        while not first.is_stopped():
            time.sleep(0.005)
        second = self.start(0, "before", False)
        assert second.join() == 0, second.lines
        self.result = second.said("result ")
        self.before = stored(self.db, self.name)
        first.signal(signal.SIGCONT)
        assert first.join() == 0, first.lines
        self.after = stored(self.db, self.name)
        return first

    def start(self, number: int, when: str, in_body: bool) -> Child:
        return self.server.start("run_errand", str(self.db), self.port, self.name, number, when, in_body)


def late_evidence(effects: list[Effect]) -> list[str]:
    return [e.found for held in effects for e in held.evidence if e.kind == "late"]


def test_an_owner_that_stood_still_at_any_command_changes_and_sends_nothing(
    server: ForkServer, receiver: tuple[int, Path], quick_path: Path
) -> None:
    port, ledger = receiver
    cases = [(number, when) for number in range(1, 40) for when in ("before", "after")]
    played: dict[tuple[int, str], tuple[Standstill, Child]] = {}
    todo = iter(cases)
    lock = threading.Lock()
    over, problems = [99], list[BaseException]()

    def play() -> None:
        while not problems:
            with lock:
                number, when = next(todo, (99, ""))
            if number >= over[0]:
                return
            scene = Standstill(server, quick_path, port, f"{number}-{when}")
            try:
                child = scene.play(number, when)
            except BaseException as error:
                problems.append(error)
                return
            if scene.before is None:
                over[0] = min(over[0], number)
            else:
                played[number, when] = scene, child

    threads = [threading.Thread(target=play) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert len(played) >= 2 * SIGSTOP_COMMANDS_MIN
    counts = performed(read_ledger(ledger))
    struck = set[str]()
    for (number, when), (scene, child) in played.items():
        place = f"{when} command {number} ({child.said('struck ')})"
        struck.add(f"{when} {child.said('struck ')}")
        check_nothing_changed(scene, child, place)
        assert counts[scene.name] == 1, f"{place}: performed {counts[scene.name]} times"
    assert {"before SendEffect", "after SendEffect", "before Record", "after Commit"} <= struck
    answered = next(
        scene
        for (_, when), (scene, child) in played.items()
        if (when, child.said("struck ")) == ("after", "SendEffect")
    )
    assert late_evidence(answered.after[2]) == ["landed"], "what the stale owner had learned was lost"


def check_nothing_changed(scene: Standstill, child: Child, place: str) -> None:
    woke = child.lines.index("woke")
    assert "sending" not in child.lines[woke:], f"{place}: a stale owner sent"
    assert child.said("result ") == scene.result, f"{place}: it returned something else"
    (run, entries, effects), (run_after, entries_after, effects_after) = scene.before, scene.after
    assert run_after == run and entries_after == entries, f"{place}: a stale owner changed the run"
    assert [(e.status, e.receipt, e.attempts) for e in effects_after] == [
        (e.status, e.receipt, e.attempts) for e in effects
    ], f"{place}: a stale owner changed an effect"
    assert run.status is RunStatus.SUCCEEDED


def test_a_body_that_wakes_after_its_deadline_sends_nothing_any_more(
    server: ForkServer, receiver: tuple[int, Path], quick_path: Path
) -> None:
    """A process that woke inside its body is past every fence; its request is stopped where it would leave."""
    port, ledger = receiver
    scene = Standstill(server, quick_path, port, "begun")
    child = scene.play(0, "before", in_body=True)
    assert child.lines.index("sending") < child.lines.index("woke") and child.lines.count("sending") == 1
    assert child.said("result ") == scene.result
    whats = [line.what for line in read_ledger(ledger)]
    assert whats == ["performed"], "a request whose deadline has passed must not leave"
    (run, entries, _), (run_after, entries_after, effects) = scene.before, scene.after
    assert (run, entries) == (run_after, entries_after)
    assert late_evidence(effects) == ["unsent"] and effects[0].status is Status.CONFIRMED


# --- a stranger's lock --------------------------------------------------------------------------------------------


def test_eight_seconds_of_a_strangers_lock_while_an_outcome_is_recorded_repeat_nothing(
    server: ForkServer, quick_path: Path
) -> None:
    db = quick_path / "agents.db"
    sent: list[str] = []
    strangers: list[Child] = []

    @effect(keyed(window=600), timeout=5)
    def locked_out(attempt: Any, name: str) -> dict[str, str]:
        sent.append(attempt.key)
        stranger = server.start("hold_lock", str(db), 8.0)
        assert stranger.read(20, until="locked")
        strangers.append(stranger)
        return {"name": name}

    @workflow
    def under_lock(name: str) -> Any:
        return locked_out(name)

    began = time.monotonic()
    with Surefoot(db) as surefoot:
        assert surefoot.run(under_lock, "o1", id="locked") == {"name": "o1"}
        assert time.monotonic() - began > 7.5, "the lock was not held while the outcome was recorded"
        assert surefoot.run(under_lock, "o1", id="locked") == {"name": "o1"}
    assert strangers[0].join() == 0 and len(sent) == 1
    _, entries, effects = stored(db, "locked")
    assert len(entries) == 2 and [(e.status, e.attempts) for e in effects] == [(Status.CONFIRMED, 1)]


# --- the user's own transaction -----------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["autocommit", "dbapi"])
@pytest.mark.parametrize("place", ["before", "body", "after"])
def test_an_effect_in_the_users_transaction_survives_a_kill_on_either_side_of_it(
    server: ForkServer, quick_path: Path, driver: str, place: str
) -> None:
    db, app = quick_path / "agents.db", quick_path / "app.db"
    killed = server.start("run_booking", str(db), str(app), driver, place)
    assert killed.join() == -9 and killed.said("result ") is None
    assert ("inserted" in killed.lines) == (place != "before")
    orders = "SELECT name FROM orders"
    assert sqlite3.connect(app).execute(orders).fetchall() == ([("o1",)] if place == "after" else [])
    again = server.start("run_booking", str(db), str(app), driver, "nowhere")
    assert again.join() == 0 and again.said("result ") == "{'order': 'o1'}"
    assert ("inserted" in again.lines) == (place != "after"), "it was booked again, or not at all"
    assert sqlite3.connect(app).execute(orders).fetchall() == [("o1",)]
