"""One process: what `start(queue=)`, a worker beside other code, handles, versions and `retry` do; and bad input."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from surefoot import (
    RunCancelled,
    RunMismatch,
    RunNotFound,
    RunWaiting,
    StepFailed,
    Surefoot,
    UsageError,
    step,
    workflow,
)
from surefoot.core.run import RunStatus
from surefoot.runtime import step as step_module
from surefoot.runtime.step import Workflow
from surefoot.testing.ledger import Ledger
from tests.worker import fleet as code
from tests.worker.conftest import until


@step
def double(n: int) -> int:
    return n * 2


@workflow
def doubled(n: int) -> int:
    return double(n)


@workflow
async def doubled_async(n: int) -> int:
    return n * 2


@workflow(raises=KeyError)
def fails(n: int) -> int:
    raise KeyError(n)


@workflow(ignore=("client",))
def with_client(n: int, client: Any) -> int:
    return n


class Shop:
    @workflow(name="shop.sell")
    def sell(self, n: int) -> int:
        return n


@workflow
def fails_oddly() -> None:
    raise Odd("way")


class Odd(Exception):
    """No builtin."""


@pytest.fixture(autouse=True)
def known_code() -> Iterator[None]:
    """What a test decorates is forgotten after it."""
    known = {place: list(held) for place, held in step_module._workflows.items()}
    step_module._workflows.clear()
    for workflow_here in [each for each in (*globals().values(), *vars(code).values()) if isinstance(each, Workflow)]:
        step_module.register(workflow_here)
    yield
    step_module._workflows.clear()
    step_module._workflows.update(known)


@pytest.fixture
def sf(tmp_path: Path) -> Any:
    code.LEDGER[:] = [Ledger()]
    with Surefoot(tmp_path / "agents.db") as sf:
        yield sf


def test_a_queued_run_is_durable_at_once_and_its_handle_gives_the_result(sf: Surefoot) -> None:
    handle = sf.start(doubled, 4, id="one", queue="default")
    assert handle.status() == "pending"
    with pytest.raises(TimeoutError, match="it is pending"):
        handle.result(0.01)
    with sf.worker():
        assert handle.result(20) == 8
        assert sf.start(doubled_async, 5, id="two", queue="default").result(20) == 10
    assert sf.run(doubled, 4, id="one") == 8, "the same id is the same run"


def test_the_same_id_again_is_the_same_run_and_other_arguments_are_refused(sf: Surefoot) -> None:
    sf.start(doubled, 4, queue="default", dedupe="order 7")
    assert sf.start(doubled, 4, queue="default", dedupe="order 7").id == "doubled:order 7"
    with pytest.raises(RunMismatch, match=r"doubled\(\"n\":4\)"):
        sf.start(doubled, 5, queue="default", dedupe="order 7")
    assert len(sf.list()) == 1


def test_a_handle_raises_what_the_run_raised(sf: Surefoot) -> None:
    with sf.worker():
        with pytest.raises(KeyError):
            sf.start(fails, 1, id="one", queue="default").result(20)
        with pytest.raises(StepFailed):
            sf.start(fails_oddly, id="two", queue="default").result(20)
    handle = sf.start(doubled, 1, id="three", queue="nobody")
    handle.cancel()
    with pytest.raises(RunCancelled):
        handle.result(20)
    handle.id = "no such run"
    with pytest.raises(RunNotFound):
        handle.result(20)


async def test_a_handle_can_be_awaited_and_a_worker_used_on_a_loop(sf: Surefoot) -> None:
    seen: list[asyncio.AbstractEventLoop] = []

    @workflow(name="tells its loop")
    async def tells() -> int:
        seen.append(asyncio.get_running_loop())
        return 3

    async with sf.worker():
        assert await sf.start(tells, id="one", queue="default") == 3
        assert await sf.start(doubled, 2, id="two", queue="default") == 4
    assert seen == [asyncio.get_running_loop()], "async workflows run on the loop that the worker was made on"
    task = asyncio.create_task(sf.work_async())
    assert await sf.start(tells, id="three", queue="default") == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sf.engine.serves is None


def test_a_run_that_waits_is_given_back_and_a_signal_takes_it_up_at_once(sf: Surefoot) -> None:
    with sf.worker():
        handle = sf.start(code.listens, "x", id="one", queue="default")
        until(lambda: handle.status() == "waiting", "the run to wait")
        sf.signal("one", "go", "went")
        assert handle.result(20) == "went"


def test_an_exception_that_cannot_say_what_it_is_ends_its_run_once(sf: Surefoot) -> None:
    entered: list[int] = []

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @workflow
    def mute() -> None:
        entered.append(1)
        raise Mute

    with sf.worker([mute]), pytest.raises(StepFailed, match="its message cannot be shown: RuntimeError"):
        sf.start(mute, id="one", queue="default").result(20)
    assert entered == [1] and sf.get("one").status is RunStatus.FAILED


def test_a_workflow_that_exits_fails_and_is_not_taken_again_and_again(sf: Surefoot) -> None:
    with sf.worker(), pytest.raises(Exception, match="the workflow raised SystemExit"):
        sf.start(code.leaves, "x", id="one", queue="default").result(20)
    assert sf.get("one").status is RunStatus.FAILED and sf.get("one").claims == 1


def test_sf_run_of_a_run_that_a_worker_here_has_waits_for_it(sf: Surefoot) -> None:
    """In one process: one of them executes it, the other gets its result."""
    code.HOLD[:] = [Path(sf.store.path).parent / "go on"]  # type: ignore[attr-defined]
    sf.start(code.held, "x", id="one", queue="default")
    with sf.worker():
        until(lambda: any(line.name == "x" for line in code.LEDGER[0].lines()), "the worker to have it")
        results: list[str] = []
        thread = threading.Thread(target=lambda: results.append(sf.run(code.held, "x", id="one")))
        thread.start()
        code.HOLD[0].touch()
        thread.join(20)
    assert results == ["x after"]
    assert [line.name for line in code.LEDGER[0].lines() if line.what == "begun"] == ["x before", "x", "x after"]


def test_a_worker_takes_the_versions_that_its_code_has(sf: Surefoot) -> None:
    handles = [sf.start(code.versioned_1, "old", id="old", queue="default")]
    handles.append(sf.start(code.versioned_2, "new", id="new", queue="default"))
    with sf.worker([code.versioned_2]):
        assert handles[1].result(20) == "new by 2"
        with pytest.raises(TimeoutError):
            handles[0].result(0.5)
    with sf.worker([code.versioned_1, code.versioned_2]):
        assert handles[0].result(20) == "old by 1"


def test_code_says_which_older_versions_it_replays(sf: Surefoot) -> None:
    @workflow(name="grown", version="1")
    def before(n: int) -> int:
        return double(n)

    sf.start(before, 1, id="one", queue="default")

    @workflow(name="grown", version="3", replays=("1", "2"))
    def after(n: int) -> int:
        return double(n)

    assert after.versions == ("3", "1", "2")
    with pytest.raises(UsageError, match=r"two workflows are named 'grown' \(version '1'\)"):
        sf.worker()
    worker = sf.worker([after])
    assert worker.served.workflows == (("grown", "3"), ("grown", "1"), ("grown", "2"))
    with worker:
        until(lambda: sf.get("one").finished, "the old run to be taken")
    assert sf.get("one").result == 2


def test_arguments_that_no_longer_fit_the_code_are_told_and_can_be_retried(sf: Surefoot) -> None:
    @workflow(name="changes")
    def before(n: int) -> int:
        return n

    handle = sf.start(before, 1, id="one", queue="default")

    @workflow(name="changes")
    def after(n: int, more: int) -> int:
        return n

    with sf.worker([after]), pytest.raises(RunWaiting, match=r"stored arguments do not fit the code: .*'more'"):
        handle.result(20)
    assert sf.get("one").status is RunStatus.DIVERGED
    assert sf.retry("one", why="rolled back").status is RunStatus.PENDING
    with sf.worker([before]):
        assert handle.result(20) == 1


def test_each_end_is_one_line_in_the_log(sf: Surefoot, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "surefoot"), sf.worker():
        sf.start(doubled, 1, id="one", queue="default").result(20)
        with pytest.raises(KeyError):
            sf.start(fails, 1, id="two", queue="default").result(20)
    lines = [record.getMessage() for record in caplog.records if record.name == "surefoot"]
    assert lines == [
        "run 'one' of doubled: succeeded",
        "run 'two' of fails: failed (KeyError: 1)",
        "a worker is stopping: 0 runs are given back at their next step",
    ]


# --- bad input: refused before anything is written --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": ""}, "a queue's name must have 1 to 200 characters"),
        ({"queue": "a\nb"}, "control character"),
        ({"queue": 7}, "must be a string"),
        ({"queue": "q", "priority": 1.5}, "priority must be a whole number"),
        ({"queue": "q", "priority": True}, "priority must be a whole number"),
        ({"queue": "q", "priority": 1 << 31}, "priority must be a whole number"),
        ({"queue": "q", "delay": -1}, "delay must be a timedelta or seconds, 0 to 100 years"),
        ({"queue": "q", "delay": float("nan")}, "delay must be a timedelta or seconds, 0 to 100 years"),
        ({"queue": "q", "delay": timedelta(days=365 * 200)}, "delay must be a timedelta or seconds, 0 to 100 years"),
        ({"queue": "q", "delay": 10**400}, "delay must be a timedelta or seconds, 0 to 100 years"),
        ({"queue": "q", "delay": "soon"}, "delay must be a timedelta or seconds, 0 to 100 years, found 'soon'"),
        ({"queue": "q", "key": ""}, "key must have 1 to 200 characters"),
        ({"queue": "q", "id": None}, 'needs id="..."'),
        ({"queue": "q", "dedupe": "x"}, "id= or dedupe=, not both"),
        ({"priority": 1}, r"priority=\) says how a queued run is taken; give queue= too"),
        ({"key": "k"}, "If 'key' is an argument of 'doubled' itself, pass it by position"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(sf: Surefoot, options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sf.start(doubled, 1, **{"id": "one", **options})
    assert sf.list() == [] and sf.store.board.backlog() == []


def test_what_a_worker_could_not_call_is_refused(sf: Surefoot) -> None:
    with pytest.raises(UsageError, match="keeps 'client' out of the record"):
        sf.start(with_client, 1, object(), id="one", queue="default")
    with pytest.raises(UsageError, match=r"workflow 'shop.sell' is a method"):
        sf.start(Shop().sell, 1, id="one", queue="default")
    assert sf.list() == []


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number, 1 or more, found 0; leave it out for no limit"),
        ({"per_worker": -1}, "per_worker must be a whole number"),
        ({"per_key": 1.0}, "per_key must be a whole number"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"rate": 5}, r"rate must be \(starts, seconds\)"),
        ({"rate": (0, 60)}, r"rate must be \(starts, seconds\)"),
        ({"rate": (5, 0)}, r"rate must be \(starts, seconds\)"),
        ({"rate": (5, float("inf"))}, r"rate must be \(starts, seconds\)"),
        ({"rate": (5, timedelta(0))}, r"rate must be \(starts, seconds\)"),
    ],
)
def test_a_limit_that_lets_nothing_through_is_refused(sf: Surefoot, limits: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sf.queue("mail", **limits)
    assert sf.store.board.find_queues() == []
    sf.queue("mail", rate=(5, timedelta(minutes=1)))
    assert sf.store.board.find_queues()[0].limits.period_seconds == 60.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queues": ()}, "a worker needs a queue"),
        ({"queues": ("",)}, "a queue's name must have"),
        ({"concurrency": 0}, "concurrency must be a whole number, 1 to 10000, found 0"),
        ({"concurrency": 2.5}, "concurrency must be a whole number"),
        ({"workflows": [doubled.function]}, "takes decorated workflows"),
        ({"workflows": [Shop.sell]}, "is a method: a worker has no object"),
    ],
)
def test_a_worker_that_could_not_work_is_refused(sf: Surefoot, options: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sf.worker(**options)


def test_one_surefoot_has_one_worker(sf: Surefoot) -> None:
    with sf.worker(), pytest.raises(UsageError, match="has a worker already"):
        sf.work()


def test_what_has_ended_or_is_not_there_is_not_retried(sf: Surefoot) -> None:
    sf.run(doubled, 1, id="one")
    with pytest.raises(UsageError, match="has succeeded; what has ended is not tried again"):
        sf.retry("one")
    with pytest.raises(RunNotFound):
        sf.retry("two")


def test_closing_while_a_worker_works_gives_its_runs_back(tmp_path: Path) -> None:
    code.LEDGER[:] = [Ledger()]
    code.HOLD[:] = [tmp_path / "go on"]
    sf = Surefoot(tmp_path / "agents.db")
    worker = sf.worker().start()
    sf.start(code.held, "x", id="one", queue="default")
    until(lambda: any(line.name == "x" for line in code.LEDGER[0].lines()), "the worker to have it")
    closing = threading.Thread(target=sf.close)
    closing.start()
    code.HOLD[0].touch()
    closing.join(20)
    assert not worker._active
    with Surefoot(tmp_path / "agents.db") as again:
        assert again.get("one").status is RunStatus.PENDING and again.store.board.find_owners() == []
