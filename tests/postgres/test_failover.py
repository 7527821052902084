"""A standby that was behind takes over: what was lost is in doubt and listed, and nothing happens twice in silence.

The stream to the standby is cut while a fleet works, so that everything from then on is acknowledged and lost; one
worker is killed, another is stopped and lives through it. What was lost is counted: effects that stand in the
receiver's ledger and not in the store that was promoted.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from surefoot import Surefoot
from surefoot.core.effect import Effect
from surefoot.core.writes import Verdict
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.ledger import performed, read_ledger
from surefoot.testing.place import Place, one, seen_by, slots
from surefoot.testing.postgres import PrivatePostgres
from tests.soak import agent
from tests.soak.fleet import Fleet, a_receiver, count_performed, judge, put_runs, resolve_from, unfinished

RUNS, LATE_RUNS = 24, 4
SEED = 20261204

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


class Pair:
    """A primary and its standby, under one URL."""

    def __init__(self, primary: PrivatePostgres, standby: PrivatePostgres) -> None:
        self.primary, self.standby = primary, standby
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        self.url = f"postgresql://surefoot:{primary.password}@{hosts}/postgres"

    def cut(self) -> None:
        """From now on the standby hears nothing of what the primary acknowledges."""
        self.standby.cut_off()
        with psycopg.connect(self.primary.url, autocommit=True) as db:
            until(lambda: db.execute(b"SELECT count(*) FROM pg_stat_replication").fetchone() == (0,))

    def fail_over(self) -> None:
        """SIGKILL the primary, which stays away, and promote the standby."""
        self.primary.kill()
        self.standby.promote()

    def stored(self) -> list[Effect]:
        """The effects that the standby has, read past the store, so that nothing notices the failover."""
        with psycopg.connect(self.standby.url, autocommit=True) as db:
            rows = db.execute(b"SELECT record FROM surefoot.effects").fetchall()
        return [msgspec.json.decode(row[0], type=Effect) for row in rows]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with PrivatePostgres(fsync=False) as primary, primary.standby() as standby:
        yield Pair(primary, standby)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def lost_effects(pair: Pair, ledger: Path) -> list[str]:
    """Names of the effects that happened and that the promoted server knows nothing of."""
    known = {msgspec.json.decode(held.request)["name"] for held in pair.stored()}
    return sorted(set(performed(read_ledger(ledger))) - known)


def test_a_fleet_whose_last_commits_are_lost_does_nothing_twice_and_loses_nothing(pair: Pair, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    names = [f"r{number:03}" for number in range(RUNS)]
    late = [f"late{number}" for number in range(LATE_RUNS)]
    parked: list[Effect] = []
    with a_receiver(tmp_path) as (port, ledger), ForkServer("tests.soak.agent") as forks:
        with Surefoot(pair.url) as sf:
            put_runs(sf, names)
            fleet = Fleet(forks, pair.url, port, workers=2, lease=2.0, concurrency=4)
            until(lambda: count_performed(ledger) >= RUNS // 2)
            pair.cut()
            put_runs(sf, late)
            before = count_performed(ledger)
            until(lambda: count_performed(ledger) >= before + RUNS)
            fleet.pause_one(dice, 0.0)
            fleet.kill_one(dice)
            fleet.kill(fleet.workers[-1])
            pair.fail_over()
            lost = lost_effects(pair, ledger)
            fleet.wake_due(everybody=True)
            fleet.start()
            put_runs(sf, [*names, *late])  # who started a run and cannot find it starts it again
            give_up = time.monotonic() + 60
            while unfinished(sf):
                assert time.monotonic() < give_up, [run.reason for run in sf.store.find_runs() if not run.result]
                parked += resolve_from(ledger, pair.url)
                time.sleep(0.2)
            assert sf.engine.term() == 1
            fleet.stop(sf)
        table = judge(pair.url, [*names, *late], ledger)
    listed = {msgspec.json.decode(held.request)["name"] for held in parked}
    lost_mails = {name for name in lost if name.endswith(".opaque")}
    kinds = Counter(name.rpartition(".")[2] for name in lost)
    print(f"\n{len(lost)} effects lost by the store {dict(kinds)}, {fleet.kills} kills; {len(parked)} parked: {table}")
    assert set(kinds) == set(agent.PROMISES), "of each kind something was lost, or nothing is proved"
    assert lost_mails <= listed, "what nobody can ask about is listed, and a person decides"
    assert all(held.name == "send_mail" for held in parked)


def test_a_process_that_lives_through_a_failover_writes_nothing_behind_what_was_lost(pair: Pair) -> None:
    store = PostgresStore(pair.url)
    place = Place(lambda: store, fresh=lambda: place)
    store.transact([place.join(), place.start(), place.append("kept")])
    with psycopg.connect(pair.primary.url, autocommit=True) as db:
        behind = b"SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"
        until(lambda: db.execute(behind).fetchone() == (0,))
    pair.cut()
    assert one(store, place.append("lost")).verdict is Verdict.DONE
    pair.fail_over()
    assert one(store, place.append("after")).verdict is Verdict.FENCED, "its claim was made in an earlier term"
    assert store.term.number == 1
    claimed = one(store, place.claim(seen_by(11)))
    assert claimed.verdict is Verdict.TOOK and claimed.run is not None
    stored = store.find_run("r")
    assert stored is not None and (stored.born, stored.term) == (0, 1)
    assert one(store, place.append("again", fence=claimed.run.fence)).verdict is Verdict.DONE
    assert slots(store) == ["kept", "again"] and store.check() == []
    store.close()


def test_without_a_loss_a_restart_begins_no_term(pair: Pair) -> None:
    store = PostgresStore(pair.primary.url)
    place = Place(lambda: store, fresh=lambda: place)
    store.transact([place.join(), place.start()])
    pair.primary.kill()
    pair.primary.start()
    assert one(store, place.append("after")).verdict is Verdict.DONE and store.term.number == 0
    store.close()
