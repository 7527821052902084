"""The parts: HTTP off a socket, what the kernel says of one, processes that leave their group, tokens, patterns."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from surefoot.crashtest.errors import CrashtestError
from surefoot.crashtest.process import descendants, kill_whole, marked, state_of
from surefoot.crashtest.proxy import CERTIFICATES, variables
from surefoot.crashtest.services.pattern import Pattern, Values
from surefoot.crashtest.sockets import ReadWatch, foreign_peers
from surefoot.crashtest.tokens import tokens_of
from surefoot.crashtest.wire import BadRequest, Stream, write
from surefoot.testing.twins.messages import Call, Page


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a loopback connection."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_requests_are_read_in_whatever_pieces_they_come(size: int) -> None:
    client, server = pair()
    text = (
        b"POST /a%20b?x=1&y= HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: 1\r\n\r\n"
        b"GET /next HTTP/1.1\r\nConnection: close\r\n\r\n"
    )

    def send() -> None:
        for start in range(0, len(text), size):
            client.sendall(text[start : start + size])
        client.shutdown(socket.SHUT_WR)

    threading.Thread(target=send).start()
    stream = Stream(server)
    first, second, third = stream.read(), stream.read(), stream.read()
    assert first is not None and second is not None and third is None
    assert first.call == Call(
        method="POST",
        path="/a b",
        query={"x": "1", "y": ""},
        headers={"host": "h", "transfer-encoding": "chunked"},
        body=b"abcde",
    )
    assert (first.target, first.keeps, second.call.path, second.keeps) == ("/a%20b?x=1&y=", True, "/next", False)


def test_a_client_that_waits_for_100_gets_it_and_rubbish_is_refused() -> None:
    client, server = pair()
    client.sendall(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok")
    arrived = Stream(server).read()
    assert arrived is not None and arrived.call.body == b"ok"
    assert client.recv(100).startswith(b"HTTP/1.1 100 ")
    client.sendall(b"rubbish\r\n\r\n")
    with pytest.raises(BadRequest, match="rubbish"):
        Stream(server).read()


def test_a_reply_has_its_own_length_whatever_a_service_said() -> None:
    client, server = pair()
    write(server, Page(status=200, body=b"abc", headers={"Content-Length": "9", "X-A": "b"}), method="GET", keeps=True)
    write(server, Page(status=200, body=b"abc"), method="HEAD", keeps=False)
    got = client.recv(4096)
    assert b"Content-Length: 3\r\n" in got and b"9" not in got and got.count(b"abc") == 1


def test_the_kernel_says_when_a_reply_has_been_read() -> None:
    client, server = pair()
    by_netlink = ReadWatch(client.getsockname()[1], server.getsockname()[1])
    by_table = ReadWatch(client.getsockname()[1], server.getsockname()[1])
    by_table.close()  # as where netlink is refused
    for watch in (by_netlink, by_table):
        assert watch.has_read()
        server.sendall(b"0123456789")
        assert not watch.has_read()
        client.recv(4)
        assert not watch.has_read()
        client.recv(6)
        assert watch.has_read()
    client.close()
    assert by_netlink.has_read()


def test_connections_within_this_machine_are_not_foreign() -> None:
    client, server = pair()
    assert foreign_peers([os.getpid()]) == set()
    client.close()
    server.close()


def test_a_kill_reaches_a_process_in_a_session_of_its_own() -> None:
    inner = "import time; time.sleep(60)"
    outer = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {inner!r}], "
        f"start_new_session=True, env={{}});"
        f"subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True); time.sleep(60)"
    )
    environment = {**os.environ, "MARK_OF_THIS_TEST": "1"}
    agent = subprocess.Popen([sys.executable, "-c", outer], env=environment, start_new_session=True)
    give_up = time.monotonic() + 60
    while sum(os.getpgid(pid) == pid for pid in descendants(agent.pid)) < 2 and time.monotonic() < give_up:
        time.sleep(0.01)
    below = descendants(agent.pid)
    assert len(below) == 2 and agent.pid in marked("MARK_OF_THIS_TEST", agent.pid)
    assert kill_whole(agent.pid, "MARK_OF_THIS_TEST") == 2  # one by descent alone: it has no variable
    assert agent.wait() == -signal.SIGKILL
    while any(state_of(pid) not in ("", "Z", "X") for pid in below) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert all(state_of(pid) in ("", "Z", "X") for pid in below)


def test_a_process_that_is_gone_never_means_our_own_group() -> None:
    program = "import signal, sys; from surefoot.crashtest.process import send; sys.exit(send(0, signal.SIGTERM))"
    assert subprocess.run([sys.executable, "-c", program], start_new_session=True).returncode == 0


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}}', 12),
        (b'{"usage": {"input_tokens": 7, "output_tokens": 5}}', 12),
        (b'{"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}}', 7),
        (b'data: {"choices": []}\n\ndata: {"usage": {"total_tokens": 9}}\n\ndata: [DONE]\n\n', 9),
        (
            (
                b'event: message_start\ndata: {"message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}\n\n'
                b'event: message_delta\ndata: {"usage": {"output_tokens": 6}}\n\n'
            ),
            16,
        ),
        (b'data: {"type": "response.completed", "response": {"usage": {"total_tokens": 21}}}\n\n', 21),
        (b"<html>", 0),
        (b'{"usage": null}', 0),
    ],
)
def test_tokens_are_read_in_whatever_shape_an_endpoint_says_them(body: bytes, tokens: int) -> None:
    assert tokens_of(body) == tokens


def test_patterns_name_parts_of_a_path_and_templates_keep_types() -> None:
    pattern = Pattern("POST /orders/{order}/lines/{rest...}", "test")
    call = Call(
        method="POST", path="/orders/81/lines/a/b", query={"q": "x"}, headers={"k": "v"}, body=b'{"n": [{"c": 5}]}'
    )
    path = pattern.match(call)
    assert path == {"order": "81", "rest": "a/b"}
    assert pattern.match(Call(method="GET", path="/orders/81/lines/a")) is None
    values = Values(call, path, n=3)
    template = {"whole": "{body.n.0.c}", "text": "{path.order}-{n}-{query.q}-{body.none}", "other": "{stay}"}
    assert values.fill(template) == {"whole": 5, "text": "81-3-x-", "other": "{stay}"}
    assert (values.key("K"), values.key("query.q"), values.key(None), values.key("absent")) == ("v", "x", "", "")
    with pytest.raises(CrashtestError, match="expected a method and a path"):
        Pattern("orders", "services.shop")


def test_a_proxy_is_shown_to_every_language() -> None:
    shown = variables(8081, Path("/tmp/ca.pem"))
    assert {shown[name] for name in CERTIFICATES} == {"/tmp/ca.pem"}
    assert (
        shown["HTTPS_PROXY"] == shown["https_proxy"] == "http://127.0.0.1:8081" and shown["NODE_USE_ENV_PROXY"] == "1"
    )
