"""Gemini behind the proxy: its calls are known by their path, paid once, and function calls keep the ids they got."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.proxy.address import prefix
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.models import Ask, ModelServer, Say, ToolCall
from tests.proxy.agent import CANARY
from tests.proxy.conftest import Running

CALLS = 3
GENERATE, STREAM = "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse"
ASKED = {"contents": [{"role": "user", "parts": [{"text": "charge it"}]}]}
_names = itertools.count()
pytestmark = pytest.mark.xdist_group("proxy")


def charge(ask: Ask) -> Say:
    """Two calls of one function, which Gemini leaves without ids."""
    calls = (ToolCall(name="charge", arguments={"n": ask.number}), ToolCall(name="charge", arguments={"n": 0}))
    return Say(text=f"answer {ask.number}", calls=calls)


@pytest.fixture
def models(folder: Path) -> Iterator[ModelServer]:
    with ModelServer(charge, record=folder / f"gemini-{next(_names)}.jsonl") as models:
        yield models


def base(proxy: Running, attempt: str) -> str:
    return f"{proxy.url}{prefix(run='r', attempt=attempt)}/gemini"


def post(url: str) -> tuple[int, Any, bytes]:
    """(status, headers, body) of one request."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {"Content-Type": "application/json", "x-goog-api-key": CANARY}
    connection.request("POST", f"/{path}", json.dumps(ASKED), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


@pytest.mark.parametrize("when", ["sent", "begun", "read"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_is_paid_once_wherever_its_agent_is_killed(
    agents: ForkServer, models: ModelServer, proxies: Callable[..., Running], stream: bool, when: str
) -> None:
    proxy = proxies()
    killed = agents.start("gemini", base(proxy, "1"), CALLS, stream, 1, when)
    assert killed.join() == -signal.SIGKILL
    again = agents.start("gemini", base(proxy, "2"), CALLS, stream, -1, "")
    assert again.join() == 0
    assert again.lines[-1] == "done" and all(" 200 " in line for line in again.lines[:-1])
    assert again.lines[: len(killed.lines)] == killed.lines, "an answer was not the same byte for byte"
    assert len(models.paid()) == CALLS


@pytest.mark.parametrize("path", [GENERATE, STREAM], ids=["whole", "streamed"])
def test_function_calls_have_ids_that_another_attempt_sees_again(
    models: ModelServer, proxies: Callable[..., Running], path: str
) -> None:
    proxy = proxies()
    first, second = (post(base(proxy, attempt) + path) for attempt in ("1", "2"))
    assert first[2] == second[2] and second[1]["x-surefoot-replayed"] == "1"
    lines = first[2].splitlines() if path == STREAM else [first[2]]
    answers = [json.loads(line.removeprefix(b"data: ")) for line in lines if line]
    parts = [part for answer in answers for part in answer["candidates"][0]["content"]["parts"]]
    ids = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    assert len(ids) == len(set(ids)) == 2 and all(each.startswith("call_") for each in ids)
    assert len(models.paid()) == 1


def test_what_is_no_answer_is_passed_on_and_counted(models: ModelServer, proxies: Callable[..., Running]) -> None:
    """Counting tokens is no call of a model."""
    proxy = proxies()
    post(f"{base(proxy, '1')}/v1beta/models/m:countTokens")
    host = proxy.url.removeprefix("http://")
    asking = http.client.HTTPConnection(host, timeout=60)
    asking.request("GET", "/run/r")
    told = json.loads(asking.getresponse().read())
    assert (told["calls"], told["unrecorded"]) == (0, 1) and not models.paid()
