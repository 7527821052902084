"""Real kills: of agents at random moments, of the server's processes, and of the server. Nothing is lost or repeated.

As `tests/crash/test_sigkill.py`, whose campaign this is, on PostgreSQL: what happened is counted in the receiver's
ledger, and each kill is proved by an exit status. SUREFOOT_PG_KILLS asks for more.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from surefoot.core.effect import TERMINAL
from surefoot.core.errors import CommitUnknown, NotCommitted, StoreError
from surefoot.core.run import RunStatus
from surefoot.core.writes import Verdict
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.ledger import read_ledger
from surefoot.testing.place import Place, seen_by, slots
from surefoot.testing.postgres import PrivatePostgres
from tests.crash import test_sigkill as sigkill

KILLS = int(os.environ.get("SUREFOOT_PG_KILLS", "200"))
SERVER_KILLS = 50
SEED = 20261202
AGENT = "tests.postgres.killed_agent"

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]
receiver = sigkill.receiver


@pytest.fixture
def quick_path(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def server() -> Iterator[PrivatePostgres]:
    """No power is cut here: what a process has written survives its kill without fsync."""
    with PrivatePostgres(fsync=False) as server:
        yield server


class Campaign(sigkill.Campaign):
    """The same kills; every second thread shares a database's schema."""

    url = ""

    def work(self, worker: int) -> None:
        dice = random.Random(SEED * 1000 + worker)
        number = 0
        try:
            while self.kills < KILLS and not self.problems:
                self.one_run(f"w{worker}-{number}", f"{self.url}?surefoot_schema=agents{worker // 2}", dice)
                number += 1
        except BaseException as error:
            self.problems.append(f"worker {worker}: {type(error).__name__}: {error}")


def test_killed_agents_lose_nothing_and_repeat_nothing(
    receiver: tuple[int, Path], quick_path: Path, server: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sigkill, "KILLS", KILLS)
    port, ledger = receiver
    workers = 6
    for number in range(workers // 2):
        PostgresStore(server.url, schema=f"agents{number}").close()
    with ForkServer(AGENT) as forks:
        campaign = Campaign(forks, quick_path, port, ledger)
        campaign.url = server.url
        threads = [threading.Thread(target=campaign.work, args=(worker,)) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    time.sleep(0.5)  # what is late acts now, if it acts
    table = sigkill.judge(campaign, read_ledger(ledger))
    print(f"\n{campaign.kills} kills, {campaign.lives} lives, {len(campaign.results)} runs")
    print("\n".join(f"{promise:8} {row}" for promise, row in table.items()))
    assert not campaign.problems, campaign.problems[:5]
    assert campaign.kills >= KILLS
    for promise, row in table.items():
        assert row["twice"] == row["lost"] == 0, f"{promise}: {row}"
        assert row["once"] + row["refused"] == row["effects"] == len(campaign.results)
    check_stores(server.url, workers // 2, len(campaign.results))


def check_stores(url: str, stores: int, results: int) -> None:
    """Nothing is stuck: every run succeeded, every effect ended, every chain verifies."""
    runs = 0
    for number in range(stores):
        store = PostgresStore(url, schema=f"agents{number}")
        assert all(held.status in TERMINAL for held in store.find_effects(limit=100_000))
        found = store.find_runs(limit=100_000)
        assert {run.status for run in found} == {RunStatus.SUCCEEDED} and {
            run.length - run.fences for run in found
        } == {12}
        assert store.check() == []
        runs += len(found)
        store.close()
    assert runs == results


class Writer:
    """Appends without pause through every kill; what was acknowledged is listed before anything else happens."""

    def __init__(self, url: str, run_id: str) -> None:
        self.store, self.run_id = PostgresStore(url), run_id
        self.place = Place(lambda: self.store, fresh=lambda: self.place)
        self.store.transact([self.place.start(run_id)])
        self.acknowledged: list[str] = []
        self.unknown = 0
        self.stop = False
        self.problem: BaseException | None = None

    def work(self) -> None:
        number = 0
        try:
            while not self.stop:
                batch = [self.place.append(f"{number}.{part}", run_id=self.run_id) for part in range(1 + number % 3)]
                again = False
                while True:
                    try:
                        answers = self.store.transact(batch, again=again)
                        break
                    except CommitUnknown:
                        self.unknown, again = self.unknown + 1, True
                    except NotCommitted:
                        assert not again
                assert {answer.verdict for answer in answers} == {Verdict.DONE}
                self.acknowledged += [write.draft.slot for write in batch]
                number += 1
        except BaseException as error:
            self.problem = error


def test_killed_servers_lose_nothing_that_was_acknowledged(server: PrivatePostgres) -> None:
    dice = random.Random(SEED)
    writers = [Writer(server.url, f"r{number}") for number in range(2)]
    threads = [threading.Thread(target=writer.work) for writer in writers]
    for thread in threads:
        thread.start()
    kills, whole = 0, 0
    while kills < SERVER_KILLS:
        before = [len(writer.acknowledged) for writer in writers]
        while [len(writer.acknowledged) for writer in writers] == before and not any(w.problem for w in writers):
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.02))
        if kills % 5 == 4:
            server.kill()
            server.restart()
            whole += 1
        else:
            os.kill(a_backend(server), signal.SIGKILL)
        kills += 1
        assert not any(writer.problem for writer in writers), [writer.problem for writer in writers]
    for writer in writers:
        writer.stop = True
    for thread in threads:
        thread.join()
    crashes = server.log().count("was terminated by signal 9")
    print(
        f"\n{kills} kills ({whole} of the whole server), {sum(len(w.acknowledged) for w in writers)} acknowledged, ",
        end="",
    )
    print(f"{sum(w.unknown for w in writers)} commits of unknown outcome")
    assert crashes >= (SERVER_KILLS - whole) * 0.9 and whole == SERVER_KILLS // 5
    for writer in writers:
        assert slots(writer.store, writer.run_id) == writer.acknowledged
        assert writer.store.check() == []
        writer.store.close()


def a_backend(server: PrivatePostgres) -> int:
    """The process behind one of the writers' connections, most often the one that is at work."""
    query = b"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
    while True:
        try:
            with psycopg.connect(server.url, connect_timeout=10) as db:
                found = db.execute(query + b"ORDER BY state, random() LIMIT 1").fetchone()
                if found is not None:
                    return found[0]
        except psycopg.Error:
            pass  # it is still starting after the last kill
        time.sleep(0.005)


def test_a_paused_worker_holds_no_lock_and_writes_nothing_late(server: PrivatePostgres) -> None:
    """SIGSTOP in the midst of writing, takeover by another, SIGCONT: the sleeper finds that it was fenced."""
    PostgresStore(server.url).close()
    with ForkServer(__file__) as forks:
        for number in range(10):
            child = forks.start("append_until_fenced", server.url, f"r{number}")
            child.read(30, until="appended 20")
            child.signal(signal.SIGSTOP)
            while not child.is_stopped():
                time.sleep(0.001)
            store = PostgresStore(server.url)
            place = Place(lambda: store, fresh=lambda: place)  # noqa: B023
            place.stamps = iter(range(10**6 * (number + 1), 10**9))  # type: ignore[assignment]
            claimed = store.transact([place.claim(seen_by(22, gone=[11]), f"r{number}")])[0]
            assert claimed.verdict is Verdict.TOOK
            ours = store.transact([place.append("ours", run_id=f"r{number}", fence=2)])[0]
            assert ours.verdict is Verdict.DONE
            child.signal(signal.SIGCONT)
            assert child.join() == 0 and child.said("ended") == "fenced"
            assert slots(store, f"r{number}")[-1] == "ours"
            store.close()


def append_until_fenced(say: object, url: str, run_id: str) -> None:
    """In the child."""
    assert callable(say)
    store = PostgresStore(url)
    place = Place(lambda: store, fresh=lambda: place)
    store.transact([place.start(run_id)])
    number = 0
    while True:
        try:
            verdict = store.transact([place.append(str(number), run_id=run_id)])[0].verdict
        except StoreError as error:
            say(f"ended {error}")
            return
        if verdict is not Verdict.DONE:
            say(f"ended {verdict}")
            return
        number += 1
        say(f"appended {number}")
