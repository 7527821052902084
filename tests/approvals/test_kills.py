"""Killed for real at every boundary of an approval: one effect, with exactly the approved bytes, in its ledger."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import Surefoot
from surefoot.core.run import RunStatus
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import read_ledger
from tests.approvals.support import until
from tests.runtime.support import slots

pytestmark = pytest.mark.xdist_group("processes")
KILLED = -signal.SIGKILL
PEOPLE, PROCESSES = 32, 2
BEFORE_THE_DECISION = ("before AskApproval", "after AskApproval", "before EndRun", "after EndRun")
AFTER_THE_DECISION = (
    "before approval read",
    "after approval read",
    "before TakeEffect",
    "after TakeEffect",
    "before SendEffect",
    "after SendEffect",
    "before RecordEffect",
    "after RecordEffect",
)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.approvals.killed_agent") as server:
        yield server


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "agents.db")


def decide(sf: Surefoot) -> None:
    """Wait until the run asks, and approve what it shows."""
    asked = until(sf.approvals)
    sf.approve(asked[0].id, who="ann", digest=asked[0].digest)


def wait_until_it_waits(sf: Surefoot) -> None:
    until(lambda: (run := sf.store.find_run("r")) is not None and run.status is RunStatus.WAITING)


def end_well(sf: Surefoot, child: Child, ledger: Path) -> None:
    """The last life ends by itself; the world has changed once, as approved, under one approval."""
    assert child.join() == 0 and child.said("result") == "10", child.lines
    lines = read_ledger(ledger)
    assert [(line.what, line.name, line.body) for line in lines if line.what != "repeated"] == [
        ("performed", "r", "10")
    ]
    assert len({(line.key, line.body) for line in lines}) == 1
    assert Counter(slot.partition(":")[0] for slot in slots(sf, "r")) == {"approval": 2, "release": 1, "refund": 2}
    (effect,) = sf.store.find_effects()
    assert effect.request == b'{"amount":10,"charge":"r"}'
    assert len(sf.store.board.read_mail("r")) == 1


@pytest.mark.parametrize("asynchronous", [False, True], ids=["def", "async"])
@pytest.mark.parametrize("place", BEFORE_THE_DECISION + AFTER_THE_DECISION)
def test_killed_there_it_pays_once_what_was_approved(
    place: str, asynchronous: bool, server: ForkServer, db: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    first = server.start("live", db, str(ledger), "r", place, asynchronous)
    with Surefoot(db) as sf:
        if place in AFTER_THE_DECISION:
            decide(sf)
        assert first.join() == KILLED and first.said("struck") == place, first.lines
        second = server.start("live", db, str(ledger), "r", "", asynchronous)
        if place in BEFORE_THE_DECISION:
            decide(sf)
        end_well(sf, second, ledger)


def test_a_decision_that_was_made_while_nobody_lived_is_read_by_the_next(
    server: ForkServer, db: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    first = server.start("live", db, str(ledger), "r", "", False)
    with Surefoot(db) as sf:
        wait_until_it_waits(sf)
        assert first.kill() == KILLED
        decide(sf)
        assert not ledger.exists()
        end_well(sf, server.start("live", db, str(ledger), "r", "", False), ledger)


def test_killed_again_and_again_it_uses_its_approval_once(server: ForkServer, db: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with Surefoot(db) as sf:
        for place in BEFORE_THE_DECISION[:2]:
            assert server.start("live", db, str(ledger), "r", place, False).join() == KILLED
        decide(sf)
        for place in ("after TakeEffect", "after SendEffect", "before RecordEffect"):
            assert server.start("live", db, str(ledger), "r", place, False).join() == KILLED
        end_well(sf, server.start("live", db, str(ledger), "r", "", False), ledger)
    assert len(read_ledger(ledger)) >= 2, "it was sent again, under its key"


def test_of_many_who_decide_at_once_in_two_processes_one_decides(server: ForkServer, db: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    agent = server.start("live", db, str(tmp_path / "ledger"), "r", "", False)
    with Surefoot(db) as sf:
        wait_until_it_waits(sf)
        (view,) = sf.approvals()
        jobs = [server.start("decide_at_once", db, view.id, view.digest, PEOPLE, str(go)) for _ in range(PROCESSES)]
        for job in jobs:
            assert job.read(30, until="ready")
        go.touch()
        assert [job.join() for job in jobs] == [0] * PROCESSES
        said = [line for job in jobs for line in job.lines if line != "ready"]
        (winner,) = [line.removeprefix("won ") for line in said if line.startswith("won")]
        assert said.count(f"lost to {winner}") == PEOPLE * PROCESSES - 1
        after = sf.approval(view.id)
        assert after.decision is not None and after.decision.who == winner
        approved = after.decision.decision == "approved"
    agent.join()
    assert (tmp_path / "ledger").exists() is approved
    assert os.path.exists(db)
