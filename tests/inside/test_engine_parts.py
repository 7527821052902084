"""What can be told of the engines' parts without them: refusals, ids, and how often a task or a node looks again.

Where an engine's own function is called, a stand-in for the engine takes the call; never one for our code.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot.inside import Parked, celery, langgraph, restate, temporal
from tests.inside.support import calls, decide, fails, pays


@pytest.fixture
def sf(tmp_path: Path) -> Iterator[surefoot.Surefoot]:
    calls.clear()
    with surefoot.Surefoot(tmp_path / "a.db") as opened:
        yield opened


# --- Celery -----------------------------------------------------------------------------------------------------------


class Retried(Exception):
    """What Celery's retry raises."""


class Task:
    """As much of a bound task as `ride` asks for."""

    name = "order"

    def __init__(self, *, late: bool | None = True, lost: bool | None = True, conf: bool = False) -> None:
        self.acks_late, self.reject_on_worker_lost = late, lost
        self.app = types.SimpleNamespace(
            conf=types.SimpleNamespace(task_acks_late=conf, task_reject_on_worker_lost=conf)
        )
        self.request = types.SimpleNamespace(id="t-1", retries=0)
        self.asked: dict[str, Any] = {}

    def retry(self, **asked: Any) -> Exception:
        self.asked = asked
        return Retried()


@pytest.mark.parametrize("task", [Task(late=False), Task(lost=False), Task(late=None), Task(lost=None)])
def test_a_task_that_its_worker_s_death_would_lose_is_refused(sf: surefoot.Surefoot, task: Task) -> None:
    with pytest.raises(surefoot.UsageError, match="acks_late"):
        celery.ride(task, sf, pays, "7")
    assert calls == []


def test_the_app_s_own_settings_count(sf: surefoot.Surefoot) -> None:
    with pytest.raises(Retried):
        celery.ride(Task(late=None, lost=None, conf=True), sf, pays, "7")


def test_a_parked_task_is_retried_for_ever_under_the_same_id(sf: surefoot.Surefoot) -> None:
    task = Task()
    for _ in range(5):
        with pytest.raises(Retried):
            celery.ride(task, sf, pays, "7", look=3.0)
    assert task.asked["countdown"] == 3.0 and task.asked["max_retries"] > 1e9
    decide(sf, "t-1", "receipt:1")
    assert celery.ride(task, sf, pays, "7") == "receipt:1" and calls == ["look", "pay 7"]


def test_a_task_fails_with_what_another_try_would_repeat(sf: surefoot.Surefoot) -> None:
    with pytest.raises(Retried):
        celery.ride(Task(), sf, pays, "7")
    with pytest.raises(surefoot.RunMismatch):
        celery.ride(Task(), sf, pays, "8")


def test_a_task_that_no_worker_runs_has_no_id() -> None:
    task = Task()
    task.request.id = None
    with pytest.raises(surefoot.UsageError, match="no id"):
        celery.run_id(task)


# --- LangGraph --------------------------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """What leaves a node for good."""


def graph(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], answers: int) -> None:
    """Modules that stand for LangGraph's, in a node whose first `answers` interrupts were answered before."""
    left = [None] * answers

    def interrupt(value: Any) -> Any:
        if left:
            return left.pop()
        raise Interrupted(value)

    monkeypatch.setitem(sys.modules, "langgraph.config", types.SimpleNamespace(get_config=lambda: config))
    monkeypatch.setitem(sys.modules, "langgraph.types", types.SimpleNamespace(interrupt=interrupt))


def node(**configurable: Any) -> dict[str, Any]:
    return {"configurable": configurable, "metadata": {"langgraph_node": "agent"}}


def test_the_invocation_names_the_run_and_else_the_task_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = langgraph.config("thread", "message-3")["configurable"]
    graph(monkeypatch, node(**asked, checkpoint_ns="agent:1"), 0)
    assert langgraph.run_id() == "thread/message-3/agent" and langgraph.run_id("2") == "thread/message-3/agent/2"
    graph(monkeypatch, node(thread_id="thread", checkpoint_ns="agent:1"), 0)
    assert langgraph.run_id() == "thread/agent:1"


def test_a_node_without_a_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph(monkeypatch, node(), 0)
    with pytest.raises(surefoot.UsageError, match="thread_id"):
        langgraph.run_id()


def test_a_node_that_is_resumed_too_early_is_interrupted_again(
    sf: surefoot.Surefoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = langgraph.config("thread", "message-3")["configurable"]
    for answers in (0, 1, 2):
        graph(monkeypatch, node(**asked), answers)
        with pytest.raises(Interrupted):
            langgraph.ride(sf, pays, "7")
    decide(sf, "thread/message-3/agent", "receipt:1")
    graph(monkeypatch, node(**asked), 3)
    assert langgraph.ride(sf, pays, "7") == "receipt:1" and calls == ["look", "pay 7"]


# --- Restate ----------------------------------------------------------------------------------------------------------


def test_a_handler_s_run_is_named_by_key_invocation_and_number() -> None:
    plain = types.SimpleNamespace(request=lambda: types.SimpleNamespace(id="inv_1"))
    assert restate.run_id(plain) == "inv_1/1" and restate.run_id(plain, 2) == "inv_1/2"
    keyed = types.SimpleNamespace(request=lambda: types.SimpleNamespace(id="inv_1"), key=lambda: "ann")
    assert restate.run_id(keyed) == "ann/inv_1/1"


def test_an_ingress_is_a_url(sf: surefoot.Surefoot) -> None:
    with pytest.raises(surefoot.UsageError, match="ingress"), restate.waking(sf, "127.0.0.1:8080"):
        pass


# --- Temporal ---------------------------------------------------------------------------------------------------------


class Failure(Exception):
    """Temporal's base of failures, and its cancellation."""


class ApplicationFailure(Failure):
    """As much of ApplicationError as `ride` sets."""

    def __init__(self, message: str, *details: Any, type: str = "", non_retryable: bool = False) -> None:
        super().__init__(message)
        self.details, self.type, self.non_retryable = details, type, non_retryable


def in_activity(monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[Any]:
    """Modules that stand for Temporal's, inside an activity; what was beaten."""
    beats: list[Any] = []
    info = {"workflow_id": "w", "workflow_run_id": "r", "activity_id": "checkout-1", "namespace": "default"}
    activity = types.SimpleNamespace(
        in_activity=lambda: True,
        info=lambda: types.SimpleNamespace(**{**info, "heartbeat_timeout": None, **more}),
        heartbeat=beats.append,
        cancellation_details=lambda: None,
        shield_thread_cancel_exception=contextlib.nullcontext,
    )
    exceptions = types.SimpleNamespace(
        FailureError=Failure, ApplicationError=ApplicationFailure, CancelledError=Failure
    )
    monkeypatch.setitem(sys.modules, "temporalio.activity", activity)
    monkeypatch.setitem(sys.modules, "temporalio.exceptions", exceptions)
    return beats


def ridden(sf: surefoot.Surefoot, in_thread: bool, *args: Any) -> Any:
    return temporal.ride_sync(sf, *args) if in_thread else asyncio.run(temporal.ride(sf, *args))


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_parked_activity_says_so_in_an_error_that_can_be_sent(
    sf: surefoot.Surefoot, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    in_activity(monkeypatch)
    with pytest.raises(ApplicationFailure) as raised:
        ridden(sf, in_thread, pays, "7")
    assert raised.value.type == temporal.PARKED and raised.value.non_retryable
    assert Parked.read(raised.value.details[0]).run == "w/r/checkout-1"
    assert raised.value.__cause__ is None  # Temporal's converter follows causes to their end
    decide(sf, "w/r/checkout-1", "receipt:1")
    assert ridden(sf, in_thread, pays, "7") == "receipt:1" and calls == ["look", "pay 7"]


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_activity_is_not_retried_for_what_would_be_repeated(
    sf: surefoot.Surefoot, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    in_activity(monkeypatch)
    with pytest.raises(ApplicationFailure) as raised:
        ridden(sf, in_thread, fails)
    assert raised.value.type == "ValueError" and raised.value.non_retryable


def test_the_run_id_of_the_execution_is_in_the_id_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    in_activity(monkeypatch)
    assert temporal.run_id() == "w/r/checkout-1" and temporal.run_id("workflow") == "w/checkout-1"
    in_activity(monkeypatch, workflow_id=None)
    with pytest.raises(surefoot.UsageError, match="id="):
        temporal.run_id()
