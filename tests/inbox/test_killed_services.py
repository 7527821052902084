"""A service killed at each of its boundaries, with SIGKILL; then its client repeats: never lost, never doubled."""

from __future__ import annotations

import signal

import httpx
import pytest

from surefoot.inbox import Answer
from tests.inbox.conftest import UNKNOWN, Service, ask, problem_type
from tests.inbox.service import PLACES

AFTER_THE_CHANGE = ("after-change", "before-stored", "after-stored", "before-answer")


def kill(mortal: Service, place: str, path: str) -> None:
    """A client's first request, during which the service dies exactly there."""
    client = mortal.start()
    mortal.kill_at(place)
    with client, pytest.raises(httpx.RemoteProtocolError):
        client.post(path, json={"item": "lamp"}, headers={"Idempotency-Key": '"key-1"'})
    assert mortal.died() == -signal.SIGKILL
    assert not (mortal.folder / f"kill-{place}").exists()


@pytest.mark.parametrize("place", PLACES)
def test_a_transactional_handler_that_is_killed_is_never_lost_and_never_doubled(mortal: Service, place: str) -> None:
    kill(mortal, place, "/order")
    assert mortal.count("order") == (place in AFTER_THE_CHANGE)
    with mortal.start() as client:
        answer = ask(client, "/order")
        again = ask(client, "/order")
    assert (answer.status_code, answer.json()) == (201, {"number": 1, "item": "lamp"})
    assert answer.headers.get("idempotent-replayed") == ("true" if place in ("after-stored", "before-answer") else None)
    assert (again.content, again.headers["idempotent-replayed"]) == (answer.content, "true")
    assert mortal.count("order") == 1


@pytest.mark.parametrize("place", [place for place in PLACES if place != "in-transaction"])
def test_a_plain_handler_that_is_killed_is_never_doubled_and_its_doubt_is_told(mortal: Service, place: str) -> None:
    kill(mortal, place, "/plain")
    happened = mortal.count("plain")
    assert happened == (place in AFTER_THE_CHANGE)
    with mortal.start() as client:
        answer = ask(client, "/plain")
        if place == "before-claim":
            assert (answer.status_code, answer.headers.get("idempotent-replayed")) == (201, None)
        elif place in ("after-stored", "before-answer"):
            assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
        else:
            assert (answer.status_code, problem_type(answer)) == (409, UNKNOWN)
            assert "retry-after" not in answer.headers and mortal.count("plain") == happened
            settle(mortal, happened)
            answer = ask(client, "/plain")
            assert answer.status_code == 201
            assert answer.headers.get("idempotent-replayed") == ("true" if happened else None)
        assert ask(client, "/plain").content == answer.content
    assert mortal.count("plain") == 1


def settle(service: Service, happened: int) -> None:
    """What an operator does, who has looked into the ledger."""
    inbox = service.inbox()
    (doubt,) = inbox.in_doubt()
    assert doubt.key == "key-1" and doubt.scope.startswith("http:POST /plain ")
    if happened:
        inbox.resolve(doubt.key, happened=Answer.json(201, {"done": {"item": "lamp"}, "attempt": 1}))
    else:
        inbox.resolve(doubt.key, scope=doubt.scope, did_not_happen=True)
    assert inbox.in_doubt() == []
    inbox.close()
