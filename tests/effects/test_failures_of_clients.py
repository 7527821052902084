"""What the exceptions of real client libraries say, each made by a real failure of a real socket."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from surefoot.core.contract import keyed
from surefoot.effects.classify import classify_error
from surefoot.effects.guard import Watch
from surefoot.effects.reading import Reading, Says
from tests.effects.arrivals import Behaviour, close, cut_short, garbage, reset, serving, silence
from tests.effects.clients import BARE, CALLS, IN_TESTS, an_attempt, post_with_urllib, quietly

CONTRACT = keyed(3600)
ALL = tuple(name for name in IN_TESTS if name != "stripe PaymentIntent.create")


def options_of(name: str, seconds: float) -> dict[str, object]:
    library = CALLS[name][0]
    return an_attempt(timeout=seconds).options(library) if library else {"timeout": seconds}


def readings(
    url: str, names: tuple[str, ...] = BARE, *, guarded: bool = False, seconds: float = 20.0
) -> dict[str, Reading]:
    """What each library's exception says, all calling at once."""

    def read(name: str) -> Reading:
        with ExitStack() as stack:
            held = stack.enter_context(Watch(lambda: False)) if guarded else None
            error = quietly(CALLS[name][1], url, options_of(name, seconds))
            assert error is not None, f"{name} was answered"
            return classify_error(error, CONTRACT, has_left=held is not None and held.has_left)

    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(read, names), strict=True))


def kinds(found: dict[str, Reading]) -> dict[str, Says]:
    return {name: reading.kind for name, reading in found.items()}


@contextmanager
def a_refused_port() -> Iterator[str]:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}"


@contextmanager
def an_unknown_name() -> Iterator[str]:
    yield "http://no-such-name.invalid"


@contextmanager
def a_full_backlog() -> Iterator[str]:
    """A port whose connections are neither taken nor refused."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            try:
                waiting.connect(listener.getsockname())
            except BlockingIOError:
                pass
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def no_tls_here() -> Iterator[str]:
    """Answers a TLS greeting with plain text and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


BEFORE_THE_REQUEST = {
    "unknown name": (an_unknown_name, 20.0),
    "connect timeout": (a_full_backlog, 0.4),
    "handshake fails": (no_tls_here, 20.0),
}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "by the exception alone"])
def test_a_refused_connection_was_certainly_not_sent(guarded: bool) -> None:
    with a_refused_port() as url:
        found = kinds(readings(url, ALL, guarded=guarded))
    assert found == dict.fromkeys(ALL, Says.NOT_SENT)


@pytest.mark.parametrize("failure", BEFORE_THE_REQUEST)
def test_what_broke_before_the_request_was_certainly_not_sent(failure: str) -> None:
    place, seconds = BEFORE_THE_REQUEST[failure]
    with place() as url:
        found = kinds(readings(url, guarded=True, seconds=seconds))
    assert found == dict.fromkeys(BARE, Says.NOT_SENT)


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make a certificate")
def test_a_certificate_that_the_client_refuses_means_not_sent(tmp_path: Path) -> None:
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(made.split(), cwd=tmp_path, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with serving(tmp_path, close, tls=tls) as server:
        found = kinds(readings(server.url))
        assert server.arrived() == 0
    assert found == dict.fromkeys(BARE, Says.NOT_SENT)


AFTER_THE_REQUEST: dict[str, tuple[Behaviour, float]] = {
    "no answer": (silence, 1.5),
    "connection reset": (reset, 20.0),
    "not HTTP": (garbage, 20.0),
    "answer cut short": (cut_short, 20.0),
}


def test_a_connection_that_closes_without_an_answer_is_in_doubt(tmp_path: Path) -> None:
    with serving(tmp_path, close) as server:
        found = kinds(readings(server.url, ALL))
        assert server.arrived("POST", "PUT") >= len(ALL)
    assert found == dict.fromkeys(ALL, Says.IN_DOUBT)


@pytest.mark.parametrize("failure", AFTER_THE_REQUEST)
def test_what_broke_after_the_request_is_in_doubt_even_by_the_exception_alone(failure: str, tmp_path: Path) -> None:
    behaviour, seconds = AFTER_THE_REQUEST[failure]
    names = tuple(name for name in BARE if behaviour is not cut_short or not name.startswith("boto3"))  # it takes it
    with serving(tmp_path, behaviour) as server:
        found = kinds(readings(server.url, names, seconds=seconds))
        assert server.arrived("POST") == len(names)
    assert found == dict.fromkeys(names, Says.IN_DOUBT)


def test_a_request_that_breaks_off_while_it_is_written_is_in_doubt() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def take_some() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.recv(10)
            reset(connection)
            connection.close()

    threading.Thread(target=take_some, daemon=True).start()
    url, content = f"http://127.0.0.1:{listener.getsockname()[1]}/things", b"x" * 20_000_000
    for post in (_write_with_httpx, _write_with_requests, _write_with_urllib, _write_with_aiohttp):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # each library has its own
            post(url, content)
        assert classify_error(caught.value, CONTRACT).kind is Says.IN_DOUBT, post.__name__
    listener.close()


def _write_with_httpx(url: str, content: bytes) -> None:
    import httpx

    httpx.post(url, content=content)


def _write_with_requests(url: str, content: bytes) -> None:
    import requests

    requests.post(url, data=content)


def _write_with_urllib(url: str, content: bytes) -> None:
    import urllib.request

    urllib.request.urlopen(urllib.request.Request(url, data=content))


def _write_with_aiohttp(url: str, content: bytes) -> None:
    import asyncio

    import aiohttp

    async def call() -> None:
        async with aiohttp.ClientSession() as session, session.post(url, data=content):
            pass

    asyncio.run(call())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxys_refusal_is_not_the_receivers(scheme: str, tmp_path: Path) -> None:
    import asyncio

    import aiohttp
    import httpx
    import requests

    target = f"{scheme}://receiver.invalid/things"

    async def post_with_aiohttp() -> None:
        async with aiohttp.ClientSession() as session, session.post(target, proxy=server.url) as response:
            response.raise_for_status()

    posts: dict[str, Callable[[], object]] = {
        "requests": lambda: requests.post(target, proxies={scheme: server.url}, timeout=5).raise_for_status(),
        "httpx": lambda: httpx.Client(proxy=server.url).post(target).raise_for_status(),
        "aiohttp": lambda: asyncio.run(post_with_aiohttp()),
    }
    tunnelled = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    with serving(tmp_path, tunnelled if scheme == "https" else close) as server:
        found = {}
        for name, post in posts.items():
            with pytest.raises(Exception) as caught:  # noqa: PT011
                post()
            found[name] = classify_error(caught.value, CONTRACT).kind
    assert found == dict.fromkeys(posts, Says.IN_DOUBT)


def test_a_failure_that_was_handled_before_does_not_speak_for_the_request_that_followed(tmp_path: Path) -> None:
    import httpx
    import requests

    posts: dict[str, Callable[[str], object]] = {
        "httpx": httpx.post,
        "requests": lambda url: requests.post(url, timeout=20),
        "urllib": lambda url: post_with_urllib(url, {}),
    }

    def post_again(post: Callable[[str], object]) -> None:
        try:
            post(refused)
        except Exception:
            post(server.url)

    with a_refused_port() as refused, serving(tmp_path, close) as server:
        for name, post in posts.items():
            with pytest.raises(Exception) as caught:  # noqa: PT011  # each library has its own
                post_again(post)
            assert classify_error(caught.value, CONTRACT).kind is Says.IN_DOUBT, name
        assert server.arrived("POST") == len(posts)


def test_connection_refused_on_a_redirect_is_in_doubt_since_the_first_request_left(tmp_path: Path) -> None:
    import requests

    with a_refused_port() as refused:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {refused}/things\r\nContent-Length: 0\r\n\r\n".encode()
        with serving(tmp_path, moved) as server, Watch(lambda: False) as held:
            with pytest.raises(requests.ConnectionError) as caught:
                requests.post(f"{server.url}/things", timeout=5)
            assert server.arrived("POST") == 1
    assert classify_error(caught.value, CONTRACT).kind is Says.NOT_SENT  # the exception speaks of the last request
    assert classify_error(caught.value, CONTRACT, has_left=held.has_left).kind is Says.IN_DOUBT
