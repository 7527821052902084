"""Through a real pgbouncer in transaction mode: the shipped contract, killed agents, and a pooler that is killed.

    make test-pgbouncer        # needs pgbouncer on the PATH (apt-get install pgbouncer)

Not part of `make test`, since no package index carries pgbouncer; `tests/postgres/test_pooler.py`, which is, gives
every statement another session. Three server sessions serve everybody here, so sessions are really shared.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from surefoot import Surefoot
from surefoot.core.errors import CommitUnknown, NotCommitted, StoreError, StoreRefused, StoreUnreachable
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing import contract
from surefoot.testing.contract import CHECKS, Check
from surefoot.testing.contract_desk import DESK_CHECKS
from surefoot.testing.contract_fence import FENCE_CHECKS
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.ledger import read_ledger
from surefoot.testing.place import Place, slots
from surefoot.testing.postgres import PrivatePostgres
from tests.contract.test_contract import postgres_place
from tests.crash import test_sigkill as sigkill
from tests.postgres import test_kills as kills
from tests.postgres.test_opening import twice

# Presence is a hint that a pooler takes away: it says nothing there, so that leases decide alone.
HELD = [
    check
    for check in CHECKS + DESK_CHECKS + FENCE_CHECKS
    if check is not contract.a_process_is_present_until_it_is_gone
]
SESSIONS, AGENT_KILLS, POOLER_KILLS = 3, 100, 50
START_SECONDS_MAX = 10.0

pytestmark = pytest.mark.timeout(300)
receiver = sigkill.receiver


class PgBouncer:
    """A pooler in front of a private server, on a port of its own."""

    def __init__(self, server: PrivatePostgres, folder: Path) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        assert program, "pgbouncer is not installed: apt-get install pgbouncer"
        self.server, self.folder, self.program = server, folder, program
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "users.txt").write_text(f'"surefoot" "{server.password}"\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\npool_mode = transaction\nauth_type = scram-sha-256\n"
            f"auth_file = {folder}/users.txt\ndefault_pool_size = {SESSIONS}\nmax_client_conn = 500\n"
            "unix_socket_dir =\nserver_login_retry = 1\n"
        )
        self.user = None if os.getuid() else pwd.getpwnam("nobody")
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self.program, "-q", str(self.folder / "pgbouncer.ini")]
        user = self.user.pw_uid if self.user else None
        self.process = subprocess.Popen(command, user=user, stderr=(self.folder / "log").open("ab"))
        give_up = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < give_up, (self.folder / "log").read_text()
                time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL

    def through(self, url: str) -> str:
        """The same database, through this pooler."""
        return url.replace(f":{self.server.port}/", f":{self.port}/")


@contextmanager
def a_pooler(server: PrivatePostgres) -> Iterator[PgBouncer]:
    with tempfile.TemporaryDirectory() as folder:
        pooler = PgBouncer(server, Path(folder))
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.kill()


@pytest.fixture
def quick_path(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(scope="module")
def pooled(postgres: PrivatePostgres) -> Iterator[PgBouncer]:
    with a_pooler(postgres) as pooler:
        yield pooler


def test_it_is_a_pooler_and_is_found_to_be_one(pooled: PgBouncer, postgres: PrivatePostgres) -> None:
    """Twelve connections have three sessions, or this file proves nothing."""
    url = pooled.through(postgres.create_database())
    clients = [psycopg.connect(url, autocommit=True, prepare_threshold=None) for _ in range(12)]
    pids = {row[0] for db in clients for row in db.execute("SELECT pg_backend_pid()").fetchall()}
    assert 1 <= len(pids) <= SESSIONS
    store = PostgresStore(url)
    seen = {PostgresStore(url).promise.pooled for _ in range(3)} | {store.promise.pooled}
    assert True in seen


@pytest.mark.parametrize("check", HELD, ids=lambda check: check.__name__)
def test_the_contract_holds(check: Check, pooled: PgBouncer, postgres: PrivatePostgres) -> None:
    check(postgres_place(pooled.through(postgres.url)))


def test_killed_agents_lose_nothing_and_repeat_nothing(
    receiver: tuple[int, Path], tmp_path: Path, pooled: PgBouncer, postgres: PrivatePostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sigkill, "KILLS", AGENT_KILLS)
    monkeypatch.setattr(kills, "KILLS", AGENT_KILLS)
    port, ledger = receiver
    direct = postgres.create_database()
    workers = 4
    for number in range(workers // 2):
        PostgresStore(direct, schema=f"agents{number}").close()
    with ForkServer(kills.AGENT) as forks:
        campaign = kills.Campaign(forks, tmp_path, port, ledger)
        campaign.url = pooled.through(direct)
        threads = [threading.Thread(target=campaign.work, args=(worker,)) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    time.sleep(0.5)  # what is late acts now, if it acts
    assert not campaign.problems, campaign.problems[:5]
    assert campaign.kills >= AGENT_KILLS
    for promise, row in sigkill.judge(campaign, read_ledger(ledger)).items():
        assert row["twice"] == row["lost"] == 0, f"{promise}: {row}"
        assert row["once"] + row["refused"] == row["effects"] == len(campaign.results)
    kills.check_stores(direct, workers // 2, len(campaign.results))


def test_a_pooler_that_is_killed_loses_nothing_that_was_acknowledged(postgres: PrivatePostgres) -> None:
    direct = postgres.create_database()
    with a_pooler(postgres) as pooler:
        store = PostgresStore(pooler.through(direct))
        place = Place(lambda: store, fresh=lambda: place)
        store.transact([place.start()])
        acknowledged: list[str] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                slot = f"s{len(acknowledged)}"
                append, again = place.append(slot), False
                while True:
                    try:
                        store.transact([append], again=again)
                        break
                    except CommitUnknown:
                        again = True
                    except (NotCommitted, StoreError):
                        continue
                acknowledged.append(slot)

        thread = threading.Thread(target=write)
        thread.start()
        for number in range(POOLER_KILLS):
            before, give_up = len(acknowledged), time.monotonic() + 60
            while len(acknowledged) < before + 3:
                assert time.monotonic() < give_up, f"nothing is written after kill {number}"
                time.sleep(0.005)
            pooler.kill()
            pooler.start()
        stop.set()
        thread.join()
        store.close()
    store = PostgresStore(direct)
    assert slots(store) == acknowledged and store.check() == []
    store.close()


def test_a_worker_behind_it_serves_a_queue(pooled: PgBouncer, postgres: PrivatePostgres) -> None:
    url = pooled.through(postgres.create_database())
    with Surefoot(url) as sf:
        handles = [sf.start(twice, id=f"r{number}", queue="default") for number in range(20)]
        worker = sf.worker([twice])
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert [handle.result(60) for handle in handles] == [2] * 20
        worker.stop()
        thread.join()


def test_a_server_that_is_away_behind_it_is_told_from_a_wrong_password() -> None:
    with PrivatePostgres(fsync=False) as server, a_pooler(server) as pooler:
        server.stop()
        url = f"{pooler.through(server.url)}?connect_timeout=2"
        with pytest.raises(StoreUnreachable):
            Surefoot(url)
        with pytest.raises(StoreRefused, match="check user, password") as refused:
            Surefoot(url.replace(server.password, "wrong"))
        assert not isinstance(refused.value, StoreUnreachable)
