"""The two receivers: they record before they answer, they number on arrival, and they act as their offer says."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from surefoot.demo.model import ModelHandler
from surefoot.demo.receiver import Handler, listen
from surefoot.demo.scenario import TURNS, Offer
from surefoot.demo.world import WorldHandler


@contextmanager
def receiver(handler: type[Handler], record: Path, *, offer: Offer = Offer.NOTHING) -> Iterator[str]:
    """A receiver on a thread, with one place named ``p`` that kills nobody."""
    server = listen(handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"127.0.0.1:{server.server_port}"
    body = {"path": str(record), "kill_number": None, "window": None, "offer": offer}
    assert ask(address, "PUT", "/bench/p", body)[0] == 200
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()


def ask(
    address: str, method: str, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    connection = HTTPConnection(address, timeout=10)
    connection.request(method, path, None if body is None else json.dumps(body), headers or {})
    answer = connection.getresponse()
    received = json.loads(answer.read())
    connection.close()
    return answer.status, received


def lines(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_a_write_is_fsynced_before_its_answer_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, may_go_on, answered = threading.Event(), threading.Event(), threading.Event()
    really_sync = os.fsync

    def held_sync(descriptor: int) -> None:
        syncing.set()
        assert may_go_on.wait(10)
        really_sync(descriptor)

    def write(address: str) -> None:
        assert ask(address, "POST", "/p/tickets", {"title": "x"})[0] == 201
        answered.set()

    monkeypatch.setattr(os, "fsync", held_sync)
    with receiver(WorldHandler, tmp_path / "ledger.jsonl") as address:
        client = threading.Thread(target=write, args=(address,))
        client.start()
        assert syncing.wait(10)
        assert not answered.wait(0.2), "an answer left while its ledger line was not on disk"
        may_go_on.set()
        client.join(10)
    assert answered.is_set()
    assert [line["event"] for line in lines(tmp_path / "ledger.jsonl")] == ["performed"]


def test_without_an_offer_every_write_is_performed_whatever_key_it_carries(tmp_path: Path) -> None:
    with receiver(WorldHandler, tmp_path / "ledger.jsonl") as address:
        receipts = [ask(address, "POST", "/p/pages", {}, {"idempotency-key": "k"})[1] for _ in range(2)]
        assert ask(address, "GET", "/p/pages?reference=k")[0] == 404
    assert receipts == [{"id": "pages-1"}, {"id": "pages-2"}]


def test_an_honoured_key_returns_the_first_receipt_and_refuses_another_request(tmp_path: Path) -> None:
    with receiver(WorldHandler, tmp_path / "ledger.jsonl", offer=Offer.KEYS) as address:
        answers = [ask(address, "POST", "/p/pages", {"who": "a"}, {"idempotency-key": "k"}) for _ in range(2)]
        assert ask(address, "POST", "/p/pages", {"who": "b"}, {"idempotency-key": "k"})[0] == 422
    assert answers == [(201, {"id": "pages-1"}), (200, {"id": "pages-1"})]
    assert [line["event"] for line in lines(tmp_path / "ledger.jsonl")] == ["performed", "repeated"]


def test_a_lookup_finds_exactly_what_was_performed_under_the_reference(tmp_path: Path) -> None:
    with receiver(WorldHandler, tmp_path / "ledger.jsonl", offer=Offer.LOOKUP) as address:
        ask(address, "POST", "/p/status", {"reference": "r"})
        assert ask(address, "GET", "/p/status?reference=r") == (200, {"found": [{"id": "status-1"}]})
        assert ask(address, "GET", "/p/status?reference=q") == (200, {"found": []})
        assert ask(address, "GET", "/p/tickets?reference=r") == (200, {"found": []})


def test_the_planner_is_stateless_and_records_the_tokens_it_served(tmp_path: Path) -> None:
    path, messages, tools = "/p/v1/chat/completions", [{"role": "user", "content": "go"}], []
    with receiver(ModelHandler, tmp_path / "model.jsonl") as address:
        for turn in TURNS:
            asked = [ask(address, "POST", path, {"messages": messages})[1] for _ in range(2)]
            assert [each["usage"]["total_tokens"] for each in asked] == [turn.tokens] * 2
            assert asked[0]["usage"]["prompt_tokens"] + asked[0]["usage"]["completion_tokens"] == turn.tokens
            message = asked[0]["choices"][0]["message"]
            tools.append(message["tool_calls"][0]["function"]["name"])
            messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "{}"}]
        assert ask(address, "POST", path, {"messages": messages})[0] == 400
        assert ask(address, "POST", path, {"messages": messages[:-1]})[0] == 400, "an unanswered tool call"
    assert tools == [turn.tool for turn in TURNS]
    assert sum(line["tokens"] for line in lines(tmp_path / "model.jsonl")) == 2 * 37_000
