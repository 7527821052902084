"""`sf.run` while its run waits: it holds nothing, others may finish the run, and a stop ends the wait at once."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import RunWaiting, Surefoot, workflow
from surefoot.core.run import RunStatus
from surefoot.runtime import waiting
from tests.runtime.support import start_child
from tests.waits.support import until, waits, worker

HOUR = 3600.0


@workflow
def listener() -> str:
    return surefoot.wait_for("go")


@workflow
def two_waits() -> list[Any]:
    return surefoot.gather(lambda: surefoot.sleep(HOUR), lambda: surefoot.wait_for("go"))


@workflow
async def two_waits_async() -> list[Any]:
    return list(await surefoot.gather(surefoot.sleep(HOUR), surefoot.wait_for("go")))


@workflow
def sleeper() -> None:
    surefoot.sleep(HOUR)


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, outcome


def test_the_caller_holds_nothing_while_a_message_is_outstanding(url: str) -> None:
    with Surefoot(url) as sf, Surefoot(url) as other:
        thread, outcome = in_thread(lambda: sf.run(listener, id="r"))
        run = until(lambda: waits(other, "r"))
        assert run.owner == 0 and run.waits[0].name == "go" and not outcome
        other.signal("r", "go", "hello")
        thread.join(30)
        assert outcome == ["hello"] and other.get("r").claims == 2


@pytest.mark.parametrize("flow", [two_waits, two_waits_async], ids=["def", "async def"])
def test_a_long_timer_beside_a_message_holds_nothing_either(db: str, flow: Any) -> None:
    import asyncio

    with Surefoot(db) as sf:
        call = (lambda: sf.run(flow, id="r")) if flow is two_waits else lambda: asyncio.run(sf.run(flow, id="r"))
        thread, outcome = in_thread(call)
        run = until(lambda: waits(sf, "r"))
        assert sorted(wait.kind for wait in run.waits) == ["signal", "timer"] and run.owner == 0
        assert run.wake_at == max(wait.until for wait in run.waits)
        sf.cancel("r")
        thread.join(30)
        assert type(outcome[0]).__name__ == "RunCancelled"


def test_a_worker_may_finish_the_run_and_its_caller_gets_the_stored_result(url: str) -> None:
    with Surefoot(url) as sf:
        thread, outcome = in_thread(lambda: sf.run(listener, id="r"))
        until(lambda: waits(sf, "r"))
        with worker(url, listener) as other:
            other.signal("r", "go", "hello")
            until(lambda: other.get("r").status == "succeeded")
        thread.join(30)
        assert outcome == ["hello"]


@pytest.mark.parametrize("flow", [listener, sleeper], ids=["message", "timer"])
def test_close_ends_a_wait_at_once_and_leaves_the_run_to_be_resumed(
    db: str, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", HOUR)  # a sleeper is woken; it does not look by itself
    sf = Surefoot(db)
    handle = sf.start(flow, id="r")
    until(lambda: sf.get("r").status == "waiting" or any(session.waits for session in list(sf._runner._sessions)))
    time.sleep(0.1)  # so that it sleeps by now; a test that comes too early proves less, and is green
    closer = threading.Thread(target=sf.close, daemon=True)
    closer.start()
    closer.join(20)
    assert not closer.is_alive()
    with pytest.raises(RunWaiting, match="run it again to resume it"):
        handle.result(5)
    with Surefoot(db) as sf:
        run = sf.store.find_run("r")
        assert run is not None and run.owner == 0 and run.status in (RunStatus.PENDING, RunStatus.WAITING)


PROGRAM = """
import sys, surefoot
from surefoot import Surefoot, workflow

@workflow
def listener(): return surefoot.wait_for("go")

@workflow
def sleeper(): surefoot.sleep(3600)

with Surefoot(sys.argv[1]) as sf:
    print("running")
    sf.run(globals()[sys.argv[2]], id="r")
"""


@pytest.mark.parametrize("flow", ["listener", "sleeper"])
def test_sigterm_ends_a_waiting_program_at_once_and_its_run_is_free(db: str, flow: str, tmp_path: Path) -> None:
    child = start_child(tmp_path, PROGRAM, db, flow)
    with Surefoot(db) as sf:
        wanted = RunStatus.WAITING if flow == "listener" else RunStatus.RUNNING
        until(lambda: (run := sf.store.find_run("r")) and run.status is wanted)
        until(lambda: sf.store.read_run("r")[1] or flow == "listener")  # type: ignore[index]
        child.send_signal(signal.SIGTERM)
        output, errors = child.communicate(timeout=30)
        assert child.returncode == 143, (output, errors)
        run = sf.store.find_run("r")
        assert run is not None and run.owner == 0 and run.status in (RunStatus.PENDING, RunStatus.WAITING)
