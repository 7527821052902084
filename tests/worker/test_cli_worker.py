"""`surefoot worker`, `queues`, `retry` and what `doctor` says of queued runs, as a user runs them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, workflow
from surefoot.core.run import RunStatus
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

@surefoot.workflow(version="2")
def ship(order: str) -> str:
    return pack(order)
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


def surefoot(folder: Path, *words: str) -> Any:
    command = [sys.executable, "-c", MAIN, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "twice.py").write_text("from surefoot import Surefoot\na, b = Surefoot('a.db'), Surefoot('b.db')\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "empty.py").write_text("")
    return tmp_path


def test_a_worker_works_until_sigterm_and_gives_back_what_it_has(shop: Path) -> None:
    command = [sys.executable, "-c", MAIN]
    command += ["worker", "shop", "--queue", "parcels", "--db", "agents.db", "--concurrency", "2"]
    with Surefoot(shop / "agents.db") as sf:
        handle = sf.start(ship, "o1", id="o1", queue="parcels")
        process = subprocess.Popen(command, cwd=shop, stderr=subprocess.PIPE, text=True)
        until((shop / "packing").exists, "the worker to pack")
        assert handle.status() == "running"
        listed = json.loads(surefoot(shop, "queues", "--json", "--db", "agents.db").stdout)["queues"]
        assert [(q["name"], q["running"], q["ready"], q["workers"]) for q in listed] == [("parcels", 1, 0, 1)]
        process.send_signal(signal.SIGTERM)
        until(lambda: sf.store.board.find_owners(), "the worker's row")
        (shop / "packed").touch()
        assert process.wait(30) == 0, "stopping a worker is no failure"
        assert process.stderr is not None
        said = process.stderr.read()
        assert re.search(r"working on queues parcels with ship '2'", said)
        # it stopped at its next step, or there was none
        assert handle.status() in ("pending", "succeeded")


def test_doctor_and_queues_tell_what_no_worker_serves(shop: Path) -> None:
    with Surefoot(shop / "agents.db") as sf:
        sf.queue("parcels", concurrency=3, rate=(5, 60))
        sf.start(ship_1, "old", id="old", queue="parcels")
        sf.start(bill, "b", id="b", queue="parcels")
        sf.start(ship, "lost", id="lost", queue="nobody's")
        sf.start(ship, "later", id="later", queue="parcels", delay=3600)
        with sf.worker([ship], queues=("parcels",)):
            until(lambda: sf.engine.serves is not None and sf.store.board.find_owners(), "the worker to say so")
            said = surefoot(shop, "doctor", "--db", "agents.db")
            listed = surefoot(shop, "queues", "--db", "agents.db")
            found = {f["run"]["id"]: f for f in json.loads(surefoot(shop, "doctor", "--json").stdout)["runs"]}
    assert said.returncode == 1
    assert "have workflow 'ship' in version '2', not '1'" in found["old"]["why"]
    assert "no live worker of queue 'parcels' has workflow 'bill'" in found["b"]["why"]
    assert 'no live worker serves queue "nobody\'s"' in found["lost"]["why"]
    assert found["lost"]["next"] == "start one that does: surefoot worker MODULE --queue 'nobody'\"'\"'s'"
    assert not found["later"]["attention"] and "due at" in found["later"]["why"]
    assert [f["attention"] for f in found.values()].count(True) == 3
    assert "limits: 3 at a time, 5 starts in 60 s" in listed.stdout
    assert "2 that no worker serves" in listed.stdout


def test_retry_lets_a_run_go_on_and_says_who_takes_it(shop: Path) -> None:
    with Surefoot(shop / "agents.db") as sf:
        sf.start(ship, "o1", id="o1", queue="parcels")
    missing = surefoot(shop, "retry", "no")
    ready = surefoot(shop, "retry", "o1", "--why", "again")
    assert missing.returncode == 4 and ready.returncode == 6 and "nothing to retry" in ready.stderr

    @workflow(name="ship", version="2")
    def grown(order: str, more: int) -> str:
        return order

    with Surefoot(shop / "agents.db") as sf, sf.worker([grown], queues=("parcels",)):
        until(lambda: sf.get("o1").status is RunStatus.DIVERGED, "the run to be found not to fit")
    done = surefoot(shop, "retry", "o1", "--why", "rolled back")
    assert done.returncode == 0 and "no live worker serves queue 'parcels'" in " ".join(done.stdout.split())
    with Surefoot(shop / "agents.db") as sf:
        assert sf.get("o1").status is RunStatus.PENDING and sf.get("o1").reason == "rolled back"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "there is no module 'nowhere'"),
        (["shop/agents.py"], "expected MODULE or MODULE:NAME"),
        (["broken"], r"importing 'broken' failed: ZeroDivisionError: division by zero \(.*broken.py:1\)"),
        (["shop:app"], "expected a Surefoot at shop:app, found nothing"),
        (["twice"], "holds several Surefoot objects; say which: twice:a, twice:b"),
        (["empty"], "there is no workflow to work on"),
        (["shop", "--concurrency", "0"], "0 is not in the range"),
        (["shop", "--queue", ""], "a queue's name must have 1 to 200 characters"),
    ],
)
def test_what_is_no_worker_is_refused(shop: Path, words: list[str], says: str) -> None:
    ran = surefoot(shop, "worker", *words)
    assert ran.returncode == 2 and re.search(says, ran.stderr), ran.stderr
    assert "Traceback" not in ran.stderr
