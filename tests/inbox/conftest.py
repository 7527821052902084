"""Services as processes of their own, and what they did."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from surefoot.inbox import Inbox
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import performed, read_ledger
from surefoot.testing.postgres import PrivatePostgres
from tests.inbox.service import create_orders

IN_PROGRESS = "urn:surefoot:inbox:in-progress"
UNKNOWN = "urn:surefoot:inbox:outcome-unknown"


class Service:
    """One kind of service on one store: start it, ask it, kill it, count what it did."""

    def __init__(self, forks: ForkServer, folder: Path, store: str, orders: str) -> None:
        self._forks = forks
        self.folder, self.store, self.orders = folder, store, orders
        self.config: dict[str, Any] = {"folder": str(folder), "store": store, "orders": orders}
        self.children: list[Child] = []
        self.bases: list[str] = []
        create_orders(orders)

    def start(self, **config: Any) -> httpx.Client:
        """Another process of it; a client for it."""
        child = self._forks.start("serve", {**self.config, **config})
        assert child.read(30.0, until="port ") and child.said("port "), child.lines
        self.children.append(child)
        self.bases.append(f"http://127.0.0.1:{child.said('port ')}")
        # a connection for each request: the server closes one after a handler that raised, maybe as the next uses it
        once = httpx.Limits(max_keepalive_connections=0)
        return httpx.Client(base_url=self.bases[-1], timeout=30.0, verify=False, limits=once)

    def kill_at(self, place: str) -> None:
        (self.folder / f"kill-{place}").touch()

    def died(self) -> int:
        """The exit status of the process that was started last."""
        return self.children.pop().join()

    def count(self, name: str) -> int:
        """How often the world changed."""
        if name == "order":
            return len(self._rows("SELECT item FROM orders"))
        path = self.folder / "ledger.jsonl"
        return performed(read_ledger(path))[name] if path.exists() else 0

    def lines(self, what: str) -> int:
        return sum(line.what == what for line in read_ledger(self.folder / "ledger.jsonl"))

    def claims(self, columns: str = "standing, attempts") -> list[tuple[Any, ...]]:
        return self._rows(f"SELECT {columns} FROM surefoot_inbox WHERE scope LIKE 'http:%'", self.store)

    def _rows(self, statement: str, place: str = "") -> list[tuple[Any, ...]]:
        place = place or self.orders
        if place.startswith("postgresql:"):
            with psycopg.connect(place) as connection:
                return connection.execute(statement).fetchall()
        with closing(sqlite3.connect(place)) as connection:
            return connection.execute(statement).fetchall()

    def change(self, statement: str) -> None:
        """Change every row from outside, of the middleware and of `once`."""
        for place in {self.store, self.orders}:
            postgres = place.startswith("postgresql:")
            connection: Any = psycopg.connect(place) if postgres else sqlite3.connect(place, timeout=20)
            with closing(connection):
                connection.execute(statement)
                connection.commit()

    def inbox(self) -> Inbox:
        return Inbox(self.store)

    def end(self) -> None:
        for child in self.children:
            with suppress(ProcessLookupError):
                child.kill()


def key_of(number: int | str) -> dict[str, str]:
    return {"Idempotency-Key": f'"key-{number}"'}


def ask(client: httpx.Client, path: str, body: Any = None, key: str = "1", **options: Any) -> httpx.Response:
    """Ask, and again while the first is said to be in progress, as a client should; for most of a minute at most."""
    end = time.monotonic() + 45
    while True:
        answer = client.post(path, json=body or {"item": "lamp"}, headers=key_of(key), **options)
        if answer.status_code != 409 or problem_type(answer) != IN_PROGRESS:
            return answer
        assert time.monotonic() < end, "it is said to be in progress for ever"
        time.sleep(0.02)


def problem_type(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    content = json.loads(answer.content)
    assert content["status"] == answer.status_code and content["title"] and content["detail"]
    return content["type"]


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    with ForkServer("tests.inbox.service") as server:
        yield server


@pytest.fixture(scope="session")
def inbox_postgres(postgres: PrivatePostgres) -> str:
    return postgres.create_database()


def make_service(request: pytest.FixtureRequest, database: str, forks: ForkServer, tmp_path: Path) -> Service:
    """On SQLite, the claims and the orders have a file each; on PostgreSQL they share a table."""
    store, orders = str(tmp_path / "inbox.db"), str(tmp_path / "orders.db")
    if database == "postgres":
        store = orders = request.getfixturevalue("inbox_postgres")
        with psycopg.connect(store) as connection:
            connection.execute("DROP TABLE IF EXISTS orders, surefoot_inbox")
    made = Service(forks, tmp_path, store, orders)
    if database == "postgres":
        made.config["lease"] = 0.3  # there, the lease alone shows that a process has gone
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def service(request: pytest.FixtureRequest, forks: ForkServer, tmp_path: Path) -> Iterator[Service]:
    made = make_service(request, request.param, forks, tmp_path)
    yield made
    made.end()


@pytest.fixture(params=["starlette/sqlite", "starlette/postgres", "fastapi/sqlite"])
def mortal(request: pytest.FixtureRequest, forks: ForkServer, tmp_path: Path) -> Iterator[Service]:
    """One that tests kill."""
    framework, _, database = request.param.partition("/")
    made = make_service(request, database, forks, tmp_path)
    made.config["framework"] = framework
    yield made
    made.end()


@pytest.fixture
def sqlite_service(forks: ForkServer, tmp_path: Path) -> Iterator[Service]:
    made = Service(forks, tmp_path, str(tmp_path / "inbox.db"), str(tmp_path / "orders.db"))
    yield made
    made.end()
