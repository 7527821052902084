"""Two workers go on while their connections are terminated and their statements cancelled: nothing happens twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from surefoot import Surefoot
from surefoot.testing.forkserver import ForkServer
from tests.soak.fleet import Fleet, a_receiver, judge, put_runs, resolve_from, unfinished
from tests.soak.soak import Meter

RUNS, CUTS, SEED = 20, 20, 20261206
AT_WORK = b"FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'surefoot' "
AT_WORK += b"AND datname = current_database()"
BLOWS = {
    "cut": b"SELECT count(pg_terminate_backend(pid)) " + AT_WORK,
    "cancelled": b"SELECT count(pg_cancel_backend(pid)) " + AT_WORK + b" AND state = 'active'",
}

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


def test_cut_connections_and_cancelled_statements_repeat_and_lose_nothing(tmp_path: Path, postgres_url: str) -> None:
    dice, blows = random.Random(SEED), Counter[str]()
    names = [f"r{number:02}" for number in range(RUNS)]
    database = postgres_url.rpartition("/")[2].encode()
    patient = f"{postgres_url}?application_name=a_person"
    with a_receiver(tmp_path) as (port, ledger), ForkServer("tests.soak.agent") as forks:
        with psycopg.connect(postgres_url, autocommit=True, application_name="a_test") as db:
            Surefoot(patient).close()
            db.execute(b"ALTER DATABASE " + database + b" SET statement_timeout = '200ms'")
            with Surefoot(patient) as sf:
                put_runs(sf, names)
                fleet = Fleet(forks, postgres_url, port, workers=2, lease=2.0, concurrency=4)
                give_up, look = time.monotonic() + 60, Meter(0.5, time.monotonic)
                while unfinished(sf) or blows["cut"] < CUTS or not blows["cancelled"]:
                    assert time.monotonic() < give_up, f"{unfinished(sf)} runs are left"
                    blow = dice.choice(("cut", "cancelled", "cancelled", "cancelled"))
                    struck = db.execute(BLOWS[blow]).fetchone()
                    blows[blow] += 0 if struck is None else struck[0]
                    if look.is_due():
                        resolve_from(ledger, patient)
                        if not unfinished(sf):  # it was too fast to be hit
                            more = [f"r{len(names) + number:02}" for number in range(RUNS)]
                            put_runs(sf, more)
                            names += more
                    time.sleep(dice.uniform(0, 0.1))
                fleet.stop(sf)
        judge(patient, names, ledger)
    print(f"\n{dict(blows)}")
