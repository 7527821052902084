"""An agent is killed at each place of each call, streaming or not: every call is paid once, and answered the same."""

from __future__ import annotations

import http.client
import json
import select
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot
from surefoot.core.writes import Append
from surefoot.runtime.app import open_store
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.models import Meets, ModelServer
from tests.proxy.conftest import ProxyProcess, Running

CALLS = 3
pytestmark = pytest.mark.xdist_group("proxy")


@pytest.mark.parametrize("when", ["sent", "begun", "read"])
@pytest.mark.parametrize("die_at", range(CALLS))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_is_paid_once_wherever_its_agent_is_killed(
    agents: ForkServer,
    models: ModelServer,
    proxies: Callable[..., Running],
    stream: bool,
    die_at: int,
    when: str,
) -> None:
    proxy = proxies()
    killed = agents.start("chat", proxy.base("r", "1"), CALLS, stream, die_at, when)
    assert killed.join() == -signal.SIGKILL
    again = agents.start("chat", proxy.base("r", "2"), CALLS, stream, -1, "")
    assert again.join() == 0
    assert again.lines[-1] == "done" and all(" 200 " in line for line in again.lines[:-1])
    assert again.lines[: len(killed.lines)] == killed.lines, "an answer was not the same byte for byte"
    assert len(models.paid()) == CALLS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_goes_on_when_its_agent_dies_while_the_service_works_on_it(
    agents: ForkServer, folder: Path, proxies: Callable[..., Running], when: str
) -> None:
    victims: list[Any] = []
    born, dead = threading.Event(), threading.Event()

    def strike(at: str, number: int, connection: Any) -> bool:
        if at == when and number == 2 and not dead.is_set():
            assert born.wait(30) and victims[0].kill() == -signal.SIGKILL
            dead.set()
        return False  # whoever asked is the proxy, and it lives

    with ModelServer(record=folder / f"strike-{when}.jsonl", boundary=strike) as models:
        from surefoot.proxy.options import read_upstream, with_known

        proxy = proxies(upstreams=with_known((read_upstream(f"openai={models.url}"),)))
        victims.append(agents.start("chat", proxy.base("r", "1"), CALLS, False, -1, ""))
        born.set()
        assert dead.wait(30), "nobody was killed"
        again = agents.start("chat", proxy.base("r", "2"), CALLS, False, -1, "")
        assert again.join() == 0 and again.lines[-1] == "done"
        assert len(models.paid()) == CALLS


def test_without_the_proxy_every_call_is_paid_again(agents: ForkServer, models: ModelServer) -> None:
    """The same agent, the same kill: what the others show is the proxy's doing."""
    assert agents.start("chat", f"{models.url}/v1", CALLS, False, 1, "read").join() == -signal.SIGKILL
    assert agents.start("chat", f"{models.url}/v1", CALLS, False, -1, "").join() == 0
    assert len(models.paid()) == 2 + CALLS


def test_the_same_question_again_is_another_call_in_one_attempt_and_the_same_call_in_the_next(
    agents: ForkServer, models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies()
    killed = agents.start("chat", proxy.base("r", "1"), 4, False, 2, "read", True)
    assert killed.join() == -signal.SIGKILL
    again = agents.start("chat", proxy.base("r", "2"), 4, False, -1, "", True)
    assert again.join() == 0
    answers = [line.split()[2] for line in again.lines[:-1]]
    assert len(set(answers)) == 4 and again.lines[:2] == killed.lines
    assert len(models.paid()) == 4


@pytest.mark.parametrize(("when", "paid"), [("before", CALLS), ("after", CALLS + 1)])
def test_a_proxy_that_is_killed_can_lose_the_one_reply_that_it_waited_for(
    agents: ForkServer, folder: Path, processes: Callable[..., ProxyProcess], when: str, paid: int
) -> None:
    """The stated case: what was paid and not yet recorded is paid again; what was recorded never is."""
    victims: list[ProxyProcess] = []

    def strike(at: str, number: int, connection: Any) -> bool:
        if at == when and number == 2 and victims:
            victims[0].process.kill()
            assert victims.pop().process.wait(30) == -signal.SIGKILL
            return True
        return False

    with ModelServer(record=folder / f"lost-{when}.jsonl", boundary=strike) as models:
        db, service = str(folder / f"lost-{when}.db"), f"openai={models.url}"
        first = processes(db, "--upstream", service)
        victims.append(first)
        agent = agents.start("chat", first.base("r", "1"), CALLS, False, -1, "")
        assert agent.join() == 1, "its proxy died"
        second = processes(db, "--upstream", service)
        again = agents.start("chat", second.base("r", "2"), CALLS, False, -1, "")
        assert again.join() == 0 and again.lines[0] == agent.lines[0]
        assert len(models.paid()) == paid
        assert second.end() == 0


def test_a_proxy_that_is_told_to_stop_records_what_is_under_way_and_gives_its_runs_back(
    agents: ForkServer, folder: Path, processes: Callable[..., ProxyProcess]
) -> None:
    stopping: list[ProxyProcess] = []

    def hold(at: str, number: int, connection: Any) -> bool:
        if at == "after":  # paid, and on its way
            stopping[0].process.terminate()
        return False

    with ModelServer(record=folder / "stopped.jsonl", boundary=hold) as models:
        db = str(folder / "stopped.db")
        stopping.append(processes(db, "--upstream", f"openai={models.url}"))
        killed = agents.start("chat", stopping[0].base("r", "1"), 1, False, 0, "sent")
        assert killed.join() == -signal.SIGKILL
        assert stopping[0].process.wait(60) == 0
        assert len(models.paid()) == 1
    with Surefoot(db) as sf:
        assert sf.get("r").status == "pending"
        read = sf.store.read_run("r")
        assert read is not None and [entry.slot.partition(":")[0] for entry in read[1]] == ["@/call"]


def test_a_stream_that_breaks_off_is_no_result(
    agents: ForkServer, models: ModelServer, proxies: Callable[..., Running]
) -> None:
    models.at(1, Meets(cut=3))
    models.at(2, Meets(error_event=2))
    proxy = proxies()
    assert agents.start("chat", proxy.base("r", "1"), 1, True, -1, "").join() == 1, "it saw the connection break"
    second = agents.start("chat", proxy.base("r", "1"), 1, True, -1, "")
    second.join()
    third = agents.start("chat", proxy.base("r", "1"), 1, True, -1, "")
    assert third.join() == 0
    assert third.lines != second.lines
    assert [line.what for line in models.service.ledger.lines()] == ["paid", "failed", "paid"]


class Gate:
    """A store whose disk takes its time: records of a run wait at a gate until it is opened."""

    def __init__(self, store: Any) -> None:
        self._store, self.came, self.opened = store, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transact(self, writes: Sequence[Any], *, again: bool = False) -> Any:
        if any(isinstance(write, Append) for write in writes):
            self.came.set()
            assert self.opened.wait(60)
        return self._store.transact(writes, again=again)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_nobody_learns_that_an_answer_is_complete_before_it_is_on_disk(
    folder: Path, models: ModelServer, proxies: Callable[..., Running], stream: bool
) -> None:
    gate = Gate(open_store(str(folder / f"gate-{stream}.db")))
    proxy = proxies(open_store=lambda: Surefoot(gate))
    asking = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=60)
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    path = proxy.base("r", "1").removeprefix(proxy.url)
    headers = {"Authorization": "Bearer any", "Content-Type": "application/json"}
    asking.request("POST", f"{path}/chat/completions", json.dumps(body), headers)
    assert gate.came.wait(60) and len(models.paid()) == 1
    for _ in range(5):  # whatever was given out before is on its way now
        other = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=60)
        other.request("GET", "/run/r")
        assert json.loads(other.getresponse().read())["calls"] == 0
    received = b""
    while stream or select.select([asking.sock], [], [], 0)[0]:
        ready, _, _ = select.select([asking.sock], [], [], 0)
        if not ready:
            break
        received += asking.sock.recv(65536)
    assert (b"data: " in received) == stream, "what may be given out early is"
    assert b"[DONE]" not in received and b'finish_reason":"stop' not in received.replace(b" ", b"")
    gate.opened.set()
    while b"[DONE]" not in received and b'"stop"' not in received:
        received += asking.sock.recv(65536)
    asking.close()
    proxy.background.__exit__()
    gate.close()


def test_on_postgresql_another_proxy_goes_on_with_the_run(
    agents: ForkServer, models: ModelServer, proxies: Callable[..., Running], postgres_url: str
) -> None:
    first = proxies(postgres_url)
    killed = agents.start("chat", first.base("r", "1"), CALLS, True, 1, "begun")
    assert killed.join() == -signal.SIGKILL
    first.background.__exit__()
    again = agents.start("chat", proxies(postgres_url).base("r", "2"), CALLS, True, -1, "")
    assert again.join() == 0 and again.lines[0] == killed.lines[0]
    assert len(models.paid()) == CALLS
