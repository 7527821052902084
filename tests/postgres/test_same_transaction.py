"""`same_transaction` on PostgreSQL: the change is there exactly once, wherever the process or its database dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from surefoot import Surefoot
from surefoot.core.effect import Status
from surefoot.core.errors import Refused
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.postgres import PrivatePostgres
from tests.postgres import booking_agent as agent

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]
KILLS = 5
DRIVERS = ("psycopg", "connection", "session")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer("tests.postgres.booking_agent") as server:
        yield server


def orders(url: str) -> list[Any]:
    with psycopg.connect(url) as db:
        return [row[0] for row in db.execute("SELECT name FROM orders ORDER BY name").fetchall()]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("place", ["before", "body", "after"])
def test_a_change_is_there_once_wherever_the_process_is_killed(
    driver: str, place: str, forks: ForkServer, postgres_url: str
) -> None:
    agent.prepare(postgres_url, driver)
    killed = forks.start("run_booking", postgres_url, postgres_url, driver, place)
    assert killed.join() == -9 and killed.said("result ") is None
    assert ("inserted" in killed.lines) == (place != "before")
    assert orders(postgres_url) == (["o1"] if place == "after" else [])
    again = forks.start("run_booking", postgres_url, postgres_url, driver, "nowhere")
    assert again.join() == 0 and again.said("result ") == "{'order': 'o1'}"
    assert ("inserted" in again.lines) == (place != "after"), "it was booked again, or not at all"
    assert orders(postgres_url) == ["o1"]


def test_killed_processes_and_connections_leave_each_change_once(forks: ForkServer, postgres_url: str) -> None:
    """In the midst of work, at random: the process, and all its connections to the database."""
    agent.prepare(postgres_url, "psycopg")
    dice, wanted, kills, cuts = random.Random(20261205), 40, 0, 0
    terminate = b"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    terminate += b"AND datname = current_database()"
    while True:
        child = forks.start("run_many", postgres_url, postgres_url, dice.choice(DRIVERS), wanted)
        reached = len(orders(postgres_url)) + dice.randrange(1, 6)
        child.read(20, until=f"booked {min(reached, wanted - 1)}")
        with psycopg.connect(postgres_url, autocommit=True) as db:
            while kills < KILLS and cuts < 3 * (kills + 1) and child.read(dice.uniform(0, 0.02)):
                killed = db.execute(terminate).fetchone()
                cuts += killed is not None and killed[0] > 0
        if kills == KILLS:
            assert child.join() == 0, child.lines[-2:]
            break
        kills += child.kill() == -9
    assert kills == KILLS and cuts >= KILLS
    assert orders(postgres_url) == sorted(f"o{number}" for number in range(wanted))


def test_a_connection_that_commits_by_itself_is_refused_before_anything_is_written(postgres_url: str) -> None:
    agent.prepare(postgres_url, "psycopg autocommit")
    with Surefoot(postgres_url) as sf:
        with pytest.raises(Refused, match="autocommit"):
            sf.run(agent.booking, "o1", id="o1")
        assert orders(postgres_url) == []
        assert [held.status for held in sf.store.find_effects()] == [Status.REFUSED]


def test_a_database_that_is_away_is_waited_for(postgres_url: str) -> None:
    with PrivatePostgres(fsync=False) as theirs:
        agent.prepare(theirs.url, "psycopg")
        theirs.stop()
        with Surefoot(postgres_url) as sf, pytest.raises(Refused, match="no connection"):
            sf.run(agent.booking, "o1", id="o1")
        theirs.start()
        with Surefoot(postgres_url) as sf:
            assert sf.run(agent.booking, "o2", id="o2") == {"order": "o2"}
        assert orders(theirs.url) == ["o2"]
