"""`surefoot worker`, `queues`, `retry` and what `doctor` says of queued runs, as a user runs them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from surefoot import Surefoot, approve, workflow
from surefoot.cli import main
from surefoot.core.run import RunStatus
from surefoot.core.schedule import LATE_SECONDS, FireSchedule
from surefoot.runtime import step as step_module
from tests.worker.conftest import until

pytestmark = pytest.mark.timeout(120)
MAIN = "import sys; from surefoot.cli import main; sys.exit(main())"
SHOP = """
import surefoot, time
from pathlib import Path

@surefoot.step
def pack(order: str) -> str:
    Path("packing").touch()
    while not Path("packed").exists():
        time.sleep(0.01)
    return order

@surefoot.step
def label(order: str) -> str:
    Path("labelled").touch()
    return order

@surefoot.workflow(version="2")
def ship(order: str) -> str:
    return label(pack(order))
"""


@workflow(name="ship", version="2")
def ship(order: str) -> str:
    raise AssertionError("only the worker runs it")


@workflow(name="ship", version="1")
def ship_1(order: str) -> str:
    raise AssertionError("nobody runs it")


@workflow
def bill(order: str) -> str:
    raise AssertionError("nobody runs it")


@workflow
def refund(amount: int) -> int:
    approve({"amount": amount}, by="ann", within=3600)
    return amount


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, words: tuple[str, ...], capture: pytest.CaptureFixture[str]) -> None:
        capture.readouterr()
        self.code = main(list(words))
        self.out, self.err = capture.readouterr()


@pytest.fixture
def surefoot(shop: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command in this process, in the shop's folder."""
    return lambda *words: Ran(words, capsys)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    known = {place: list(held) for place, held in step_module._workflows.items()}
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "twice.py").write_text("from surefoot import Surefoot\na, b = Surefoot('a.db'), Surefoot('b.db')\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "unset.py").write_text("import os\nos.environ['NO_SUCH_KEY']\n")
    (tmp_path / "unclosed.py").write_text("x = (\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    yield tmp_path
    for name in ("shop", "twice", "broken", "empty", "unset", "unclosed", "leaves"):
        sys.modules.pop(name, None)
    step_module._workflows.clear()
    step_module._workflows.update(known)


def test_a_worker_works_until_sigterm_and_gives_back_what_it_has(shop: Path, surefoot: Callable[..., Ran]) -> None:
    command = [sys.executable, "-c", MAIN]
    command += ["worker", "shop", "--queue", "parcels", "--db", "agents.db", "--concurrency", "2"]
    with Surefoot(shop / "agents.db") as sf:
        handle = sf.start(ship, "o1", id="o1", queue="parcels")
        process = subprocess.Popen(command, cwd=shop, stderr=subprocess.PIPE, text=True)
        until((shop / "packing").exists, "the worker to pack")
        assert handle.status() == "running"
        listed = json.loads(surefoot("queues", "--json", "--db", "agents.db").out)["queues"]
        assert [(q["name"], q["running"], q["ready"], q["workers"]) for q in listed] == [("parcels", 1, 0, 1)]
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = iter(process.stderr.readline, "")
        assert re.search(r"working on queues parcels with ship '2'", next(said))
        assert "a worker is stopping: 1 runs" in next(said)
        (shop / "packed").touch()
        assert process.wait(30) == 0, "stopping a worker is no failure"
        assert handle.status() == "pending" and not (shop / "labelled").exists()
        assert "given back" in "".join(said)


def test_doctor_and_queues_tell_what_no_worker_serves(shop: Path, surefoot: Callable[..., Ran]) -> None:
    with Surefoot(shop / "agents.db") as sf:
        sf.queue("parcels", concurrency=3, rate=(5, 60))
        sf.start(ship_1, "old", id="old", queue="parcels")
        sf.start(bill, "b", id="b", queue="parcels")
        sf.start(ship, "lost", id="lost", queue="nobody's")
        sf.start(ship, "later", id="later", queue="parcels", delay=3600)
        with sf.worker([ship], queues=("parcels",)):
            until(lambda: sf.engine.serves is not None and sf.store.board.find_owners(), "the worker to say so")
            said = surefoot("doctor", "--db", "agents.db")
            listed = surefoot("queues", "--db", "agents.db")
            found = {f["run"]["id"]: f for f in json.loads(surefoot("doctor", "--json").out)["runs"]}
    assert said.code == 1
    assert "have workflow 'ship' in version '2', not '1'" in found["old"]["why"]
    assert "no live worker of queue 'parcels' has workflow 'bill'" in found["b"]["why"]
    assert 'no live worker serves queue "nobody\'s"' in found["lost"]["why"]
    assert found["lost"]["next"] == "start one that does: surefoot worker MODULE --queue 'nobody'\"'\"'s'"
    assert not found["later"]["attention"] and "due at" in found["later"]["why"]
    assert [f["attention"] for f in found.values()].count(True) == 3
    assert "limits: 3 at a time, 5 starts in 60 s" in listed.out
    assert "2 that no worker serves" in listed.out


def test_doctor_tells_what_a_waiting_run_waits_for_before_its_time(shop: Path, surefoot: Callable[..., Ran]) -> None:
    """It has a time, too, after which a worker takes it; but somebody can help it before."""
    with Surefoot(shop / "agents.db") as sf, sf.worker([refund]):
        sf.start(refund, 10, id="r1", queue="default")
        until(lambda: sf.get("r1").status is RunStatus.WAITING, "the run to ask")
        (asked,) = sf.approvals()
        (found,) = json.loads(surefoot("doctor", "--json").out)["runs"]
        done = surefoot("approve", asked.id, "--as", "ann")
        until(lambda: sf.get("r1").status is RunStatus.SUCCEEDED, "the worker to go on with it")
    assert not found["attention"] and "it waits until" in found["why"] and "by ann" in found["why"]
    assert found["next"] == f"decide it: surefoot approve {asked.id}, or surefoot deny {asked.id} --why TEXT"
    assert done.code == 0
    assert "next  run 'r1': a worker takes it" in done.out or "next  run 'r1': a worker has taken it" in done.out


def test_doctor_lists_a_schedule_that_nobody_starts(shop: Path, surefoot: Callable[..., Ran]) -> None:
    with Surefoot(shop / "agents.db") as sf:
        sf.schedule("nightly", ship, "o1", cron="0 3 * * *", queue="parcels")
        assert surefoot("doctor").code == 0, "its time has not come"
        (seen,) = sf.store.board.find_schedules()
        missed = replace(seen, next_at=sf.engine.time() - LATE_SECONDS - 1)
        sf.engine.committer.commit(FireSchedule(seen=seen, after=missed, runs=(), stamp=next(sf.engine.stamps)))
        said, (found,) = surefoot("doctor"), json.loads(surefoot("doctor", "--json").out)["schedules"]
        with sf.worker([ship_1], queues=("other",)):
            until(lambda: not json.loads(surefoot("doctor", "--json").out)["schedules"], "any worker to look at it")
    assert said.code == 1 and "! schedule nightly  ship" in said.out and "1 of 1 need attention" in said.out
    assert found["why"].startswith("it was due at ") and found["why"].endswith("; no worker is there to start it")
    assert found["next"] == "start one: surefoot worker MODULE --queue parcels"


def test_retry_lets_a_run_go_on_and_says_who_takes_it(shop: Path, surefoot: Callable[..., Ran]) -> None:
    with Surefoot(shop / "agents.db") as sf:
        sf.start(ship, "o1", id="o1", queue="parcels")
    missing = surefoot("retry", "no")
    ready = surefoot("retry", "o1", "--why", "again")
    assert missing.code == 4 and ready.code == 6 and "nothing to retry" in ready.err

    @workflow(name="ship", version="2")
    def grown(order: str, more: int) -> str:
        return order

    with Surefoot(shop / "agents.db") as sf, sf.worker([grown], queues=("parcels",)):
        until(lambda: sf.get("o1").status is RunStatus.DIVERGED, "the run to be found not to fit")
    done = surefoot("retry", "o1", "--why", "rolled back")
    assert done.code == 0 and "no live worker serves queue 'parcels'" in " ".join(done.out.split())
    with Surefoot(shop / "agents.db") as sf:
        assert sf.get("o1").status is RunStatus.PENDING and sf.get("o1").reason == "rolled back"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "there is no module 'nowhere'"),
        (["shop/agents.py"], "expected MODULE or MODULE:NAME"),
        (["broken"], r"importing 'broken' failed: ZeroDivisionError: division by zero \(.*broken.py:1\)"),
        (["unset"], r"importing 'unset' failed: KeyError: 'NO_SUCH_KEY' \(.*unset.py:2\)"),
        (["unclosed"], r"importing 'unclosed' failed: SyntaxError: .*unclosed.py:1\)"),
        (["leaves"], r"importing 'leaves' failed: SystemExit: 0 \(.*leaves.py:2\); what only a program does"),
        (["shop.py"], r"there is no module 'shop.py' .*; a module's name has no .py: shop"),
        (["shop", "--db", "memory:"], "memory: holds nothing that another process could start"),
        (["shop:app"], "expected a Surefoot at shop:app, found nothing"),
        (["twice"], "holds several Surefoot objects; say which: twice:a, twice:b"),
        (["empty", "--db", "agents.db"], "there is no workflow to work on"),
        (["shop", "--concurrency", "0"], "--concurrency"),
        (["shop", "--queue", "", "--db", "agents.db"], "a queue's name must have 1 to 200 characters"),
    ],
)
def test_what_is_no_worker_is_refused(surefoot: Callable[..., Ran], words: list[str], says: str) -> None:
    step_module._workflows.clear()
    ran = surefoot("worker", *words)
    assert ran.code == 2 and re.search(says, ran.err), ran.err
    assert "Traceback" not in ran.err


def test_a_worker_for_which_no_store_was_named_makes_none(
    surefoot: Callable[..., Ran], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = shop / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.syspath_prepend(str(shop))
    monkeypatch.delenv("SUREFOOT_DB", raising=False)
    ran = surefoot("worker", "shop")
    assert ran.code == 4 and re.search("no store is named, and there is no agents.db here", ran.err), ran.err
    assert not list(elsewhere.iterdir())


def test_doctor_names_the_store_in_the_command_that_starts_a_worker(surefoot: Callable[..., Ran], shop: Path) -> None:
    with Surefoot(shop / "other.db") as sf:
        sf.start(bill, "o1", id="o1", queue="parcels")
    ran = surefoot("doctor", "--db", "other.db", "--json")
    (found,) = json.loads(ran.out)["runs"]
    assert found["next"] == "start one that does: surefoot worker --db other.db MODULE --queue parcels"
