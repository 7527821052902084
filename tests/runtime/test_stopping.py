"""SIGTERM and Ctrl-C: commits finish, the run is released, and the process ends as it was asked to, in time."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, step, workflow
from tests.runtime.support import start_child

PROGRAM = """
import asyncio, os, signal, sys, time
from surefoot import Surefoot, step, workflow, effect, keyed, sleep

def work_body(n):
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
    print("step", n, flush=True)

@step
def work(n: int) -> int:
    work_body(n)
    time.sleep(SLEEP if n == 1 else 0.01)
    return n

@step
async def work_async(n: int) -> int:
    work_body(n)
    await asyncio.sleep(SLEEP if n == 1 else 0.01)
    return n

@workflow
def flow() -> int:
    return sum(work(n) for n in range(40))

@workflow
async def flow_async() -> int:
    total = 0
    for n in range(40):
        total += await work_async(n)
    return total

@workflow
def bare() -> str:
    try:
        for n in range(40):
            work(n)
    except:
        return "swallowed"
    return "all"

@workflow
def sleeping() -> str:
    work(0)
    print("step 1", flush=True)
    sleep(600)
    return "slept"

@workflow
async def sleeping_async() -> str:
    await work_async(0)
    print("step 1", flush=True)
    await sleep(600)
    return "slept"

async def main():
    async with Surefoot("agents.db", grace=GRACE) as sf:
        print(await sf.run(globals()[FLOW], id="r"), flush=True)

async def many():
    async with Surefoot("agents.db", grace=GRACE) as sf:
        await asyncio.gather(*(sf.run(flow_async, id=i) for i in ("r", "s", "t")))

SLEEP, GRACE, FLOW = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if FLOW == "many":
    asyncio.run(many())
elif FLOW == "started":
    with Surefoot("agents.db", grace=GRACE) as sf:
        print(sf.start(flow, id="r").result(), flush=True)
elif FLOW.endswith("async"):
    asyncio.run(main())
else:
    with Surefoot("agents.db", grace=GRACE) as sf:
        print(sf.run(globals()[FLOW], id="r"), flush=True)
"""


def stop(folder: Path, flow: str, number: int, *, sleep: float = 0.3, grace: float = 10.0) -> tuple[Any, float, str]:
    """Run `flow` in a process, send it a signal inside its second step; (process, seconds to its end, errors)."""
    process = start_child(folder, PROGRAM, str(sleep), str(grace), flow)
    wait_for_line(process, "step 1")
    begun = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    return process, time.monotonic() - begun, errors


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"{line!r} did not come: {process.stderr.read() if process.stderr else ''}")


def run_in(folder: Path, run_id: str = "r") -> tuple[str, int, int]:
    """Status, owner and number of recorded entries, before anybody else has looked."""
    with Surefoot(folder / "agents.db") as sf:
        read = sf.store.read_run(run_id)
    assert read is not None
    return read[0].status, read[0].owner, len(read[1])


@pytest.mark.parametrize("flow", ["flow", "flow_async", "bare", "started"])
def test_sigterm_lets_the_step_finish_records_it_and_releases_the_run(tmp_path: Path, flow: str) -> None:
    process, seconds, errors = stop(tmp_path, flow, signal.SIGTERM)
    assert process.returncode == 143, errors
    assert seconds < 5
    assert run_in(tmp_path) == ("pending", 0, 2), errors
    assert (tmp_path / "ran").read_text().split() == ["0", "1"]


@pytest.mark.parametrize("flow", ["flow", "flow_async", "bare", "started"])
def test_ctrl_c_releases_the_run_and_is_a_keyboard_interrupt(tmp_path: Path, flow: str) -> None:
    process, seconds, errors = stop(tmp_path, flow, signal.SIGINT)
    assert process.returncode in (-signal.SIGINT, 130) and "KeyboardInterrupt" in errors
    assert seconds < 5
    status, owner, entries = run_in(tmp_path)
    assert (status, owner) == ("pending", 0) and entries in (1, 2), errors


def test_sigterm_ends_all_runs_of_a_loop(tmp_path: Path) -> None:
    process, _, errors = stop(tmp_path, "many", signal.SIGTERM)
    assert process.returncode == 143, errors
    assert [run_in(tmp_path, run)[:2] for run in "rst"] == [("pending", 0)] * 3


@pytest.mark.parametrize("flow", ["flow", "flow_async", "sleeping", "sleeping_async"])
def test_what_takes_longer_than_the_grace_time_is_interrupted(tmp_path: Path, flow: str) -> None:
    process, seconds, errors = stop(tmp_path, flow, signal.SIGTERM, sleep=60, grace=0.5)
    assert process.returncode == 143, errors
    assert seconds < 5
    assert run_in(tmp_path)[:2] == ("pending", 0), errors


def test_a_sleeping_run_does_not_need_the_whole_grace_time(tmp_path: Path) -> None:
    for flow in ("sleeping", "sleeping_async"):
        folder = tmp_path / flow
        folder.mkdir()
        process, seconds, errors = stop(folder, flow, signal.SIGTERM, grace=8)
        assert process.returncode == 143, errors
        assert seconds < 4, "surefoot.sleep is a place where a run can stop at once"


@pytest.mark.parametrize("flow", ["flow", "flow_async"])
def test_a_second_signal_interrupts_at_once(tmp_path: Path, flow: str) -> None:
    process = start_child(tmp_path, PROGRAM, "60", "50", flow)
    wait_for_line(process, "step 1")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 143 and time.monotonic() - begun < 5, errors
    assert run_in(tmp_path) == ("pending", 0, 1), errors


def test_a_stopped_run_is_resumed_by_the_next_process(tmp_path: Path) -> None:
    stop(tmp_path, "flow", signal.SIGTERM)
    process = start_child(tmp_path, PROGRAM, "0", "10", "flow")
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and out.split()[-1] == str(sum(range(40))), errors
    assert (tmp_path / "ran").read_text().split() == [str(n) for n in range(40)], "no step ran twice"


AFTERWARDS = """
import os, signal, sys, time
from surefoot import Surefoot, step, workflow

@step
def work(n: int) -> int:
    if n == 1 and not os.path.exists("asked"):
        open("asked", "w").close()
        os.kill(os.getpid(), signal.SIGINT)
    return n

@workflow
def flow() -> int:
    return sum(work(n) for n in range(5))

with Surefoot("agents.db", grace=0.5) as sf:
    try:
        sf.run(flow, id="r")
    except KeyboardInterrupt:
        print("caught", flush=True)
    time.sleep(1.0)
    print("quiet", flush=True)
    print(sf.run(flow, id="r"), flush=True)
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
"""


def test_a_program_that_catches_the_interrupt_may_go_on_and_run_again(tmp_path: Path) -> None:
    """As in a notebook: no second interrupt comes when the grace time is over, and later runs are not stopped."""
    process = start_child(tmp_path, AFTERWARDS)
    out, errors = process.communicate(timeout=30)
    assert out.split() == ["caught", "quiet", "10", "True"], errors


HANDLERS = """
import os, signal, threading
from surefoot import Surefoot, step, workflow

go = threading.Event()

@step
def work(n: int) -> int:
    return n

@step
def wait() -> int:
    go.wait(20)
    return 1

@workflow
def short() -> int:
    return work(1)

@workflow
def long() -> int:
    return wait()

with Surefoot("agents.db", grace=30) as sf:
    handle = sf.start(long, id="long")
    sf.run(short, id="short")
    go.set()
    handle.result(20)
print("idle", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
import time
time.sleep(20)
print("still here", flush=True)
"""


def test_an_idle_process_ends_at_once_on_sigterm(tmp_path: Path) -> None:
    """Also when the last run ended on another thread than the one that installed the handlers."""
    process = start_child(tmp_path, HANDLERS)
    begun = time.monotonic()
    out, errors = process.communicate(timeout=30)
    assert out == "idle\n", errors
    assert process.returncode in (-signal.SIGTERM, 143) and time.monotonic() - begun < 10


def test_a_programs_own_handlers_are_kept(tmp_path: Path) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: called.append(number))
    try:

        @step
        def work() -> int:
            os.kill(os.getpid(), signal.SIGTERM)
            return 1

        @workflow
        def flow() -> int:
            return work()

        with Surefoot(tmp_path / "agents.db") as sf:
            assert sf.run(flow, id="r") == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert called == [signal.SIGTERM]


def test_closing_stops_background_runs_at_their_next_step_and_says_so(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()
    ran: list[int] = []

    @step
    def work(n: int) -> int:
        ran.append(n)
        begun.set()
        assert go.wait(20)
        return n

    @workflow
    def flow() -> int:
        return sum(work(n) for n in range(5))

    sf = Surefoot(tmp_path / "agents.db")
    handle = sf.start(flow, id="r")
    assert begun.wait(20)
    closing = threading.Thread(target=sf.close)
    closing.start()
    time.sleep(0.05)
    go.set()
    closing.join(20)
    with pytest.raises(Exception, match=r"closed|stopped"):  # an Exception: SystemExit would end the caller's program
        handle.result(20)
    assert run_in(tmp_path) == ("pending", 0, 1) and ran == [0]
