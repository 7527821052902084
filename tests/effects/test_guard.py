"""R11: one attempt is one request. What arrives is counted by the server; what left, it wrote down first."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from surefoot.effects import guard
from surefoot.effects.guard import SecondRequest, TooLate, Watch
from tests.effects.arrivals import NAMED, answer, serving
from tests.effects.clients import CALLS, IN_TESTS, an_attempt, quietly

SENDING_TWICE = {
    # call, fault -> the package that is named
    ("PyGithub create_issue", "500"): "PyGithub",
    ("PyGithub create_issue", "reset"): "PyGithub",
    ("stripe PaymentIntent.create", "503"): "stripe",
    ("boto3 sesv2.send_email", "500"): "botocore",
    ("boto3 sesv2.send_email", "closed"): "botocore",
    ("slack_sdk chat_postMessage", "closed"): "slack_sdk",
    ("openai responses.create", "500"): "openai",
    ("urllib3.PoolManager PUT", "closed"): "urllib3",
    ("aiohttp.ClientSession PUT", "closed"): "aiohttp",
}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the packages wait between their tries


@pytest.mark.parametrize(("call", "fault"), SENDING_TWICE)
def test_a_package_that_sends_again_is_stopped_after_one_request(call: str, fault: str, tmp_path: Path) -> None:
    with serving(tmp_path, NAMED[fault]) as server:
        quietly(CALLS[call][1], server.url, {})
        assert server.arrived("POST", "PUT") > 1, "it does not send again by itself, so this proves nothing"
    with serving(tmp_path, NAMED[fault]) as server, Watch(lambda: False) as held:
        error = quietly(CALLS[call][1], server.url, {})
        assert server.arrived("POST", "PUT") == 1
    assert isinstance(error, SecondRequest) and error is held.stopped and held.has_left
    assert error.library == SENDING_TWICE[call, fault]
    assert error.library in str(error) and "may have landed" in str(error)


@pytest.mark.parametrize("call", [name for name in IN_TESTS if CALLS[name][0] and not name.endswith("PUT")])
@pytest.mark.parametrize("fault", ["500", "closed"])
def test_a_client_made_with_the_attempts_options_sends_once(call: str, fault: str, tmp_path: Path) -> None:
    library, made = CALLS[call]
    with serving(tmp_path, NAMED[fault]) as server:
        quietly(made, server.url, an_attempt(timeout=20.0).options(library))
        assert server.arrived() == 1


def test_a_library_that_swallows_the_stop_is_stopped_each_time(tmp_path: Path) -> None:
    import httpx

    with serving(tmp_path, NAMED["500"]) as server, Watch(lambda: False) as held, httpx.Client() as client:
        client.post(f"{server.url}/things")
        for _ in range(3):
            with pytest.raises(SecondRequest):
                client.post(f"{server.url}/things")
        assert server.arrived() == 1 and held.stopped is not None


def test_a_connection_that_was_never_made_does_not_count(tmp_path: Path) -> None:
    """The first try is refused; meanwhile the server comes up at that port, and the second arrives."""
    import socket

    import httpx
    import requests

    for post in (lambda url: httpx.post(url), lambda url: requests.post(url, timeout=5)):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        with Watch(lambda: False) as held:
            with pytest.raises((httpx.ConnectError, requests.ConnectionError)):
                post(f"http://127.0.0.1:{port}/things")
            assert not held.has_left
            arrived = _answer_once(port)
            assert post(f"http://127.0.0.1:{port}/things").status_code == 200
            assert held.has_left and arrived == [1]


def _answer_once(port: int) -> list[int]:
    import socket

    listener, arrived = socket.create_server(("127.0.0.1", port)), list[int]()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, listener:
            connection.recv(65536)
            arrived.append(1)
            connection.sendall(answer(200, {}))

    threading.Thread(target=serve, daemon=True).start()
    return arrived


def test_reading_is_free_and_other_places_are_other_requests(tmp_path: Path) -> None:
    import requests

    with serving(tmp_path, answer(200, {})) as server, Watch(lambda: False):
        for _ in range(3):
            requests.get(f"{server.url}/things", timeout=5)
        requests.post(f"{server.url}/token", timeout=5)
        requests.post(f"{server.url}/things?page=1", timeout=5)
        requests.put(f"{server.url}/things", timeout=5)
        with pytest.raises(SecondRequest, match=r"requests tried .* POST .*/things in one attempt"):
            requests.post(f"{server.url}/things?page=2", timeout=5)
        assert server.arrived("POST", "PUT") == 3


def test_more_requests_are_sent_where_the_body_says_so(tmp_path: Path) -> None:
    import httpx

    with serving(tmp_path, answer(200, {})) as server, Watch(lambda: False) as held:
        with an_attempt().more_requests():
            httpx.post(f"{server.url}/graphql")
            httpx.post(f"{server.url}/graphql")
        with pytest.raises(SecondRequest):
            httpx.post(f"{server.url}/graphql")
        assert server.arrived() == 2 and held.stopped is not None


def test_outside_of_an_attempt_nothing_is_counted_or_stopped(tmp_path: Path) -> None:
    import httpx
    import requests

    guard.install()
    with serving(tmp_path, answer(200, {})) as server, an_attempt().more_requests():
        for _ in range(2):
            requests.post(f"{server.url}/things", timeout=5)
            httpx.post(f"{server.url}/things")
        assert server.arrived() == 4


def test_each_attempt_counts_for_itself_in_threads_and_in_tasks(tmp_path: Path) -> None:
    import httpx

    problems: list[BaseException] = []

    def attempt(client: httpx.Client, url: str) -> None:
        try:
            with Watch(lambda: False):
                client.post(url)
                with pytest.raises(SecondRequest):
                    client.post(url)
        except BaseException as error:
            problems.append(error)

    async def attempt_async(client: httpx.AsyncClient, url: str) -> None:
        with Watch(lambda: False):
            await client.post(url)
            with pytest.raises(SecondRequest):
                await client.post(url)

    async def all_at_once(url: str) -> None:
        async with httpx.AsyncClient() as client:
            await asyncio.gather(*(attempt_async(client, url) for _ in range(8)))

    with serving(tmp_path, answer(200, {})) as server, httpx.Client() as shared:
        threads = [threading.Thread(target=attempt, args=(shared, f"{server.url}/things")) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == [] and server.arrived() == 8
        asyncio.run(all_at_once(f"{server.url}/things"))
        assert server.arrived() == 16


async def test_a_task_of_the_body_belongs_to_its_attempt(tmp_path: Path) -> None:
    import aiohttp

    with serving(tmp_path, answer(200, {})) as server, Watch(lambda: False) as held:
        async with aiohttp.ClientSession() as session:

            async def post() -> int:
                async with session.post(f"{server.url}/things") as response:
                    return response.status

            ends = await asyncio.gather(*(asyncio.create_task(post()) for _ in range(3)), return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["SecondRequest", "SecondRequest", "int"]
        assert server.arrived() == 1 and held.stopped is not None


def test_after_the_deadline_nothing_leaves(tmp_path: Path) -> None:
    import httpx

    late = [False]
    with serving(tmp_path, answer(200, {})) as server, Watch(lambda: late[0]) as held:
        httpx.post(f"{server.url}/first")
        late[0] = True
        with pytest.raises(TooLate, match="deadline had passed"):
            httpx.post(f"{server.url}/second")
        httpx.get(f"{server.url}/second")
        assert server.arrived("POST") == 1 and isinstance(held.stopped, TooLate)


def test_a_request_through_a_tunnel_is_counted_once_and_named_by_its_receiver(tmp_path: Path) -> None:
    import http.client
    import socket

    tunnelled: list[bytes] = []

    def tunnel(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        tunnelled.append(connection.recv(65536)[:4])
        connection.sendall(answer(200, {}))

    def post(proxy: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=20)
        connection.set_tunnel("receiver.example", 80)
        connection.request("POST", "/things")
        connection.getresponse().read()

    with serving(tmp_path, tunnel) as proxy, Watch(lambda: False):
        post(proxy.port)
        with pytest.raises(SecondRequest, match=r"POST receiver\.example:80/things"):
            post(proxy.port)
        assert proxy.arrived("CONNECT") == 2 and tunnelled[0] == b"POST"
        assert tunnelled.count(b"POST") == 1


PROGRAM = """
import sys
from surefoot.effects.guard import SecondRequest, Watch
assert not {"httpx", "requests", "aiohttp", "http.client", "asyncio"} & set(sys.modules), "imported before it is needed"
with Watch(lambda: False):
    import NAME
    try:
        NAME.post(sys.argv[1] + "/things", timeout=5)
        NAME.post(sys.argv[1] + "/things", timeout=5)
    except SecondRequest as stopped:
        print(stopped.library, NAME.__spec__.loader.__class__.__name__)
"""


@pytest.mark.parametrize("name", ["httpx", "requests"])
def test_a_package_that_is_imported_inside_the_first_attempt_is_watched_too(name: str, tmp_path: Path) -> None:
    with serving(tmp_path, answer(200, {})) as server:
        program = [sys.executable, "-c", PROGRAM.replace("NAME", name), server.url]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.stdout.split(), ended.stderr) == ([name, "SourceFileLoader"], "")
        assert server.arrived() == 1


def test_a_version_that_cannot_be_watched_is_said_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_hooked", set())
    with pytest.warns(RuntimeWarning, match="does not know this version of httpcore"):
        guard._hook("httpcore", sys)
