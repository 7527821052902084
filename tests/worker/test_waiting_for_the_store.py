"""`surefoot worker` started while its database is away: it waits, says so once, and works when it is back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from surefoot import StoreRefused, StoreUnreachable, Surefoot, workflow
from surefoot.testing.postgres import PrivatePostgres
from tests.worker.conftest import until

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]
MAIN = "import sys; from surefoot.cli import main; sys.exit(main())"
CODE = """
import os
from surefoot import Surefoot, step, workflow

@step
def pack(order: str) -> str:
    return order

@workflow
def ship(order: str) -> str:
    return pack(order)
"""
OPENS = CODE + "\nsf = Surefoot(os.environ['SHOP_DB'], grace=float(os.environ.get('SHOP_GRACE', 10)))\n"


@workflow(name="ship")
def ship(order: str) -> str:
    raise AssertionError("only the worker runs it")


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivatePostgres]:
    with PrivatePostgres(fsync=False) as server:
        yield server


@pytest.fixture
def database(cluster: PrivatePostgres) -> Iterator[str]:
    if cluster._server is None:
        cluster.start()
    yield cluster.create_database()
    if cluster._server is None:
        cluster.start()


class Program:
    """`surefoot worker ...` as a process, and what it has said."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        command = [sys.executable, "-c", MAIN, "worker", *words]
        kept = {name: value for name, value in os.environ.items() if name != "SUREFOOT_DB"}
        self.process = subprocess.Popen(
            command, cwd=folder, env={**kept, **environment}, stderr=subprocess.PIPE, text=True
        )
        self.said = ""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def end(self) -> int:
        """Ask it to stop; its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(30)
        self.reader.join()
        return code


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    (tmp_path / "shop.py").write_text(CODE)
    (tmp_path / "opens.py").write_text(OPENS)
    started: list[Program] = []

    def start(*words: str, **environment: str) -> Program:
        started.append(Program(tmp_path, *words, **environment))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.wait()


@pytest.mark.parametrize("opened_by", ["the command", "the module"])
def test_a_worker_started_before_its_database_waits_and_goes_on(
    cluster: PrivatePostgres, database: str, program: Callable[..., Program], opened_by: str
) -> None:
    with Surefoot(database) as sf:
        sf.start(ship, "o1", id="o1", queue="default")
    cluster.stop()
    started = program("shop", "--db", database) if opened_by == "the command" else program("opens", SHOP_DB=database)
    until(lambda: "Waiting for it" in started.said, "the worker to say that it waits")
    assert started.process.poll() is None
    cluster.start()
    with Surefoot(database) as sf:
        until(lambda: sf.get("o1").status == "succeeded", "the run to end")
    assert started.end() == 0, started.said
    assert started.said.count("Waiting for it") == 1 and started.said.count("the store is there") == 1
    assert cluster.password not in started.said and "Traceback" not in started.said


def test_a_worker_that_waits_for_its_database_ends_when_it_is_told_to(
    cluster: PrivatePostgres, database: str, program: Callable[..., Program]
) -> None:
    cluster.stop()
    started = program("shop", "--db", database)
    until(lambda: "Waiting for it" in started.said, "the worker to say that it waits")
    assert started.end() == -15, started.said


@pytest.mark.parametrize("signals", [1, 2])
def test_a_worker_whose_database_went_away_ends_within_its_grace_time_or_at_a_second_signal(
    cluster: PrivatePostgres, database: str, program: Callable[..., Program], signals: int
) -> None:
    """It would else try to connect for 20 seconds, and again for each thing that it may not leave open."""
    with Surefoot(database) as sf:
        handle = sf.start(ship, "o1", id="o1", queue="default")
        started = program("opens", SHOP_DB=database, SHOP_GRACE="1" if signals == 1 else "3600")
        until(lambda: handle.status() == "succeeded", "the worker to work")
    cluster.kill()
    try:
        time.sleep(1)  # a few of its looks
        for _ in range(signals):
            started.process.terminate()
            time.sleep(0.3)  # two signals at once are one
        assert started.process.wait(15) == 128 + 15, started.said
        assert "Traceback" not in started.said
    finally:
        cluster.start()


def test_what_no_waiting_mends_ends_a_worker_at_once(
    cluster: PrivatePostgres, database: str, program: Callable[..., Program]
) -> None:
    Surefoot(database).close()
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
    wrong = database.replace(cluster.password, "wrong")
    weak = database.replace(f"surefoot:{cluster.password}", "weak:weak")
    nowhere = database.rpartition("/")[0] + "/nowhere"
    for url, says in ((wrong, "password authentication failed"), (weak, "GRANT USAGE"), (nowhere, "does not exist")):
        started = program("shop", "--db", url)
        assert started.wait() == 5, started.said
        assert says in started.said and "Waiting" not in started.said and "Traceback" not in started.said
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("INSERT INTO surefoot.migrations (number) VALUES (99)")
    newer = program("opens", SHOP_DB=database)
    assert newer.wait() == 2 and "Upgrade Surefoot" in newer.said and "Waiting" not in newer.said


def test_a_server_that_is_away_is_told_from_one_that_refuses(cluster: PrivatePostgres, database: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        Surefoot(database.replace(cluster.password, "wrong"))
    assert not isinstance(refused.value, StoreUnreachable)
    with pytest.raises(StoreRefused, match="switch SSL on there") as refused:
        Surefoot(database + "?sslmode=require")
    assert not isinstance(refused.value, StoreUnreachable)
    cluster.stop()
    with pytest.raises(StoreUnreachable, match="check host and port"):
        Surefoot(database)


def test_a_server_without_a_free_connection_is_one_that_is_away() -> None:
    settings = {"max_connections": "4", "superuser_reserved_connections": "0"}
    with PrivatePostgres(fsync=False, settings=settings) as server:
        held = [psycopg.connect(server.url) for _ in range(4)]
        with pytest.raises(StoreUnreachable, match="too many clients"):
            Surefoot(server.url)
        for each in held:
            each.close()
