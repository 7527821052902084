"""What the scripted model promises to tests: numbers on arrival, a record that is there first, real kills."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from surefoot.testing.ledger import read_ledger
from surefoot.testing.models import Ask, Meets, ModelServer, Say, checkout, checkout_at_once, scripted
from surefoot.testing.models.chat import CHAT
from tests.models.conftest import Serve

AGENT = """
import json, sys, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "go"}], "tools": [
    {"type": "function", "function": {"name": "shop"}}]}
headers = {"content-type": "application/json", "authorization": "Bearer any"}
for _ in range(3):
    request = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", json.dumps(body).encode(), headers)
    message = json.loads(urllib.request.urlopen(request, timeout=60).read())["choices"][0]["message"]
    body["messages"].append(message)
    for call in message.get("tool_calls") or []:
        op = json.loads(call["function"]["arguments"])["op"]
        body["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": f"receipt:{op}:1"})
"""


def ask(*messages: Any) -> Ask:
    body = {"model": "m", "messages": list(messages), "tools": [{"function": {"name": "shop"}}]}
    return CHAT.read(body, "/v1/chat/completions")


@pytest.mark.parametrize(("when", "paid"), [("before", 1), ("after", 2)])
def test_a_kill_strikes_around_the_record(serve: Serve, when: Any, paid: int) -> None:
    server = serve(checkout)
    server.at(2, Meets(kill=when))
    agent = subprocess.Popen([sys.executable, "-c", AGENT, server.url], start_new_session=True)
    server.victim.is_(agent.pid)
    assert agent.wait(60) == -signal.SIGKILL
    assert [line.number for line in server.paid()] == list(range(1, paid + 1))


def test_the_record_is_on_disk_before_the_answer_leaves(serve: Serve, tmp_path: Path) -> None:
    seen: list[int] = []

    def boundary(when: str, number: int, connection: socket.socket) -> bool:
        if when == "after":
            seen.append(len(read_ledger(tmp_path / "record0.jsonl")))
        return False

    server = serve(checkout, boundary=boundary)
    subprocess.run([sys.executable, "-c", AGENT, server.url], check=True, timeout=60)
    assert seen == [1, 2, 3]


def test_requests_are_numbered_as_they_arrive_and_not_as_they_are_answered(serve: Serve) -> None:
    first, second = threading.Event(), threading.Event()

    def boundary(when: str, number: int, connection: socket.socket) -> bool:
        if when == "before" and number == 1:
            first.set()
            second.wait(60)
        return False

    server = serve(lambda asked: Say(text=str(asked.number)), boundary=boundary)
    said: dict[str, str] = {}

    def call(name: str) -> None:
        body = {"model": name, "messages": [{"role": "user", "content": "x"}]}
        headers = {"authorization": "Bearer any"}
        answer = httpx2.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=60).json()
        said[name] = answer["choices"][0]["message"]["content"]

    held = threading.Thread(target=call, args=("held",))
    held.start()
    assert first.wait(60)
    call("quick")
    second.set()
    held.join(60)
    assert said == {"held": "1", "quick": "2"}
    assert [line.number for line in server.paid()] == [2, 1]


def test_the_planner_knows_only_the_request() -> None:
    one = ask({"role": "user", "content": "go"})
    assert [call.arguments for call in checkout(one).calls] == [{"op": "reserve"}]
    assert [call.arguments["op"] for call in checkout_at_once(one).calls] == ["reserve", "charge", "confirm"]
    called = {"id": "c", "type": "function", "function": {"name": "shop", "arguments": '{"op":"reserve"}'}}
    two = ask(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": "receipt:reserve:1"},
    )
    assert (two.answers, two.calls[0].name, two.results[0].text) == (1, "shop", "receipt:reserve:1")
    for _ in range(2):  # asked again, it says the same
        assert [call.arguments for call in checkout(two).calls] == [{"op": "charge"}]


def test_a_script_of_turns_is_read_from_json() -> None:
    planner = scripted([{"text": "a", "calls": [{"name": "shop", "arguments": {"op": "x"}}]}, {"text": "b"}])
    assert planner(ask({"role": "user", "content": "go"})).calls[0].arguments == {"op": "x"}
    assert planner(ask({"role": "user", "content": "go"}, {"role": "assistant", "content": "a"})).text == "b"


def test_a_process_of_its_own_with_a_door(tmp_path: Path) -> None:
    (tmp_path / "turns.json").write_text(json.dumps([{"text": "from a file"}]))
    command = [sys.executable, "-m", "surefoot.testing.models", "--planner", str(tmp_path / "turns.json")]
    server = subprocess.Popen(
        [*command, "--record", str(tmp_path / "record")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert httpx2.post(f"{url}/-/next", json={"meets": [{"error": 429}]}).status_code == 200
        assert httpx2.post(f"{url}/-/next", json={"meets": [{"eror": 429}]}).status_code == 400
        body, headers = {"model": "m", "messages": [{"role": "user", "content": "x"}]}, {"authorization": "Bearer any"}
        statuses = [
            httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60).status_code
            for _ in range(2)
        ]
        assert statuses[0] == 429
        told = httpx2.get(f"{url}/-/record").json()["lines"]
        assert told[0]["what"] == "failed"
        assert len(httpx2.get(f"{url}/-/asks").json()["asks"]) == 2
    finally:
        server.communicate("", timeout=60)
    assert [line.what for line in read_ledger(tmp_path / "record")] == [line["what"] for line in told]


@pytest.mark.parametrize("sent", ["[1]", "{", "7"])
def test_a_body_that_is_no_object_is_refused(serve: Serve, sent: str) -> None:
    server: ModelServer = serve()
    assert httpx2.post(f"{server.url}/v1/responses", content=sent, timeout=30).status_code == 400
