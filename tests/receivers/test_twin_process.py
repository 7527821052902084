"""A twin writes down what it did before it answers, shares its clock and stands alone; so do the catalog's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot import receivers
from surefoot.core.effect import key_of
from surefoot.testing.ledger import performed, read_ledger
from surefoot.testing.twins import SharedClock, Sort, Twin
from surefoot.testing.twins.of_receiver import behaviour_of

from .twin_calls import KEY, OTHER_KEY, WINDOW, Got, behave, call, send

# --- ledger, clock, door, process -----------------------------------------------------------------------------------


def test_what_it_did_is_in_the_file_when_the_answer_arrives(twin: Twin) -> None:
    send(twin, {"name": "a", "text": "hello"}, key=KEY)
    (act,) = [line for line in read_ledger(twin.ledger_path) if line.what == "performed"]
    assert (act.name, act.key, json.loads(act.body)) == ("a", KEY, {"name": "a", "text": "hello"})


def test_without_a_name_equal_content_counts_as_the_same_effect(twin: Twin) -> None:
    for key, text in ((KEY, "one"), (OTHER_KEY, "one"), ("third", "two")):
        send(twin, {"text": text}, key=key)
    assert sorted(performed(twin.lines()).values()) == [1, 2]


def test_twin_and_agent_share_a_clock_that_the_test_moves(tmp_path: Path) -> None:
    clock = SharedClock(tmp_path / "clock")
    with Twin(behave(), tmp_path / "ledger.jsonl", clock=clock) as twin:
        others = SharedClock(tmp_path / "clock", jumps=False)
        before = others.now(), others.lease_now()
        twin.advance(3600.0)
        clock.sleep(600.0)
        assert 4200 <= others.now() - before[0] < 4260 and 4200 <= others.lease_now() - before[1] < 4260
        others.sleep(0.0)
        assert others.offset() == 4200.0


def test_the_door_moves_the_twin_from_any_language(twin: Twin) -> None:
    def door(what: str, **said: Any) -> Got:
        return call(twin.port, "POST", f"/-/{what}", said)

    assert door("next", faults=["error_after"]).status == 200
    assert send(twin, {"name": "a"}, key=KEY).status == 500
    assert door("advance", seconds=WINDOW + 1).status == 200
    assert send(twin, {"name": "a"}, key=KEY).body["number"] == 2
    assert door("finish", value=KEY).status == 200 and door("release").body == {"released": 0}
    lines = call(twin.port, "GET", "/-/ledger").body["lines"]
    assert [line["what"] for line in lines] == ["arrived", "performed", "arrived", "performed"]
    assert len(call(twin.port, "GET", "/-/events").body["events"]) == 2
    assert door("next", faults=["flood"]).status == 400 and door("issue").status == 400
    assert "advance, next, release" in door("explode").body["error"]["message"]


def test_a_twin_stands_alone_and_its_ledger_outlives_a_kill(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-m", "surefoot.testing.twins", "gocardless.creates", str(ledger)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    port = int(process.stdout.readline().rpartition(":")[2])
    headers = {"Idempotency-Key": KEY}
    assert call(port, "POST", "/create", {"name": "a"}, **headers).status == 201
    refusal = call(port, "POST", "/create", {"name": "a"}, **headers)
    assert refusal.status == 409 and refusal.code == "idempotent_creation_conflict"
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(20) == -9
    process.stdin.close()
    process.stdout.close()
    assert performed(read_ledger(ledger)) == {"a": 1}


def test_a_twin_of_nobody_is_refused_with_the_nearest_names() -> None:
    command = [sys.executable, "-m", "surefoot.testing.twins", "stripe.v9"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2 and "stripe.v1" in done.stderr


# --- the catalog ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", receivers.names())
def test_every_receiver_of_the_catalog_has_a_twin_that_takes_the_key_that_its_contract_makes(name: str) -> None:
    receiver = receivers.get(name)
    behaviour = behaviour_of(receiver)
    if receiver.prepares is None and receiver.key.shape != "given" and receiver.token is None:
        key = key_of(receiver.contract, "0123456789abcdef" * 2, 1_800_000_000.0)
        assert behaviour.why_malformed(key) == ""
    for operation in behaviour.operations.values():
        assert operation is not Sort.MIXED


def test_a_lie_is_told_where_the_twin_is_made(tmp_path: Path) -> None:
    stripe = receivers.get("stripe.v1")
    with Twin.of(stripe, tmp_path / "l", window_seconds=60) as twin:
        assert twin.behaviour.window_seconds == 60
        for _ in range(2):
            assert send(twin, {"name": "a"}, key=KEY).status == 201
            twin.advance(61.0)
        assert len(twin.acts("a")) == 2
    with Twin.of(stripe) as temporary:
        assert temporary.behaviour.window_seconds == 86_400
        path = temporary.ledger_path
    assert not path.exists()
