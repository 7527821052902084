"""Many at once: one execution; every other answer is "in progress" or the replay. A slow handler is never doubled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot.testing.forkserver import ForkServer
from surefoot.testing.postgres import PrivatePostgres
from tests.inbox.conftest import IN_PROGRESS, UNKNOWN, Service, ask, key_of, problem_type
from tests.inbox.service import create_orders

MANY = 64
ROOT = Path(__file__).resolve().parents[2]


async def ask_at_once(bases: list[str], path: str) -> list[httpx.Response]:
    """64 requests with one key, spread over the bases."""
    limits = httpx.Limits(max_connections=MANY, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=60.0, limits=limits, verify=False) as client:
        urls = [bases[number % len(bases)] + path for number in range(MANY)]
        return await asyncio.gather(*(client.post(u, json={"item": "lamp"}, headers=key_of(1)) for u in urls))


def check(answers: list[httpx.Response]) -> None:
    """One was first; of the others each is "in progress" or its replay."""
    firsts = [a for a in answers if a.status_code == 201 and "idempotent-replayed" not in a.headers]
    replays = [a for a in answers if a.status_code == 201 and "idempotent-replayed" in a.headers]
    busy = [a for a in answers if a.status_code == 409]
    assert len(firsts) == 1 and len(replays) + len(busy) == MANY - 1
    assert {a.content for a in replays} <= {firsts[0].content}
    assert all(problem_type(a) == IN_PROGRESS and int(a.headers["retry-after"]) >= 1 for a in busy)


@pytest.mark.parametrize("path", ["/plain", "/order"])
@pytest.mark.parametrize("processes", [1, 2])
async def test_of_64_requests_with_one_key_one_is_executed(service: Service, path: str, processes: int) -> None:
    for _ in range(processes):
        service.start(lease=30.0)
    check(await ask_at_once(service.bases, path))
    assert service.count(path[1:]) == 1
    assert service.claims() == [("answered", 1)]


async def test_uvicorns_own_workers_share_a_store(tmp_path: Path) -> None:
    orders = str(tmp_path / "orders.db")
    create_orders(orders)
    config = {"folder": str(tmp_path), "store": str(tmp_path / "inbox.db"), "orders": orders}
    with socket.socket() as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--factory", "tests.inbox.service:app", "--workers", "2"]
    server = subprocess.Popen(  # noqa: ASYNC220
        [*command, "--port", str(port), "--log-level", "critical"],
        cwd=ROOT,
        env={**os.environ, "INBOX_SERVICE": json.dumps(config)},
    )
    base = f"http://127.0.0.1:{port}"
    try:
        while not is_up(base):
            assert server.poll() is None
        check(await ask_at_once([base], "/order"))
    finally:
        server.terminate()
        server.wait()


def is_up(base: str) -> bool:
    try:
        return httpx.get(f"{base}/free", verify=False).status_code == 200
    except httpx.TransportError:
        time.sleep(0.05)
        return False


# --- slow handlers ----------------------------------------------------------------------------------------------------


class Asking(threading.Thread):
    """A client that waits for its answer while the test goes on."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        super().__init__()
        self.answer: Any = None
        self._work: Callable[[], httpx.Response] = lambda: client.post(path, json={"item": "lamp"}, headers=key_of(1))
        self.start()

    def run(self) -> None:
        self.answer = self._work()

    def result(self) -> httpx.Response:
        self.join()
        return self.answer


def wait_for_held(service: Service, count: int) -> None:
    path = service.folder / "ledger.jsonl"
    while not path.exists() or service.lines("held") < count:
        time.sleep(0.01)


def let_the_lease_end(service: Service) -> None:
    """As if the heartbeat had hung for as long as the lease: the row is set back between two beats."""
    service.change("UPDATE surefoot_inbox SET lease_until = 0")


def test_a_slow_plain_handler_is_in_doubt_when_its_lease_ends_and_its_answer_still_counts(service: Service) -> None:
    slow, other = service.start(lease=3600.0), service.start(lease=3600.0)
    (service.folder / "hold").touch()
    first = Asking(slow, "/plain")
    wait_for_held(service, 1)
    let_the_lease_end(service)
    answer = ask(other, "/plain")
    assert (answer.status_code, problem_type(answer)) == (409, UNKNOWN)
    assert service.claims() == [("in_doubt", 1)] and service.count("plain") == 0
    (service.folder / "hold").unlink()
    assert first.result().status_code == 201
    assert ask(other, "/plain").content == first.result().content
    assert service.count("plain") == 1 and service.claims() == [("answered", 1)]


def test_a_slow_transactional_handler_may_run_beside_its_repeat_and_changes_once(service: Service) -> None:
    slow, other = service.start(lease=3600.0), service.start(lease=3600.0)
    (service.folder / "hold").touch()
    first = Asking(slow, "/order")
    wait_for_held(service, 1)
    let_the_lease_end(service)
    second = Asking(other, "/order")
    wait_for_held(service, 2)
    (service.folder / "hold").unlink()
    answers = [first.result(), second.result()]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content == ask(other, "/order").content
    assert service.lines("tried") == 2 and service.count("order") == 1


def test_the_heartbeat_keeps_a_slow_handler_for_its_process(service: Service) -> None:
    slow, other = service.start(lease=1.0), service.start(lease=1.0)
    (service.folder / "hold").touch()
    first = Asking(slow, "/plain")
    wait_for_held(service, 1)
    seen = {service.claims("lease_until")[0][0]}
    while len(seen) < 5:
        busy = other.post("/plain", json={"item": "lamp"}, headers=key_of(1))
        assert (busy.status_code, problem_type(busy)) == (409, IN_PROGRESS)
        seen.add(service.claims("lease_until")[0][0])
    (service.folder / "hold").unlink()
    assert first.result().status_code == 201 and service.count("plain") == 1


def test_a_stopped_process_loses_its_claim_and_settles_it_when_it_wakes(service: Service) -> None:
    slow, other = service.start(lease=0.5), service.start(lease=0.5)
    (service.folder / "hold").touch()
    first = Asking(slow, "/plain")
    wait_for_held(service, 1)
    service.children[0].signal(signal.SIGSTOP)
    assert problem_type(ask(other, "/plain")) == UNKNOWN
    (service.folder / "hold").unlink()
    service.children[0].signal(signal.SIGCONT)
    assert first.result().status_code == 201
    assert ask(other, "/plain").content == first.result().content and service.count("plain") == 1


def test_a_handler_that_a_person_gave_up_too_early_is_believed(service: Service) -> None:
    slow, other = service.start(lease=3600.0), service.start(lease=3600.0)
    (service.folder / "hold").touch()
    first = Asking(slow, "/plain")
    wait_for_held(service, 1)
    let_the_lease_end(service)
    inbox = service.inbox()
    inbox.resolve("key-1", did_not_happen=True)
    inbox.close()
    (service.folder / "hold").unlink()
    assert first.result().status_code == 201
    assert ask(other, "/plain").content == first.result().content and service.count("plain") == 1


def test_an_answer_that_could_not_be_recorded_is_recorded_when_the_store_is_back(
    forks: ForkServer, tmp_path: Path
) -> None:
    with PrivatePostgres() as server:
        store = server.create_database()
        service = Service(forks, tmp_path, store, str(tmp_path / "orders.db"))
        client = service.start(lease=0.5)
        (service.folder / "hold").touch()
        first = Asking(client, "/plain")
        wait_for_held(service, 1)
        server.stop()
        (service.folder / "hold").unlink()
        assert (first.result().status_code, first.result().json()["type"][-17:]) == (503, "store-unavailable")
        server.start()
        answer = ask(client, "/plain")
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
        assert service.count("plain") == 1
        service.end()
